// The ids that rows_bench asks for: batches drawn by a power law.
//
// Place: rows_bench draws them; bench/tables/torch_rows.py reads the files of
// WriteLists.
//
// Terms
//   batch   `samples` samples of kFeatures features with one id each. A feature
//           has ids of its own, rows / kFeatures of them.
//
// Invariants
//   I1. DrawnBatch::ids has the ids of all samples of the batch, ascending and
//       without repeats.
//   I2. No sample is drawn twice in the life of a Draws, so that no list that a
//       ps may have kept is asked for again.
//
// Threads: compatible.
#ifndef BENCH_TABLES_ROWS_DRAWS_H_
#define BENCH_TABLES_ROWS_DRAWS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/formats/dataset.h"
#include "worker/data/formats/sparse_batch.h"

namespace weir {

inline constexpr int64_t kFeatures = 26;  // of the Criteo click logs

struct DrawnBatch {
  SparseBatch samples;
  std::vector<uint64_t> ids;
};
using DrawnBatches = std::vector<DrawnBatch>;

class Draws {
 public:
  // `rows` is the number of ids of all features, `samples` the size of a batch.
  static absl::StatusOr<Draws> Create(int64_t rows, int64_t samples);

  // Draws the next `count` batches.
  absl::StatusOr<DrawnBatches> Next(int count);

 private:
  Draws(std::unique_ptr<Dataset> log, int64_t samples)
      : log_(std::move(log)), samples_(samples) {}

  std::unique_ptr<Dataset> log_;
  int64_t samples_;
  int64_t next_ = 0;
};

// Returns the number of distinct ids, summed over the batches.
double CountRows(const DrawnBatches& batches);

// Writes the lists of `batches` for torch_rows.py: PREFIX.ids has the ids of
// all batches one behind the other, PREFIX.counts the length of each list. Both
// hold 8-byte integers in the machine's order. With `repeats` a list has the
// ids of every feature, as they were drawn; without, it is DrawnBatch::ids.
// Errors: UNAVAILABLE names the prefix of what cannot be written.
absl::Status WriteLists(const std::string& prefix, const DrawnBatches& batches,
                        bool repeats);

}  // namespace weir

#endif  // BENCH_TABLES_ROWS_DRAWS_H_
