// A ChiefRunner over real stores in this process, with workers that push ones.
//
// The optimizer is SGD with learning rate 1 and all gradients are ones. So
// every element ends at minus the number of contributions (sync: steps) that
// were applied to it, and one read shows whether any was lost, doubled or torn.
#ifndef TESTS_SERVER_CHIEF_CHIEF_CLUSTER_H_
#define TESTS_SERVER_CHIEF_CHIEF_CLUSTER_H_

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "common/job/layout.h"
#include "server/chief/chief_runner.h"
#include "server/ps/store/store.h"
#include "tests/support/in_process_transport.h"

namespace weir {

// Returns a resolved JobSpec of `steps` steps: async, or sync with `n_sync`
// contributions in each.
JobSpec OnesSpec(uint64_t steps, uint32_t n_sync = 0);
// Returns what a worker registers with.
RegisterRequest OnesRequest(const JobSpec& spec, int index, uint64_t process);

class ChiefCluster {
 public:
  class Worker;

  ChiefCluster(std::string workdir, JobSpec spec, int ps, int workers);
  ~ChiefCluster();

  // Starts a chief. The one before is destroyed without an end, as by a kill.
  absl::Status StartChief(bool resume = false);
  // Puts a new, empty process at ps `s`.
  void ReplacePs(int s);
  // Starts a worker thread for slot `w`. One that runs is left to be replaced.
  Worker& Join(int w, int delay_ms = 0);
  // Ends worker `w` after some blocks of its next contribution.
  void Kill(int w);
  absl::Status Wait(int seconds = 60);

  // Returns every value of the shards, as `checkpoint` has them.
  std::vector<float> ValuesOf(const std::string& checkpoint) const;
  std::vector<std::string> Checkpoints() const;

  ChiefRunner::Options options;
  InProcessTransport transport;
  std::vector<std::unique_ptr<Store>> stores;
  std::unique_ptr<ChiefRunner> chief;
  Mutex chief_mutex;  // of `chief`: workers lose it for a moment
  std::map<int, std::shared_ptr<Worker>> workers;
  std::vector<std::shared_ptr<Worker>> former;
};

class ChiefCluster::Worker : public HeartbeatSink,
                             public std::enable_shared_from_this<Worker> {
 public:
  Worker(ChiefCluster* cluster, int index, int delay_ms);
  ~Worker() override;

  void Run();
  void Send(const Command& command) override;
  void End(const absl::Status& status) override;

  std::thread thread;
  std::atomic<bool> kill{false};
  std::atomic<uint64_t> contributions{0};
  std::atomic<int> holds{0};
  absl::Status status() const;
  // True once it heard a Stop, or its stream ended for good.
  bool done() const;

 private:
  bool Register();
  void OpenStream();
  // Returns false if it was killed in the middle, or has to end.
  bool DoContribution(uint64_t sequence);
  Layout MakeLayout() const;
  void Beat(bool out_of_work);
  bool WaitForVersion(uint64_t version);

  ChiefCluster* const cluster_;
  const int index_;
  const int delay_ms_;
  RegisterRequest request_;
  Grant grant_;
  uint64_t next_ = 0;
  std::vector<std::unique_ptr<DataLink>> links_;
  std::vector<ContributionReport> reports_;

  mutable Mutex mutex_;
  uint64_t stream_ ABSL_GUARDED_BY(mutex_) = 0;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool lost_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // TESTS_SERVER_CHIEF_CHIEF_CLUSTER_H_
