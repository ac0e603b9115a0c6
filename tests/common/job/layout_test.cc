#include "common/job/layout.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/math/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::HasSubstr;

VariableSpec Variable(const std::string& name, std::vector<int64_t> shape,
                      VariableKind kind = VariableKind::kTrained) {
  VariableSpec variable;
  variable.name = name;
  variable.shape = std::move(shape);
  variable.kind = kind;
  return variable;
}

std::vector<VariableSpec> RandomVariables(RandomStream* random) {
  std::vector<VariableSpec> variables;
  const int count = 1 + static_cast<int>(random->NextBelow(9));
  for (int v = 0; v < count; ++v) {
    std::vector<int64_t> shape;
    for (uint32_t d = random->NextBelow(4); d > 0; --d) {
      shape.push_back(1 + random->NextBelow(12));
    }
    variables.push_back(Variable("v" + std::to_string(v), shape,
                                 random->NextBelow(4) == 0
                                     ? VariableKind::kBuffer
                                     : VariableKind::kTrained));
  }
  return variables;
}

// Where one flat element belongs, found in the slow way.
struct Place {
  int variable = -1;  // -1: padding
  int64_t offset = 0;
  int shard = 0;
  int index = 0;
};

// Lays the flat space out element by element, straight from layout.h's words.
std::vector<Place> BruteForce(const std::vector<VariableSpec>& variables,
                              int shards, int64_t block) {
  std::vector<Place> flat;
  for (const VariableKind kind :
       {VariableKind::kTrained, VariableKind::kBuffer}) {
    for (size_t v = 0; v < variables.size(); ++v) {
      if (variables[v].kind != kind) {
        continue;
      }
      for (int64_t i = 0; i < variables[v].elements(); ++i) {
        flat.push_back({static_cast<int>(v), i});
      }
      while (flat.size() % 16 != 0) {
        flat.push_back({});
      }
    }
  }
  const int64_t size = static_cast<int64_t>(flat.size());
  const int64_t full = size / (block * shards) * (block * shards);
  for (int64_t e = 0; e < full; ++e) {
    flat[e].shard = static_cast<int>(e / block % shards);
    flat[e].index = static_cast<int>(e / block / shards);
  }
  const int64_t lines = (size - full) / 16;
  for (int64_t line = 0; line < lines; ++line) {
    int shard = 0;
    while (line >= lines * (shard + 1) / shards) {
      ++shard;
    }
    for (int64_t e = full + line * 16; e < full + line * 16 + 16; ++e) {
      flat[e].shard = shard;
      flat[e].index = static_cast<int>(full / (block * shards));
    }
  }
  return flat;
}

// I1 and I3, by brute force: every element is in exactly the segment, block and
// shard that the definition says.
void ExpectSame(const Layout& layout, const std::vector<Place>& want) {
  ASSERT_EQ(layout.flat_elements(), static_cast<int64_t>(want.size()));
  std::vector<int> seen(want.size(), 0);
  for (int s = 0; s < layout.shard_count(); ++s) {
    int64_t elements = 0;
    for (int b = 0; b < layout.block_count(s); ++b) {
      const FlatRange range = layout.block({s, b});
      EXPECT_EQ(layout.shard_offset(b), elements);
      ASSERT_GT(range.count, 0);
      elements += range.count;
      for (int64_t e = range.begin; e < range.begin + range.count; ++e) {
        ASSERT_EQ(want[e].shard, s) << e;
        ASSERT_EQ(want[e].index, b) << e;
        ASSERT_EQ(layout.block_of(e), (BlockId{s, b})) << e;
        ++seen[e];
      }
      int64_t at = 0;
      for (const Segment& segment : layout.segments({s, b})) {
        ASSERT_GE(segment.block_offset, at);
        ASSERT_GT(segment.count, 0);
        for (int64_t i = 0; i < segment.count; ++i) {
          const Place& place = want[range.begin + segment.block_offset + i];
          ASSERT_EQ(place.variable, segment.variable);
          ASSERT_EQ(place.offset, segment.variable_offset + i);
          ++seen[range.begin + segment.block_offset + i];
        }
        at = segment.block_offset + segment.count;
      }
    }
    EXPECT_EQ(elements, layout.shard_elements(s));
  }
  for (size_t e = 0; e < want.size(); ++e) {
    ASSERT_EQ(seen[e], want[e].variable < 0 ? 1 : 2) << e;
  }
}

TEST(LayoutTest, AgreesWithTheDefinitionOnRandomModels) {
  RandomStream random(11);
  for (int round = 0; round < 400; ++round) {
    const std::vector<VariableSpec> variables = RandomVariables(&random);
    const int shards = 1 + static_cast<int>(random.NextBelow(7));
    const int64_t block = int64_t{16} * (1 + random.NextBelow(6));
    const auto layout = Layout::Create(variables, shards, block);
    ASSERT_TRUE(layout.ok()) << layout.status();
    ExpectSame(*layout, BruteForce(variables, shards, block));
    if (testing::Test::HasFatalFailure()) {
      FAIL() << "round " << round;
    }
  }
}

// I2 holds whatever the sizes of the variables are.
TEST(LayoutTest, ShardsDifferByAtMostSixteenElements) {
  RandomStream random(12);
  for (int round = 0; round < 300; ++round) {
    const int shards = 1 + static_cast<int>(random.NextBelow(9));
    const auto layout =
        Layout::Create({Variable("huge", {1 + random.NextBelow(5'000'000)}),
                        Variable("tiny", {3})},
                       shards, 1024);
    ASSERT_TRUE(layout.ok());
    int64_t least = layout->shard_elements(0);
    int64_t most = least;
    int64_t sum = 0;
    for (int s = 0; s < shards; ++s) {
      least = std::min(least, layout->shard_elements(s));
      most = std::max(most, layout->shard_elements(s));
      sum += layout->shard_elements(s);
    }
    EXPECT_LE(most - least, 16);
    EXPECT_EQ(sum, layout->flat_elements());
  }
}

TEST(LayoutTest, AModelSmallerThanItsShardsLeavesSomeEmpty) {
  const auto layout = Layout::Create({Variable("a", {20})}, 5, 16);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->flat_elements(), 32);
  int blocks = 0;
  for (int s = 0; s < 5; ++s) {
    blocks += layout->block_count(s);
  }
  EXPECT_EQ(blocks, 2);
}

TEST(LayoutTest, FingerprintFollowsEveryThingThatPlacesAnElement) {
  std::vector<VariableSpec> base = {Variable("a", {2, 3}), Variable("b", {4})};
  const auto fingerprint = [](const std::vector<VariableSpec>& variables,
                              int shards = 2, int64_t block = 32) {
    return Layout::Create(variables, shards, block)->fingerprint();
  };
  std::set<uint64_t> seen = {fingerprint(base), fingerprint(base, 3),
                             fingerprint(base, 2, 48),
                             fingerprint({base[1], base[0]})};
  std::vector<VariableSpec> changed = base;
  changed[0].name = "c";
  seen.insert(fingerprint(changed));
  changed = base;
  changed[0].shape = {3, 2};
  seen.insert(fingerprint(changed));
  changed = base;
  changed[0].kind = VariableKind::kBuffer;
  seen.insert(fingerprint(changed));
  changed = base;
  changed[0].group = 1;
  seen.insert(fingerprint(changed));
  EXPECT_EQ(seen.size(), 8u);
  changed = base;
  changed[0].init = {InitKind::kNormal, 0.5f};
  changed[0].aliases = {"x"};
  EXPECT_EQ(fingerprint(changed), fingerprint(base));
}

TEST(LayoutTest, FindsVariablesByName) {
  const auto layout =
      Layout::Create({Variable("a", {}), Variable("b", {2})}, 1, 16);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->Find("b"), 1);
  EXPECT_EQ(layout->Find("c"), -1);
}

TEST(LayoutTest, OfNoVariablesIsEmpty) {
  const auto layout = Layout::Create({}, 3, 16);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->flat_elements(), 0);
  for (int s = 0; s < 3; ++s) {
    EXPECT_EQ(layout->block_count(s), 0);
    EXPECT_EQ(layout->shard_elements(s), 0);
  }
}

TEST(LayoutTest, EveryMistakeIsNamed) {
  const auto error = [](std::vector<VariableSpec> variables, int shards = 1,
                        int64_t block = 16) {
    return std::string(
        Layout::Create(std::move(variables), shards, block).status().message());
  };
  const VariableSpec good = Variable("a", {4});
  EXPECT_THAT(error({Variable("", {1})}), HasSubstr("has no name"));
  EXPECT_THAT(error({Variable(std::string(257, 'n'), {1})}),
              HasSubstr("has a name of 257 bytes, more than 256"));
  EXPECT_THAT(error(std::vector<VariableSpec>(65537)),
              HasSubstr("65537 variables are more than 65536"));
  // 2^28 blocks, which an int could not count eight times over.
  EXPECT_THAT(error({Variable("a", {int64_t{1} << 32})}),
              HasSubstr("268435456 blocks a shard, more than 16777216"));
  EXPECT_THAT(error({good, good}), HasSubstr("'a' is declared twice"));
  EXPECT_THAT(error({Variable("a", {2, 0})}), HasSubstr("'a' has shape [2,0]"));
  EXPECT_THAT(error({Variable("a", {-1})}), HasSubstr("[-1]"));
  const int64_t big = int64_t{1} << 40;
  EXPECT_THAT(error({Variable("a", {big, 2})}), HasSubstr("at most 2^40"));
  EXPECT_THAT(error({Variable("b", {big}), good}), HasSubstr("together"));
  EXPECT_THAT(error({good}, 0), HasSubstr("shard count 0"));
  EXPECT_THAT(error({good}, 4097), HasSubstr("shard count 4097"));
  for (const int64_t block :
       {int64_t{0}, int64_t{8}, int64_t{24}, Layout::kMaxBlockElements + 16}) {
    EXPECT_THAT(error({good}, 1, block), HasSubstr("block_elements"));
  }
  VariableSpec rate = good;
  rate.buffer_rate = 1.5f;
  EXPECT_THAT(error({rate}), HasSubstr("buffer_rate 1.5"));
}

}  // namespace
}  // namespace weir
