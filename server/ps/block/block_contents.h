// Fills the blocks of a new shard: with initial values, or from a checkpoint.
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

// Fills values by their initialisers and state by the optimizers; padding is
// zero.
void InitialiseBlock(const ShardPlan& plan, Arena* arena, Block& block)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

// Fills values, optimizer state and step counts from a checkpoint of the same
// variables. State that its writer did not keep, as that of a frozen group,
// begins as in InitialiseBlock. INVALID_ARGUMENT when it lacks a state array;
// DATA_LOSS as its reader says. After an error the block's contents are
// undefined.
absl::Status RestoreBlock(const ShardPlan& plan, Arena* arena,
                          CheckpointReader& reader, Block& block)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

// Checks that both have the same variables, since only then the same flat range
// means the same elements. INVALID_ARGUMENT names the first variable whose
// name, shape or kind differs.
absl::Status CheckSameVariables(const Layout& declared,
                                const CheckpointReader& reader);

}  // namespace weir

#endif  // SERVER_PS_BLOCK_BLOCK_CONTENTS_H_
