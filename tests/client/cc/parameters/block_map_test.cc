#include "client/cc/parameters/block_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/job/layout.h"

namespace weir {
namespace {

// Variables v0, v1, ... of `elements` floats each, over `shards` shards.
Layout LayoutOf(const std::vector<int64_t>& elements, int shards,
                int64_t block_elements = 16) {
  std::vector<VariableSpec> variables;
  for (size_t v = 0; v < elements.size(); ++v) {
    VariableSpec variable;
    variable.name = "v" + std::to_string(v);
    variable.shape = {elements[v]};
    variables.push_back(std::move(variable));
  }
  auto layout = Layout::Create(std::move(variables), shards, block_elements);
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *std::move(layout);
}

TEST(BlockMapTest, EveryElementOfAVariableIsInOnePart) {
  const std::vector<int64_t> elements = {40, 1, 100};
  const Layout layout = LayoutOf(elements, 3);
  const BlockMap map(layout);
  for (int v = 0; v < 3; ++v) {
    std::vector<int> seen(static_cast<size_t>(elements[v]));
    for (const BlockMap::Part& part : map.parts_of(v)) {
      EXPECT_EQ(part.segment.variable, v);
      EXPECT_EQ(part.flat_begin,
                layout.flat_begin(v) + part.segment.variable_offset);
      const FlatRange range = map.blocks()[part.block].range;
      EXPECT_EQ(part.whole, part.segment.count == range.count);
      EXPECT_GE(part.flat_begin, range.begin);
      EXPECT_LE(part.flat_begin + part.segment.count,
                range.begin + range.count);
      for (int64_t i = 0; i < part.segment.count; ++i) {
        ++seen[static_cast<size_t>(part.segment.variable_offset + i)];
      }
    }
    EXPECT_EQ(seen, std::vector<int>(static_cast<size_t>(elements[v]), 1));
  }
}

TEST(BlockMapTest, BlocksLieInTheOrderOfVariables) {
  // Blocks of 32 floats: v0 fills the first, v1 and v2 share the second.
  const BlockMap map(LayoutOf({32, 16, 16}, 1, 32));
  ASSERT_EQ(map.blocks().size(), 2u);
  EXPECT_EQ(map.blocks()[0].variables, (std::vector<int>{0}));
  EXPECT_EQ(map.blocks()[1].variables, (std::vector<int>{1, 2}));
}

TEST(BlockMapTest, ChannelsShareTheBlocksOfTheirShardEvenly) {
  const Layout layout = LayoutOf({16 * 11}, 2);
  BlockMap map(layout);
  map.DealNextShard(3);
  map.DealNextShard(1);
  ASSERT_EQ(map.channels().size(), 4u);
  int next = 0;
  int least = 1 << 20;
  int most = 0;
  for (int c = 0; c < 4; ++c) {
    const BlockMap::Channel& channel = map.channels()[c];
    EXPECT_EQ(channel.shard, c == 3 ? 1 : 0);
    EXPECT_EQ(channel.first_block, next);
    if (channel.shard == 0) {
      EXPECT_EQ(channel.first_in_shard, next);
      least = std::min(least, channel.count);
      most = std::max(most, channel.count);
    } else {
      EXPECT_EQ(channel.first_in_shard, 0);
    }
    for (int i = 0; i < channel.count; ++i, ++next) {
      EXPECT_EQ(map.blocks()[next].channel, c);
      EXPECT_EQ(map.blocks()[next].index, i);
      EXPECT_EQ(map.block_of(c, i), next);
    }
  }
  EXPECT_EQ(next, static_cast<int>(map.blocks().size()));
  EXPECT_LE(most - least, 1);
}

TEST(BlockMapTest, AChannelMayHaveNoBlocks) {
  // A job with tables alone: the shards have no block, and a stream each.
  BlockMap map(LayoutOf({}, 2));
  map.DealNextShard(1);
  map.DealNextShard(1);
  ASSERT_EQ(map.channels().size(), 2u);
  EXPECT_EQ(map.channels()[1].count, 0);
  EXPECT_TRUE(map.blocks().empty());
}

TEST(BlockMapDeathTest, MoreShardsThanTheLayoutHasAreABug) {
  BlockMap map(LayoutOf({16}, 1));
  map.DealNextShard(1);
  EXPECT_DEATH(map.DealNextShard(1), "shards_dealt_");
}

}  // namespace
}  // namespace weir
