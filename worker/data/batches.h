// Makes the batch of a contribution from its number alone.
//
// Place: a worker makes the batches of its contributions with it. Whoever
//   computes contribution c again, elsewhere or after a restart, gets the same
//   bytes.
//
// Terms
//   epoch order   a seeded Fisher-Yates shuffle of the samples, a pure function
//                 of (seed, epoch). With `shuffle` off, the order of the file.
//   places        all epoch orders, one after the other. Contribution c covers
//                 places [cB, (c+1)B), so it may span epochs.
//
// Invariants
//   I1. Every sample occurs exactly once in each whole epoch.
//   I2. Only the last contribution may have fewer than B rows. When the job is
//       given in steps, it has B, too. A weight is rows / B.
//   I3. Beyond the last contribution (sync fills up its last step) a batch has
//       no rows and weight 0.
// Threads: safe. Borrows the data set.
// Errors: INVALID_ARGUMENT  names the JobSpec's field that does not fit.
// Cost: 4 bytes for each sample and each of the two newest epochs. A shuffle of
//   60,000 samples takes 1 ms.
// Source: Durstenfeld, "Algorithm 235: Random permutation", CACM 1964.
#ifndef WORKER_DATA_BATCHES_H_
#define WORKER_DATA_BATCHES_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "worker/compute/host_pages.h"
#include "worker/data/formats/dataset.h"

namespace weir {

struct Batch {
  int64_t contribution = -1;
  int64_t rows = 0;
  float weight = 0.0f;  // rows / batch_size
  // [rows, feature shape...], row-major, in one of the two.
  PageVector<float> features;
  // With Options::as_bytes. Three more belong to the same pages: a device
  // copies whole floats.
  PageVector<uint8_t> bytes;
  std::vector<float> labels;  // [rows]
  SparseBatch sparse;         // the data set's features, `rows` bags each
};

class Batches {
 public:
  struct Options {
    int64_t batch_size = 0;
    // Exactly one of the two. `contributions` is for jobs given in steps.
    double epochs = 0.0;
    int64_t contributions = 0;
    uint64_t seed = 0;  // the job's
    bool shuffle = true;
    // Checks the label of each sample, whose number a message then has. Empty:
    // all are good.
    std::function<absl::Status(float label)> check_label = {};
    // Gives features as the data set's bytes. REQUIRES: it has them.
    bool as_bytes = false;
    // Hears of the memory of features; may be null. It outlives all batches.
    PageObserver* pages = nullptr;

    absl::Status Validate() const;
  };

  // `dataset` outlives this.
  static absl::StatusOr<std::unique_ptr<Batches>> Create(
      const Options& options, const Dataset* dataset);

  int64_t contributions() const { return contributions_; }

  // Makes the batch of `contribution` in *batch, whose vectors are used again.
  // Errors are those of the data set.
  // REQUIRES: contribution >= 0.
  absl::Status Make(int64_t contribution, Batch* batch) const;

  // Returns the order of `epoch`, as sample numbers. Cost: O(samples), unless
  // it is one of the two that are kept.
  std::shared_ptr<const std::vector<uint32_t>> EpochOrder(int64_t epoch) const;

 private:
  struct Kept {
    int64_t epoch = -1;
    std::shared_ptr<const std::vector<uint32_t>> order;
  };

  Batches(const Options& options, const Dataset* dataset);

  // Constant after construction.
  const Options options_;
  const Dataset* const dataset_;
  int64_t samples_ = 0;  // places of the whole job
  int64_t contributions_ = 0;

  mutable Mutex mutex_;  // protects kept_
  // An epoch's neighbours are in use at the same time, so two are kept.
  mutable std::array<Kept, 2> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // WORKER_DATA_BATCHES_H_
