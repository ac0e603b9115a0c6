#include "client/cc/parameters/block_map.h"

#include <utility>

#include "common/base/check.h"

namespace weir {

BlockMap::BlockMap(const Layout& layout) {
  parts_of_.resize(layout.variables().size());
  for (int s = 0; s < layout.shard_count(); ++s) {
    count_of_shard_.push_back(layout.block_count(s));
    for (int index = 0; index < layout.block_count(s); ++index) {
      Block block;
      block.range = layout.block({s, index});
      for (const Segment& segment : layout.segments({s, index})) {
        block.variables.push_back(segment.variable);
        parts_of_[static_cast<size_t>(segment.variable)].push_back(
            {static_cast<int>(blocks_.size()), segment,
             block.range.begin + segment.block_offset,
             segment.count == block.range.count});
      }
      blocks_.push_back(std::move(block));
    }
  }
}

void BlockMap::DealNextShard(int channels) {
  WEIR_CHECK(channels >= 1 && shards_dealt_ < count_of_shard_.size());
  const int shard = static_cast<int>(shards_dealt_);
  const int count = count_of_shard_[shards_dealt_++];
  for (int c = 0; c < channels; ++c) {
    // I1: the ranges [count * c / channels, count * (c + 1) / channels) cover
    // the shard without a gap, and differ by one block at most.
    Channel channel;
    channel.shard = shard;
    channel.first_in_shard = count * c / channels;
    channel.first_block = blocks_dealt_;
    channel.count = count * (c + 1) / channels - channel.first_in_shard;
    for (int i = 0; i < channel.count; ++i) {
      Block& block = blocks_[static_cast<size_t>(blocks_dealt_++)];
      block.channel = static_cast<int>(channels_.size());
      block.index = i;
    }
    channels_.push_back(channel);
  }
}

}  // namespace weir
