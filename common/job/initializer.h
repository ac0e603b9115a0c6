// Initial values, as a pure function of (seed, variable, element), or for a row
// of a table of (seed, id, column).
//
// Place: the store fills each segment with it at Declare, and a table each row
// that it makes. So no values travel, and any split over shards and blocks
// starts from the same bits. Readers of a checkpoint's tables make with it the
// rows that are not there.
//
// Invariants
//   I1. Element i has the same bits wherever a range is cut.
//   I2. The same bits on every machine: logarithm, sine and cosine are our own
//       polynomials in double, because a libm chooses its own by processor.
// Threads: safe, no state.
// Cost: uniform 11 ns, normal 33 ns an element (Skylake-SP 2.5 GHz,
//   2026-11-21, bench/store/store_kernels_bench.cc).
// Source: Salmon et al., SC11 (Philox); Box and Muller, 1958.
#ifndef COMMON_JOB_INITIALIZER_H_
#define COMMON_JOB_INITIALIZER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/job/layout.h"

namespace weir {

// Errors: INVALID_ARGUMENT  the scale is not finite, or it is negative and the
//                           kind is kNormal or kUniform; the message names the
//                           variable.
absl::Status ValidateInitializer(const VariableSpec& variable);

// Fills out[0..count) with elements [begin, begin + count) of variable
// `variable` (its index in the layout).
// REQUIRES: the initialiser is valid; begin >= 0.
void FillInitial(const InitSpec& init, uint64_t seed, int variable,
                 int64_t begin, int64_t count, float* out);

// Checks the same for the rows of a table, which may have any InitKind. The
// message begins with `path`.
absl::Status ValidateRowInit(const InitSpec& init, const std::string& path);

// The seed of a table's initial values. It differs from table to table of a
// job.
uint64_t TableSeed(uint64_t job_seed, const std::string& name);

// The key of a table's initial values. `seed` is from TableSeed.
uint64_t RowInitKey(uint64_t seed);

// Fills out[0..dim) with the initial values of row `id`.
// REQUIRES: the initialiser is valid; key is from RowInitKey.
void FillInitialRow(const InitSpec& init, uint64_t key, uint64_t id, int dim,
                    float* out);

}  // namespace weir

#endif  // COMMON_JOB_INITIALIZER_H_
