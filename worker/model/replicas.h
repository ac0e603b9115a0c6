// Trains one model on several devices of a process: each computes a part of
// every batch, and one gradient leaves.
//
// Place: WorkerTask always trains through it. With one device it only calls
//   Network. See "Several devices in one worker" in docs/design_notes.md.
//
// Terms
//   replica  a Network on a device of its own. Replica 0 sends the gradients to
//            the host; the others keep theirs for it.
//   part     the rows of a replica, in the batch's order. Parts differ by at
//            most one row, and the first are the larger ones. With fewer rows
//            than devices the last devices have nothing to do.
//
// Invariants
//   I1. A trained variable's gradient is that of the mean loss over the whole
//       batch: the sum over r = 0, 1, ... of rows_r / rows times replica r's.
//       A buffer's sample is combined in the same way.
//   I2. On deterministic backends a step is a pure function of (parameters,
//       features, labels, rows, seed, number of devices); others may add in any
//       order. With one device it has Network's bits.
//   I3. A row meets only rows of its own part: batch norm takes its statistics
//       over a part. For dropout, replica r > 0 draws from MixKey(seed, r).
// Threads: compatible; hooks run on the calling thread, which drives every
//   device, layer by layer.
// Owns/borrows: owns the networks; borrows backends, parameters, gradients.
// Errors: those of Network, from any replica; all devices are idle then, and
//   nothing is sent ahead.
#ifndef WORKER_MODEL_REPLICAS_H_
#define WORKER_MODEL_REPLICAS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/layout.h"
#include "proto/job_spec.pb.h"
#include "worker/compute/backend.h"
#include "worker/model/network.h"
#include "worker/model/train_step.h"

namespace weir {

class Replicas {
 public:
  // `options` are those of one network that computes whole batches.
  // REQUIRES: `backends` has one or more, all of one kind, each of its own
  //   device; none is used by others meanwhile.
  // Errors: INVALID_ARGUMENT  the model reads tables, and there are several
  //   devices; also those of Network::Create.
  static absl::StatusOr<std::unique_ptr<Replicas>> Create(
      const Model& spec, const std::vector<int64_t>& sample_shape,
      const std::vector<Backend*>& backends, NetworkOptions options);
  ~Replicas();
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;

  // Returns replica 0, whose variables and widths are those of all.
  const Network& network() const { return *networks_[0]; }

  // See Network::Bind. REQUIRES: `gradients` is not null.
  absl::Status Bind(const Layout& layout, float* parameters, float* gradients);
  // See Network::StoreValues; on every device.
  absl::Status StoreValues(int64_t begin, HostPieces values);

  absl::StatusOr<StepResult> TrainStep(const Features& features,
                                       const float* labels, int64_t rows,
                                       uint64_t contribution_seed,
                                       const StepHooks& hooks,
                                       std::span<const TableInput> tables = {});

  // See Network::SendAhead.
  absl::Status SendAhead(const Features& features, int64_t rows);

  // See Network::Reset; on every device. A step that fails calls it itself.
  void Reset();

  // Busy time is the mean over the devices; bytes are summed.
  DeviceUsage Usage() const;

 private:
  explicit Replicas(std::vector<std::unique_ptr<Network>> networks);

  // On the first `count` >= 2 replicas.
  absl::StatusOr<StepResult> Step(size_t count, const Features& features,
                                  const float* labels, int64_t rows,
                                  uint64_t seed, const StepHooks& hooks);
  // How many replicas compute on a batch, and the rows of one of them.
  size_t CountOf(int64_t rows) const;
  static int64_t PartOf(int64_t rows, size_t count, size_t replica);
  absl::Status Begin(size_t count, Features features, const float* labels,
                     int64_t rows, uint64_t seed);
  absl::Status Forward(size_t count, const StepHooks& hooks);
  absl::Status Backward(size_t count, const StepHooks& hooks);
  // Adds the other replicas' gradients of a node to replica 0's.
  void Reduce(size_t count, size_t node);

  std::vector<std::unique_ptr<Network>> networks_;  // by replica
  std::vector<float> weights_;  // by replica: rows_r / rows of this step
  std::vector<Backend::PeerTerm> terms_;  // Reduce's; kept for its memory
};

}  // namespace weir

#endif  // WORKER_MODEL_REPLICAS_H_
