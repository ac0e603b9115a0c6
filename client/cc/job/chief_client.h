// The worker's line to the chief: it joins the job, reports progress and obeys
// commands.
//
// Place: worker_task and the SDK's session register with it; the train loop
// sees it as JobControl. One thread keeps a Heartbeat stream open: progress
// goes up every 500 ms, and at once when something changes; commands come down.
//
// Invariants
//   I1. A chief that is away does not stop training. After `lost_after` without
//       one the worker ends.
//   I2. A restarted chief must grant the same slot, generation and history
//       again; another grant ends the worker.
//   I3. A report goes out with the first message after it that leaves. What the
//       chief has not acknowledged goes out again on the next stream, and the
//       chief counts it once (progress_outbox.h).
//   I4. A job that is done ends every worker well: the chief says so when the
//       worker registers, or the file DONE does while no chief answers.
// Threads: safe.
// Errors (Register, stop_status):
//   FAILED_PRECONDITION  the chief is away for too long, or grants another
//                        history, or says that a shard is lost.
//   PERMISSION_DENIED    a newer process has this slot.
//   INVALID_ARGUMENT     another cluster, JobSpec or variable list.
//   ALREADY_EXISTS       the job has other tensors or another mode (SDK).
#ifndef CLIENT_CC_JOB_CHIEF_CLIENT_H_
#define CLIENT_CC_JOB_CHIEF_CLIENT_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/job/chief_link.h"
#include "client/cc/job/job_control.h"
#include "client/cc/job/progress_outbox.h"
#include "client/cc/job/trace_sender.h"
#include "client/cc/parameters/contribution.h"
#include "common/base/mutex.h"
#include "common/metrics/host_usage.h"
#include "common/threads/thread.h"
#include "proto/chief.pb.h"

namespace weir {

// Another worker's slot, which the chief gives to this one.
struct SlotOffer {
  int slot = 0;
  // RegisterRequest.offer_*; zeros for the worker's own slot.
  uint64_t high = 0;
  uint64_t low = 0;
};

class ChiefClient : public JobControl {
 public:
  struct Options {
    std::shared_ptr<ChiefLink> link;
    RegisterRequest request;  // held_*: of a grant that a shard refused
    // How long the worker goes on without a word from the chief. Longer values
    // survive longer restarts, and find out later that no chief comes.
    std::chrono::milliseconds lost_after{60000};
    std::chrono::milliseconds progress_every{500};
    // How long one Register call may take.
    std::chrono::milliseconds register_timeout{10000};
    // Adds figures that cost more than reading a clock. The heartbeat calls it,
    // at most once every `read_device_every`. May be null.
    std::function<void(Phases*)> read_device;
    std::chrono::milliseconds read_device_every{1000};
    // Of this process, for Progress.load; borrowed, may be null.
    const HostMeter* host = nullptr;
    // Says whether the job's directory has DONE (JobIsDone). Called while the
    // chief is away. May be null.
    std::function<bool()> job_is_done;

    absl::Status Validate() const;
  };

  static absl::StatusOr<std::unique_ptr<ChiefClient>> Create(Options options);
  ~ChiefClient() override;

  // The calls of a program of the SDK while it registers. Either may be null.
  struct Joining {
    // Assigns the initial values as this sender.
    std::function<absl::Status(const Sender&)> assign;
    // Called between calls; an error ends Register.
    std::function<absl::Status()> on_wait;
  };

  // Repeats Register until the chief grants or refuses, or RequestStop is
  // called. If it returns an error while stopping() is true, the job is over,
  // and stop_status says how.
  absl::StatusOr<Grant> Register(const Joining& joining = {});

  // Opens the Heartbeat stream. `on_stop` is called once, when the worker is to
  // stop, since the loop may be waiting elsewhere. `counters`, if any, is
  // called for Progress.bytes_moved and load. Both are called with a lock held.
  // REQUIRES: Register returned `grant`.
  void Start(const Grant& grant, std::function<void()> on_stop,
             std::function<ClientCounters()> counters = nullptr);
  // Replaces Start's `counters`.
  void SetCounters(std::function<ClientCounters()> counters);
  // From now on neither of Start's callbacks is called.
  void ForgetCallbacks();

  bool EnterContribution() override;
  // EnterContribution that gives up after `timeout` and then returns nullopt.
  std::optional<bool> EnterContributionWithin(
      std::chrono::milliseconds timeout);
  void LeaveContribution(uint64_t next_sequence,
                         const ContributionReport& report,
                         const ContributionResult& result) override;
  // The same without a report, for a program of the SDK: what it has to say of
  // its losses comes by AddMetrics.
  void LeaveContribution(uint64_t next_sequence,
                         const ContributionResult& result);
  void AddPhases(const Phases& phases) override;
  void AddHistograms(ContributionHistograms histograms) override;
  // Tells what a program of the SDK reports.
  void AddMetrics(const MetricSums& metrics);
  void OutOfWork() override;
  // OutOfWork that gives up after `timeout`, and then returns false.
  bool OutOfWorkWithin(std::chrono::milliseconds timeout);

  // Stops this worker from inside, for example after a signal. The contribution
  // in flight is finished, if that takes at most 10 s. The first reason stays.
  void RequestStop(const absl::Status& why);
  // The slot that the chief gave this worker in place of its own, if that is
  // why stopping() is true.
  std::optional<SlotOffer> slot_to_take() const;
  // True once the worker is to stop. Then stop_status says why; OK means that
  // the job is done.
  bool stopping() const;
  absl::Status stop_status() const;

  // Sends what is still to be reported, and `error` unless OK; closes the
  // stream. Waits at most 2 s.
  void Close(const absl::Status& error);

 private:
  explicit ChiefClient(Options options);

  static absl::Status StatusOf(const weir::Stop& stop);
  void Run();
  // Runs one stream from its opening to its end, and returns why it ended.
  absl::Status RunStream();
  void WriteProgress(HeartbeatStream* stream);
  void OnCommand(const Command& command);
  absl::Status CallRegister(const RegisterRequest& request,
                            RegisterReply* reply);
  // Register calls until a grant; `held` names the grant to keep, or null.
  absl::StatusOr<Grant> RegisterUntilGranted(const Grant* held,
                                             const Joining& joining);
  void Leave(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Carries out RequestStop once no contribution is in flight, or it has taken
  // too long.
  void StopWhenFree() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Stop(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Looks for DONE. The time that it takes, at a place that hardly answers,
  // tells nothing of the chief, so `*heard_ns` moves on by it.
  bool JobIsDone(int64_t* heard_ns) const;
  // Sleeps before the next Register call. An error if the worker is to stop.
  absl::Status RestUnlessStopping(std::chrono::milliseconds pause);
  // Stop for a worker that must not register any longer; returns CANCELLED.
  absl::Status StopRegistering(const absl::Status& why);
  void ReadDevice(Progress* progress);
  void AddLoad(Progress* progress) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The next message; dirty_ stays true while more is left to send.
  Progress TakeProgress() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddContribution(uint64_t next_sequence, const ContributionResult& result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  TraceSender trace_sender_;    // used by the thread that reads commands
  Grant grant_;                 // constant after Start
  int64_t device_read_ns_ = 0;  // the heartbeat's thread alone

  mutable Mutex mutex_;
  std::function<void()> on_stop_ ABSL_GUARDED_BY(mutex_);
  std::function<ClientCounters()> counters_ ABSL_GUARDED_BY(mutex_);
  int64_t load_ns_ ABSL_GUARDED_BY(mutex_) = 0;  // when load was last told
  CondVar changed_;
  bool hold_ ABSL_GUARDED_BY(mutex_) = false;
  bool in_flight_ ABSL_GUARDED_BY(mutex_) = false;
  bool out_of_work_ ABSL_GUARDED_BY(mutex_) = false;
  bool dirty_ ABSL_GUARDED_BY(mutex_) = false;  // report at once
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;  // the last word is out
  bool stream_ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> leave_ ABSL_GUARDED_BY(mutex_);  // RequestStop
  int64_t leave_ns_ ABSL_GUARDED_BY(mutex_) = 0;               // not after
  std::optional<SlotOffer> slot_to_take_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> stop_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  ProgressOutbox outbox_ ABSL_GUARDED_BY(mutex_);
  HeartbeatStream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Thread thread_;
};

}  // namespace weir

#endif  // CLIENT_CC_JOB_CHIEF_CLIENT_H_
