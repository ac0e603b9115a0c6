// Which blocks hold a variable, and which channel carries each.
//
// Place: ParameterClient builds one from the layout and asks it while it pushes
// and pulls. Arithmetic only: it knows neither streams nor values.
//
// Terms
//   block    here the index of a block among all blocks of all shards, in the
//            order of shards. Inside a channel blocks count from 0. Within a
//            shard they lie in the order of variables, which is the order in
//            which forward needs them.
//   channel  one stream to a ps, with a range of that shard's blocks.
//   part     one variable's elements in one block.
//
// Invariants
//   I1. Every block of a shard that was dealt belongs to exactly one channel,
//       and the blocks of a channel lie side by side.
// Threads: compatible; safe once all shards are dealt, when it is constant.
// Cost: O(blocks + segments) to build, O(1) for each question.
#ifndef CLIENT_CC_PARAMETERS_BLOCK_MAP_H_
#define CLIENT_CC_PARAMETERS_BLOCK_MAP_H_

#include <cstdint>
#include <vector>

#include "common/job/layout.h"

namespace weir {

class BlockMap {
 public:
  struct Block {
    int channel = 0;
    int index = 0;  // inside its channel
    FlatRange range;
    std::vector<int> variables;
  };
  struct Part {
    int block = 0;
    Segment segment;
    int64_t flat_begin = 0;
    bool whole = false;  // the part is all of the block
  };
  struct Channel {
    int shard = 0;
    int first_in_shard = 0;  // its first block, counted inside the shard
    int first_block = 0;     // the same block, counted over all shards
    int count = 0;
  };

  explicit BlockMap(const Layout& layout);

  // Deals the blocks of the next shard, in equal ranges, to `channels` further
  // channels. REQUIRES: channels >= 1; one call for each shard, in order.
  void DealNextShard(int channels);

  const std::vector<Block>& blocks() const { return blocks_; }
  const std::vector<Channel>& channels() const { return channels_; }
  const std::vector<Part>& parts_of(int variable) const {
    return parts_of_[static_cast<size_t>(variable)];
  }
  // The block that is number `index` of `channel`.
  int block_of(int channel, int index) const {
    return channels_[static_cast<size_t>(channel)].first_block + index;
  }

 private:
  std::vector<Block> blocks_;
  std::vector<Channel> channels_;
  std::vector<std::vector<Part>> parts_of_;  // by variable
  std::vector<int> count_of_shard_;
  size_t shards_dealt_ = 0;
  int blocks_dealt_ = 0;
};

}  // namespace weir

#endif  // CLIENT_CC_PARAMETERS_BLOCK_MAP_H_
