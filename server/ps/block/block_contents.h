// What a new shard's blocks hold: initial values, or a checkpoint's.
//
// Threads: the caller holds the block's lock.
#ifndef SERVER_PS_BLOCK_BLOCK_CONTENTS_H_
#define SERVER_PS_BLOCK_BLOCK_CONTENTS_H_

#include "absl/status/status.h"
#include "common/job/layout.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "server/ps/block/block.h"
#include "server/ps/block/block_buffer.h"
#include "server/ps/plan/shard_plan.h"

namespace weir {

// Values by initialiser, state by their optimizers; padding is zero.
void InitialiseBlock(const ShardPlan& plan, Arena* arena, Block& block)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

// Values, slots and step counts from a checkpoint of the same variables.
// INVALID_ARGUMENT when it lacks a state array; DATA_LOSS as its reader says.
absl::Status RestoreBlock(const ShardPlan& plan, Arena* arena,
                          CheckpointReader& reader, Block& block)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

// INVALID_ARGUMENT names the first variable whose name, shape or kind differs;
// flat ranges mean the same in both only when none does.
absl::Status CheckSameVariables(const Layout& declared,
                                const CheckpointReader& reader);

}  // namespace weir

#endif  // SERVER_PS_BLOCK_BLOCK_CONTENTS_H_
