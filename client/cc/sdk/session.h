// The SDK's client without its public face: it declares, joins, pulls and
// pushes.
//
// Place: client/cc/weir.h is a thin cover over it, so that its users see
// standard types only.
//
// Terms
//   joining  a worker takes its slot on every shard under the next generation.
//            From then on an earlier process of this worker can push no more,
//            and the marks say which push comes next. In a job with a chief,
//            the chief does all that, and holds pushes while a checkpoint is
//            taken.
//
// Threads: compatible.
// Errors: those of weir.h.
#ifndef CLIENT_CC_SDK_SESSION_H_
#define CLIENT_CC_SDK_SESSION_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/cc/job/chief_client.h"
#include "client/cc/job/chief_link.h"
#include "client/cc/job/shard_start.h"
#include "client/cc/job/worker_session.h"
#include "client/cc/sdk/step_phases.h"
#include "client/cc/sdk/tables.h"
#include "client/cc/transport/transport.h"
#include "client/cc/weir.h"
#include "common/base/clock.h"
#include "common/job/layout.h"
#include "common/metrics/host_usage.h"
#include "proto/job_spec.pb.h"
#include "proto/ps.pb.h"

namespace weir::sdk {

class Session {
 public:
  // What it speaks by: gRPC and shared memory, or what is given here.
  struct Wire {
    std::unique_ptr<Transport> transport;
    std::shared_ptr<ChiefLink> chief;  // null in a job without one
  };
  explicit Session(Options options, Wire wire = {});
  ~Session();

  absl::Status Connect();
  absl::Status Declare(const std::vector<Tensor>& tensors,
                       const std::vector<Table>& tables);
  // Whether Declare was OK, and neither Finish nor Shutdown came after it.
  // The calls from here to Finish REQUIRE it.
  bool declared() const { return worker_ != nullptr; }
  // Whether a Finish was cancelled: calling it again goes on with it.
  bool finishing() const { return finishing_; }
  absl::Status Pull();
  // Indexes of the named tensors. An empty list means all tensors.
  absl::StatusOr<std::vector<int>> Find(
      const std::vector<std::string>& names) const;
  absl::Status Begin(const PushOptions& push);
  absl::Status Ready(int tensor);
  absl::Status Ready(std::span<const std::pair<int, const float*>> gradients);
  absl::Status Rows(std::span<const RowGradients> gradients);
  absl::Status End();
  absl::Status Wait();
  bool HasValues(int tensor) const;
  absl::Status StartLookup(std::span<const RowsWanted> wanted, bool train);
  absl::Status WaitLookup();
  // Abandons the current lookup, if there is one.
  void GiveUpLookup();
  absl::Status Report(const Metrics& metrics);
  absl::Status Finish();
  absl::StatusOr<std::vector<ServerStatus>> Servers();
  absl::Status Shutdown();

  // Empty for an unknown name.
  std::span<float> Values(const std::string& name) const {
    return Part(&WorkerMemory::parameters, name);
  }
  std::span<float> Gradient(const std::string& name) const {
    return Part(&WorkerMemory::gradients, name);
  }
  // Keeps the memory of values and gradients alive.
  std::shared_ptr<const void> Buffers() const { return memory_; }
  uint64_t pushes() const { return pushes_before_ + sequence_; }

 private:
  enum class ContributionState { kNone, kBegun, kSent };
  // Of a call to a ps that does not wait for training.
  static constexpr std::chrono::milliseconds kCallTimeout{10000};

  // Makes what speaks to the ps and to the chief.
  absl::Status MakeWire();
  absl::Status BuildLayout(const std::vector<Tensor>& tensors,
                           const std::vector<Table>& tables);
  // When start_wait_seconds from now are over.
  int64_t StartDeadlineNs() const {
    return Clock::Real()->NowNs() +
           static_cast<int64_t>(options_.start_wait_seconds * 1e9);
  }
  // Makes a call that does no harm when it is made again: until it is answered,
  // or start_wait_seconds are over.
  absl::Status Repeated(const std::function<absl::Status()>& call) const;
  // Says Hello to shard `s`, again until it answers or the deadline is over; if
  // `active`, until it can be joined.
  absl::StatusOr<HelloReply> Hello(size_t s, int64_t deadline_ns, bool active);
  // The two ways of Declare, until this worker has its slot.
  absl::Status DeclareAlone(const std::vector<Tensor>& tensors);
  absl::Status DeclareWithChief(const std::vector<Tensor>& tensors);
  absl::Status MakeShards(const std::vector<Tensor>& tensors);
  absl::Status AssignValues(const Sender& sender,
                            const std::vector<Tensor>& tensors) const;
  // Checks that shard `s` holds the tensors and the mode of this client. Takes
  // the numbers of its optimizers for those of the declaration.
  absl::Status CheckDeclared(size_t s, const HelloReply& hello);
  absl::Status Join();
  absl::Status RetireSlot();
  std::vector<StartingShard> Shards() const;
  // OK, or why a call must wait no longer.
  absl::Status OnWait() const;
  // Retires the slot, then waits until the chief says that the job is done, or
  // has ended otherwise.
  absl::Status RetireAndWaitForEnd();
  // Waits while the chief holds pushes.
  absl::Status EnterPush();
  absl::Status CreateWorker();
  // Ends the clients of the shards.
  void ForgetWorker();
  absl::Status WaitPull();
  absl::Status CheckReady(int tensor) const;
  Want NextWant() const { return worker_->WantFor(sequence_, NextVersion()); }
  // In sync, the version of the step of contribution sequence_.
  std::optional<uint64_t> NextVersion() const;
  // Checks that `push` can be sent as contribution sequence_; returns the
  // learning rates of tables.
  absl::StatusOr<std::vector<TableRate>> CheckPush(
      const PushOptions& push) const;
  std::span<float> Part(std::shared_ptr<float> WorkerMemory::*flat,
                        const std::string& name) const;
  std::string NameOf(size_t s) const {
    return absl::StrCat("ps ", s, " (", options_.ps[s], ")");
  }

  const Options options_;
  const uint64_t process_;  // random; names this process to ps and chief
  Wire wire_;               // set by Connect
  std::vector<std::unique_ptr<ControlLink>> links_;
  Compression compression_;
  Declaration declaration_;
  Sender sender_;
  std::shared_ptr<WorkerMemory> memory_;   // after BuildLayout
  std::unique_ptr<HostMeter> host_meter_;  // null without a chief
  std::unique_ptr<ChiefClient> chief_;     // null without one
  std::unique_ptr<SessionTables> tables_;  // null without tables
  std::unique_ptr<WorkerSession> worker_;  // behind tables_: it writes there
  std::set<std::string> metric_names_;     // reported so far
  uint64_t pushes_before_ = 0;             // in earlier histories
  uint64_t base_version_ = 0;              // sync: before contribution 0
  uint64_t values_version_ = 0;            // sync: of the newest Pull
  uint64_t sequence_ = 0;                  // of the next contribution
  bool pulls_ = false;                     // the push under way does
  bool finishing_ = false;
  StepPhases phases_;
  ContributionState contribution_state_ = ContributionState::kNone;
};

}  // namespace weir::sdk

#endif  // CLIENT_CC_SDK_SESSION_H_
