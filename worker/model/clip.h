// Clips a contribution's gradient before it is pushed.
//
// Place: the train loop calls it between backward and push, so with clipping
//   the two do not overlap. Only trained variables and rows count and change;
//   what is frozen, buffers' samples and padding stay as they are.
//
// Invariants
//   I1. The norm is summed in double, variable by variable, in fixed lanes: the
//       same gradients give the same bits.
//   I2. A gradient whose norm is NaN or infinite is not clipped by norm: the ps
//       finds and names the variable.
// Threads: safe.
// Source: Pascanu et al., "On the difficulty of training recurrent neural
//         networks", ICML 2013, algorithm 1.
#ifndef WORKER_MODEL_CLIP_H_
#define WORKER_MODEL_CLIP_H_

#include <span>

#include "absl/status/status.h"
#include "common/job/layout.h"
#include "proto/job_spec.pb.h"

namespace weir {

// Errors: INVALID_ARGUMENT  a bound that is not finite and > 0.
absl::Status ValidateClip(const Clip& clip);

// The gradients of rows, by table; each row occurs once.
using RowGradientLists = std::span<const std::span<float>>;

// Clips `gradients` [layout.flat_elements()] and `rows` in place. Does nothing
// when no kind is set. `frozen`: variables whose gradients nobody pushes.
// REQUIRES: ValidateClip(clip) is OK.
void ClipGradients(const Clip& clip, const Layout& layout, float* gradients,
                   RowGradientLists rows = {},
                   std::span<const int> frozen = {});

// Returns the 2-norm over all trained variables that are not frozen, and rows.
double GradientNorm(const Layout& layout, const float* gradients,
                    RowGradientLists rows = {},
                    std::span<const int> frozen = {});

}  // namespace weir

#endif  // WORKER_MODEL_CLIP_H_
