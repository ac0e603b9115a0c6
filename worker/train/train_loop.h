// Training, one contribution after another: pull, compute, push.
//
// Place: WorkerTask builds it; it ties data, network, the worker's clients and
// the chief together. Step() in the .cc is the whole of a training step.
//
// Terms
//   contribution   the gradient of one batch of this worker's slot; see
//                  worker/train/work_list.h for which ones a slot has.
//
// Invariants
//   I1. What a contribution pushes is a pure function of the parameters pulled,
//       the batch and the seed; the last two follow from the contribution's
//       number.
//   I2. Sync: every contribution of a step is computed from the same version,
//       and the next version is pulled only behind the last of them.
//   I3. A contribution is computed from values that do not change under it, and
//       its push names their versions, with prefetch too.
//   I4. Nothing of a contribution is pushed between a hold and its release.
// Threads: compatible.
// Owns/borrows: borrows everything in Options.
// Errors: those of ParameterClient and the network; CANCELLED when the job
//   stopped (JobControl knows why).
// Cost: beyond compute, the waits that overlap cannot hide; each
//   contribution tells JobControl what they were (Phases in proto/chief.proto).
#ifndef WORKER_TRAIN_TRAIN_LOOP_H_
#define WORKER_TRAIN_TRAIN_LOOP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/job/job_control.h"
#include "client/cc/job/worker_session.h"
#include "common/base/clock.h"
#include "common/job/layout.h"
#include "proto/job_spec.pb.h"
#include "worker/model/replicas.h"
#include "worker/train/histograms.h"
#include "worker/train/phase_timer.h"
#include "worker/train/table_feed.h"
#include "worker/train/work_list.h"

namespace weir {

// One contribution's data. It is borrowed; Options::batch says for how long.
struct TrainBatch {
  Features features = nullptr;          // [rows, feature_elements]
  const float* labels = nullptr;        // [rows, label_width]
  int64_t rows = 0;                     // 0: beyond the last sample
  float weight = 1.0f;                  // of the contribution
  const SparseBatch* sparse = nullptr;  // null where the model reads no table
};

class TrainLoop {
 public:
  struct Options {
    Replicas* network = nullptr;  // bound to layout, parameters and gradients
    WorkerSession* session = nullptr;
    JobControl* control = nullptr;
    const WorkList* work = nullptr;
    const Layout* layout = nullptr;
    float* gradients = nullptr;
    TableFeed* tables = nullptr;  // null where the model reads no table
    // Makes the batch of a contribution. It is called in the order of
    // contributions. A batch must stay valid until the call after the next.
    std::function<absl::StatusOr<TrainBatch>(uint64_t contribution)> batch;
    // Whether `batch` would return at once. Then the next batch goes to the
    // device while this one is computed on. Empty: never.
    std::function<bool()> batch_ready = {};
    uint64_t seed = 0;          // the job's
    Clip clip;                  // by norm or value, or unset
    std::vector<int> left_out;  // variables that are never pushed: frozen
    // For prefetch, else null; both in the flat space. The client pulls into
    // `pulled`. The network computes from `computed_from`: forward copies each
    // variable there, so the next values may arrive in `pulled` meanwhile.
    const float* pulled = nullptr;
    float* computed_from = nullptr;
    // The usage that the network's backend reports; null where the backend
    // works in host memory.
    std::function<DeviceUsage()> device_usage;
    uint32_t histograms_every_steps = 0;  // 0: none
    // For histograms, else null: what the network computes from.
    const float* values = nullptr;
    Clock* clock = Clock::Real();

    absl::Status Validate() const;
  };

  static absl::StatusOr<std::unique_ptr<TrainLoop>> Create(Options options);

  // Does the contributions from `next_sequence` on. OK when all are
  // acknowledged.
  absl::Status Run(uint64_t next_sequence);

 private:
  explicit TrainLoop(Options options)
      : options_(std::move(options)),
        client_(options_.session->blocks()),
        timer_(options_.clock, options_.device_usage),
        histograms_({.every_steps = options_.histograms_every_steps,
                     .layout = options_.layout,
                     .values = options_.values,
                     .gradients = options_.gradients,
                     .left_out = options_.left_out}) {}

  absl::Status Step(const WorkUnit& work, const std::optional<Want>& next);
  absl::StatusOr<TrainBatch> BatchOf(const WorkUnit& work);
  // Sends the features of the contribution behind `work` ahead, if they are
  // there.
  absl::Status SendAhead(const WorkUnit& work);
  // Waits for the rows of `work`'s tables, and starts those of the next
  // contribution where rows may be read ahead.
  absl::StatusOr<std::span<const TableInput>> FetchRows(
      const WorkUnit& work, const TrainBatch& batch);
  // Waits until `variable` is where the network reads it.
  absl::Status Fetch(int variable);
  absl::Status PushNothing(const WorkUnit& work,
                           const std::optional<Want>& next);
  absl::Status BeginPush(const WorkUnit& work, float weight,
                         const std::optional<Want>& next);
  // Pushes the rows of the contribution that BeginPush began, if there are any.
  absl::Status PushRows();
  Want WantFor(const WorkUnit& work) const;
  // What to pull behind `work`; nullopt inside a sync step, whose contributions
  // share one version, and behind the last contribution.
  std::optional<Want> WantAfter(const WorkUnit& work) const;
  // Ends the contribution: waits for its receipts and reports it.
  absl::Status Finish(const WorkUnit& work, ContributionReport report);

  const Options options_;
  ParameterClient* const client_;  // of blocks
  ContributionPush push_;          // what BeginPush began
  // The batch of the contribution after the one that computes.
  std::optional<TrainBatch> ahead_;
  PhaseTimer timer_;       // of the contribution under way
  Histograms histograms_;  // of the same
};

}  // namespace weir

#endif  // WORKER_TRAIN_TRAIN_LOOP_H_
