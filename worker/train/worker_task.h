// Runs one worker, from its job file to the end of the job.
//
// Place: worker_main runs one. It makes the data set, the network, the
// connection to the chief, the parameter client and the train loop, in this
// order, so that a fault of the job is reported before anything waits.
//
// Threads: RequestStop and Ready may be called on any thread.
// Errors (Run): INVALID_ARGUMENT     the job does not fit its data or model.
//               FAILED_PRECONDITION  a ps or the chief is lost.
//               PERMISSION_DENIED    replaced by a newer process.
//               CANCELLED            RequestStop.
//               others               those of the data set, the network and
//                                    the chief.
#ifndef WORKER_TRAIN_WORKER_TASK_H_
#define WORKER_TRAIN_WORKER_TASK_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/job/chief_client.h"
#include "client/cc/job/chief_link.h"
#include "client/cc/job/worker_session.h"
#include "client/cc/transport/transport.h"
#include "common/base/mutex.h"
#include "common/job/layout.h"
#include "proto/job_spec.pb.h"
#include "worker/compute/backend.h"
#include "worker/compute/factory.h"
#include "worker/compute/nvml.h"
#include "worker/data/batches.h"
#include "worker/data/formats/dataset.h"
#include "worker/model/replicas.h"
#include "worker/train/job_meter.h"
#include "worker/train/table_feed.h"
#include "worker/train/train_loop.h"
#include "worker/train/work_list.h"

namespace weir {

class WorkerTask {
 public:
  struct Options {
    JobSpec spec;  // resolved
    int index = 0;
    uint64_t process = 0;  // random
    std::string host;
    std::shared_ptr<ChiefLink> chief;
    uint64_t cluster_fingerprint = 0;
    std::string data_dir;
    BackendOptions backend;  // which device, or devices
    Transport* transport = nullptr;
    int channels_per_peer = 0;              // see ParameterClient
    const HostMeter* host_meter = nullptr;  // see ChiefClient; may be null
    // Answers whether DONE says that the job is over, while no chief answers;
    // see ChiefClient. May be null.
    std::function<bool()> job_is_done;
  };

  // Opens the data and builds the model; talks to nobody.
  static absl::StatusOr<std::unique_ptr<WorkerTask>> Create(Options options);
  ~WorkerTask();

  // Registers and trains. Returns OK when the chief says that the job is over,
  // else the error that ended this worker.
  absl::Status Run();

  // OK while it has a slot. UNAVAILABLE: it waits for one. On any thread.
  absl::Status Ready() const;
  // What it counts. May be called on any thread.
  void AddMetrics(MetricPage* page) const { meter_.AddMetrics(page); }

  // Ends Run after the contribution in flight.
  void RequestStop(const std::string& reason);

 private:
  explicit WorkerTask(Options options) : options_(std::move(options)) {}
  absl::Status Build();
  // Registers and trains in the slot that chief_ asks for.
  absl::Status RunInSlot();
  // The slot to go on in when RunInSlot has ended with `status`, if any.
  std::optional<SlotOffer> NextSlot(const absl::Status& status);
  // Replaces chief_ by a connection that asks for `slot`.
  absl::Status TakeSlot(const SlotOffer& slot);
  absl::Status BuildLayout(const Grant& grant);
  absl::StatusOr<std::unique_ptr<WorkerSession>> MakeSession(
      const Grant& grant);
  absl::StatusOr<std::unique_ptr<Batches>> MakeBatches(const Grant& grant);
  // The loop's options but those that Train makes for one grant.
  TrainLoop::Options LoopOptions();
  absl::Status Train(const Grant& grant);
  void OpenNvml();
  // Adds NVML's figures. Called on the heartbeat's thread.
  void ReadDevice(Phases* phases) const;
  void LogDevice() const;

  const Options options_;
  std::unique_ptr<Dataset> dataset_;
  std::vector<std::unique_ptr<Backend>> backends_;  // one or more
  std::unique_ptr<Replicas> replicas_;
  std::vector<VariableSpec> variables_;  // the model's, with their groups
  std::vector<int> frozen_;              // variables that are never pushed
  std::vector<EmbeddingTable> tables_;   // the job's, resolved
  std::unique_ptr<Nvml> nvml_;           // null without a GPU or NVML
  ChiefClient::Options chief_options_;
  std::atomic<bool> has_slot_{false};
  // Whether values go to the devices without a stay in host memory.
  bool values_on_device_ = false;
  Sender held_;                 // of the newest grant
  bool shard_said_ = false;     // how the last slot ended, not the chief
  bool asked_for_own_ = false;  // see NextSlot
  JobMeter meter_;              // of all grants
  // Protects stop_ and the pointer chief_. Only the main thread changes chief_,
  // under the lock, so it may read it without.
  Mutex mutex_;
  std::unique_ptr<ChiefClient> chief_;
  std::optional<absl::Status> stop_ ABSL_GUARDED_BY(mutex_);  // RequestStop
  // Made at the first grant; another slot of the job uses them again.
  std::shared_ptr<WorkerMemory> memory_;
  // With train.prefetch the network computes from this copy, while the next
  // values arrive in memory_. Empty without.
  std::vector<float> computed_from_;
};

}  // namespace weir

#endif  // WORKER_TRAIN_WORKER_TASK_H_
