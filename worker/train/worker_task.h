// One worker, from its job to its end.
//
// Place: worker_main runs one; it makes the data set, the network, the line to
// the chief, the parameter client and the train loop, in this order, so that
// what is wrong with the job is said before anything waits.
//
// Threads: RequestStop may be called on any thread.
// Errors (Run): INVALID_ARGUMENT     the job does not fit its data or model.
//               FAILED_PRECONDITION  a ps or the chief is lost.
//               PERMISSION_DENIED    replaced by a newer process.
//               CANCELLED            RequestStop.
//               others               as data, network or chief say.
#ifndef WORKER_TRAIN_WORKER_TASK_H_
#define WORKER_TRAIN_WORKER_TASK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/job/chief_client.h"
#include "client/cc/parameters/parameter_client.h"
#include "client/cc/parameters/table_client.h"
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
    std::string chief_address;
    uint64_t cluster_fingerprint = 0;
    std::string data_dir;
    BackendOptions backend;  // which device, or devices
    Transport* transport = nullptr;
    int channels_per_peer = 1;  // see ParameterClient
    // See ChiefClient; may be null.
    std::function<bool()> job_is_done;
  };

  // Opens the data and builds the model; talks to nobody.
  static absl::StatusOr<std::unique_ptr<WorkerTask>> Create(Options options);
  ~WorkerTask();

  // Joins, trains, and returns when the chief says that the job is over (OK)
  // or something ended this worker.
  absl::Status Run();

  // Ends Run after the contribution in flight.
  void RequestStop(const std::string& reason);

 private:
  explicit WorkerTask(Options options) : options_(std::move(options)) {}
  absl::Status Build();
  // Run, in one slot.
  absl::Status RunInSlot();
  // A line to the chief for another slot than the one it had.
  absl::Status TakeSlot(int slot);
  absl::Status BuildLayout(const Grant& grant);
  absl::StatusOr<std::unique_ptr<ParameterClient>> MakeClient(
      const Grant& grant);
  absl::Status MakeTables(const Grant& grant);
  absl::StatusOr<std::unique_ptr<Batches>> MakeBatches(const Grant& grant);
  // What does not depend on a grant's work.
  TrainLoop::Options LoopOptions();
  absl::Status Train(const Grant& grant);
  void OpenNvml();
  void ReadDevice(Phases* phases) const;  // on the heartbeat's thread
  void LogDevice() const;

  const Options options_;
  std::unique_ptr<Dataset> dataset_;
  std::vector<std::unique_ptr<Backend>> backends_;  // one or more
  std::unique_ptr<Replicas> replicas_;
  std::vector<VariableSpec> variables_;  // with groups
  std::vector<int> frozen_;              // variables
  std::vector<EmbeddingTable> tables_;   // the job's, resolved
  std::unique_ptr<Nvml> nvml_;           // null: no GPU, or no NVML
  ChiefClient::Options chief_options_;
  // The main thread alone changes chief_.
  Mutex mutex_;
  std::unique_ptr<ChiefClient> chief_;
  std::optional<absl::Status> stop_ ABSL_GUARDED_BY(mutex_);  // RequestStop
  // From the grant on.
  std::unique_ptr<Layout> layout_;
  std::shared_ptr<float> parameters_;
  std::shared_ptr<float> gradients_;
  // train.prefetch: what the network computes from, while the next values
  // arrive in parameters_. Else empty.
  std::vector<float> computed_from_;
  // Null where the job has no tables.
  std::unique_ptr<TableClient> table_client_;
  std::unique_ptr<TableFeed> table_feed_;
};

}  // namespace weir

#endif  // WORKER_TRAIN_WORKER_TASK_H_
