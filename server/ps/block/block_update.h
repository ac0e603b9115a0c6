// The arithmetic that the consistency modes share: which segments a
// contribution moves, whether they are finite, and how they are applied.
//
// Threads: the functions touch what they are given; the caller holds the
//   block's lock where they say so.
#ifndef SERVER_PS_BLOCK_BLOCK_UPDATE_H_
#define SERVER_PS_BLOCK_BLOCK_UPDATE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "common/io/payload.h"
#include "server/ps/block/block.h"
#include "server/ps/optimizer/optimizer.h"

namespace weir {

// The part of a contribution that belongs to one block, checked by the shard:
// slot, hyper-parameters, weight and payload size are valid.
struct BlockGradient {
  int slot = 0;
  const ::weir::Push* push = nullptr;
  Payload payload;  // float32; empty: the block is left out
  int64_t received_ns = 0;
};

inline float WeightOf(const ::weir::Push& push) {
  return push.has_weight() ? push.weight() : 1.0f;
}

// Tells by segment whether the contribution moves it. All are false without a
// payload or with weight 0. Segments of left-out variables, and those without
// an optimizer, are false.
std::vector<bool> MovedSegments(const BlockPlan& plan,
                                const BlockGradient& gradient);
inline bool AnyMoved(const std::vector<bool>& moved) {
  return std::find(moved.begin(), moved.end(), true) != moved.end();
}

// Finds the first moved segment that holds NaN or Inf. Returns its variable, or
// -1.
int FindNonFinite(const BlockPlan& plan, const std::vector<bool>& moved,
                  const BlockGradient& gradient);

// Makes what the optimizer is told at its step `step`. Hyper-parameters that
// `push` brings replace the schedule's.
StepContext StepContextFor(const SegmentPlan& segment, uint64_t step,
                           const ::weir::Push& push);

// Visits the gradients of the moved segments in order, in runs of at most
// `count_max`; `element` counts from the block's begin. Ends when `visit`
// returns false.
using GradientVisitor = std::function<bool(size_t segment, int64_t element,
                                           const char* data, int64_t count)>;
void VisitGradients(const BlockPlan& plan, const std::vector<bool>& moved,
                    const BlockGradient& gradient, int64_t count_max,
                    const GradientVisitor& visit);

// Makes a block's buffers writable. One that others reference is replaced, and
// its contents follow in CopyUpTo, so that copy and update share one pass.
class BlockWriter {
 public:
  explicit BlockWriter(Arena* arena) : arena_(arena) {}

  // Makes the buffer that Replace puts in the place of `*buffer`, if others
  // reference that. The block is unchanged, so std::bad_alloc does no harm.
  void Open(BlockRef* buffer) {
    if (*buffer && !buffer->unique()) {
      replaced_.push_back({buffer, BlockRef::Make(arena_, buffer->elements())});
    }
  }
  void OpenAll(Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex) {
    Open(&block.values);
    for (BlockRef& one : block.state) {
      Open(&one);
    }
  }
  // Makes what was opened writable, up to the element to which CopyUpTo has
  // come. REQUIRES: the block's lock was held since Open. Never throws.
  void Replace() {
    for (Replaced& replaced : replaced_) {
      std::swap(*replaced.place, replaced.other);
    }
  }
  bool copying() const { return !replaced_.empty(); }
  // Copies elements that were not copied yet, up to `end`.
  void CopyUpTo(int64_t end);

 private:
  struct Replaced {
    BlockRef* place;
    BlockRef other;  // the new buffer; the old one after Replace
  };
  Arena* const arena_;
  std::vector<Replaced> replaced_;
  int64_t copied_ = 0;
};

// Where the arithmetic of one push happens; raw, so that lock_free can use it
// without the lock.
struct BlockArrays {
  explicit BlockArrays(const Block& block)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  // Pointers to the state of `segment`'s optimizer at `element`.
  void StateAt(const SegmentPlan& segment, int64_t element,
               float* out[Optimizer::kMaxStateArrays]) const;

  float* values = nullptr;
  std::vector<float*> state;  // by state array
};

// Takes one step in every moved segment's count; returns the optimizers'
// contexts by segment.
std::vector<StepContext> TakeSteps(Block& block, const std::vector<bool>& moved,
                                   const ::weir::Push& push)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

// Applies the contribution's gradient to every moved segment. `writer` follows
// and ends with everything copied.
void ApplyGradient(const BlockPlan& plan, const BlockArrays& arrays,
                   const std::vector<bool>& moved,
                   const std::vector<StepContext>& contexts,
                   const BlockGradient& gradient, BlockWriter& writer);

// Elements handled at once where two passes share them: they stay in L1 or L2.
inline constexpr int64_t kWindowElements = 4096;

}  // namespace weir

#endif  // SERVER_PS_BLOCK_BLOCK_UPDATE_H_
