#include "proto/wire/id_list.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "common/math/random.h"
#include "gmock/gmock.h"

namespace weir {
namespace {

using testing::HasSubstr;

TEST(IdListTest, BringsEveryListBack) {
  RandomStream random(7);
  for (int round = 0; round < 200; ++round) {
    std::set<uint64_t> ids = {};
    const int bits = static_cast<int>(random.NextBelow(64)) + 1;
    const uint32_t count = random.NextBelow(40);
    for (uint32_t i = 0; i < count; ++i) {
      ids.insert(random.Next64() >> (64 - bits));
    }
    if (round % 3 == 0) {
      ids.insert({0, ~uint64_t{0}, ~uint64_t{0} - 1, uint64_t{1} << 63});
    }
    const std::vector<uint64_t> list(ids.begin(), ids.end());
    const auto back =
        DecodeIds(EncodeIds(list), static_cast<uint32_t>(list.size()));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, list);
  }
}

TEST(IdListTest, NeighboursTakeOneByteEach) {
  EXPECT_EQ(EncodeIds(std::vector<uint64_t>{0, 1, 2, 130}),
            std::string("\0\0\0\x7f", 4));
}

TEST(IdListTest, RefusesWhatIsNoListOfSoManyIds) {
  const std::string three = EncodeIds(std::vector<uint64_t>{1, 500, 501});
  EXPECT_THAT(DecodeIds(three, 2).status().message(), HasSubstr("after the"));
  EXPECT_THAT(DecodeIds(three, 4).status().message(), HasSubstr("cut off"));
  EXPECT_THAT(DecodeIds(three.substr(0, 2), 2).status().message(),
              HasSubstr("cut off"));
  EXPECT_THAT(DecodeIds(std::string(11, '\xff'), 1).status().message(),
              HasSubstr("not a varint"));
  EXPECT_THAT(DecodeIds("", kListIdsMax + 1).status().message(),
              HasSubstr("at most"));
}

TEST(IdListTest, RefusesIdsThatBeginAgain) {
  // The largest id is followed by another one.
  std::string bytes = EncodeIds(std::vector<uint64_t>{~uint64_t{0}});
  bytes.push_back('\0');
  EXPECT_THAT(DecodeIds(bytes, 2).status().message(), HasSubstr("ascend"));
  std::string over = EncodeIds(std::vector<uint64_t>{~uint64_t{0} - 1});
  over.push_back('\x05');
  EXPECT_THAT(DecodeIds(over, 2).status().message(), HasSubstr("ascend"));
}

TEST(IdListTest, NamesTellListsApart) {
  std::set<uint64_t> names;
  for (uint64_t i = 0; i < 1000; ++i) {
    names.insert(NameOfIds(std::vector<uint64_t>{i}));
    names.insert(NameOfIds(std::vector<uint64_t>{i, i + 1}));
    names.insert(NameOfIds(std::vector<uint64_t>{0, i + 2}));
  }
  names.insert(NameOfIds({}));
  EXPECT_EQ(names.size(), 3001u);
  EXPECT_EQ(names.count(0), 0u);
}

}  // namespace
}  // namespace weir
