// One contribution to the blocks of a shard, or their values, in one call.
//
// Place: tests that have no ParameterClient. Each call opens a stream of its
// own, and returns the status that ended it before its time.
#ifndef TESTS_SUPPORT_BLOCK_CALLS_H_
#define TESTS_SUPPORT_BLOCK_CALLS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/transport/transport.h"

namespace weir {

// What the receipts of a contribution say.
struct PushedBlocks {
  uint64_t incarnation = 0;
  uint64_t accepted = 0;
  uint64_t duplicate = 0;
  std::vector<uint32_t> left_out;
};

absl::StatusOr<PushedBlocks> PushBlocks(DataLink* link,
                                        const ChunkSource<GradientChunk>& next);

// Asks for the first `count` blocks and calls `chunk` for each answer.
// DEADLINE_EXCEEDED: what `want` says did not come in time.
absl::Status PullBlocks(
    DataLink* link, const Sender& sender, const Want& want, int count,
    const std::function<void(const ValueChunk&, const Payload&)>& chunk);

}  // namespace weir

#endif  // TESTS_SUPPORT_BLOCK_CALLS_H_
