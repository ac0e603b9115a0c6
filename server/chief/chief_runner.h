// Runs one job: JobState, with threads, files and calls around it.
//
// Place: chief_service.cc puts it behind gRPC; tests call it directly. All
// decisions are made on one thread, which never waits for a shard or a disk.
//
//   decisions  JobState, every 50 ms and after each event
//   files      checkpoints, train.jsonl, DONE
//   shard s    calls to shard s, one thread for each (shard_caller.h)
//
// Threads: safe. Callbacks run on the decision thread and must not block.
// Owns/borrows: borrows transport, files and clock.
#ifndef SERVER_CHIEF_CHIEF_RUNNER_H_
#define SERVER_CHIEF_CHIEF_RUNNER_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/transport/transport.h"
#include "common/base/mutex.h"
#include "common/io/files.h"
#include "common/threads/thread.h"
#include "proto/security/peer_identity.h"
#include "proto/tensorboard/board.h"
#include "server/chief/checkpoint/checkpoint_committer.h"
#include "server/chief/files/task_queue.h"
#include "server/chief/files/train_file.h"
#include "server/chief/job_state.h"
#include "server/chief/shard_caller.h"
#include "server/chief/start/workdir_claim.h"
#include "server/chief/state/capability.h"

namespace weir {

// The chief's end of one Heartbeat call.
class HeartbeatSink {
 public:
  virtual ~HeartbeatSink() = default;
  virtual void Send(const Command& command) = 0;
  virtual void End(const absl::Status& status) = 0;
};

class ChiefRunner {
 public:
  // What the work directory says (JobOptions) is filled in here.
  struct Options : JobOptions {
    // Absolute, or a URL of `files`; the same on every host.
    std::string workdir;
    bool allow_older = false;
    // Takes a store that lets two chiefs write over each other.
    bool allow_unguarded = false;
    std::string tensorboard;  // directory of its curves; "" for none
    Transport* transport = nullptr;
    ObjectStore* files = Files::Real();
    // How long to wait for a chief that is about to leave the work directory.
    std::chrono::milliseconds claim_wait{5000};

    absl::Status Validate() const;
  };

  // Reads what the work directory holds and starts.
  static absl::StatusOr<std::unique_ptr<ChiefRunner>> Create(Options options);
  // Stops deciding. Calls under way are left behind.
  ~ChiefRunner();

  // Blocks until the job is over; returns how it ended.
  absl::Status Wait();
  // The same, but gives up after `timeout`.
  std::optional<absl::Status> WaitFor(std::chrono::milliseconds timeout);
  // Writes a checkpoint and then ends the job.
  void RequestStop(const std::string& reason);

  // What peers ask for. Each `done` is called exactly once; RESOURCE_EXHAUSTED
  // when too many calls wait (kChiefInboxMax).
  void Register(const RegisterRequest& request,
                const std::function<void(absl::StatusOr<RegisterReply>)>& done);
  void GetStatus(const std::function<void(absl::StatusOr<ChiefStatus>)>& done);
  using SharedReport = std::shared_ptr<const JobReport>;
  void GetReport(const std::function<void(absl::StatusOr<SharedReport>)>& done);
  // Both again, for callers that may wait: they give up after `timeout`, with
  // DEADLINE_EXCEEDED.
  absl::StatusOr<SharedReport> WaitForReport(std::chrono::milliseconds timeout);
  absl::StatusOr<CurveReport> WaitForCurve(std::chrono::milliseconds timeout);
  // Opens a stream and returns its number. `sink` hears commands until the
  // stream is ended or lost.
  uint64_t OpenStream(std::shared_ptr<HeartbeatSink> sink);
  // Takes one message of a stream. `taken` is called when nothing of it waits
  // here any more; before that the stream must bring no other one.
  void OnProgress(uint64_t stream, const Progress& progress,
                  const std::function<void()>& taken);
  void OnStreamLost(uint64_t stream);
  // Sends every open stream what `make` makes for their number.
  // Errors: UNAVAILABLE, RESOURCE_EXHAUSTED as above; then nothing is sent.
  absl::Status SendToAll(const std::function<Command(size_t streams)>& make);
  // UNAUTHENTICATED if `caller` (unset in insecure mode: anybody) may not
  // register as this rank: it is that of another worker, and the request does
  // not bring the offer of the slot that the chief makes (Command.take_slot).
  absl::Status CheckRank(const std::optional<PeerIdentity>& caller,
                         const RegisterRequest& request) const;

 private:
  using Event = std::function<void(JobState*)>;
  // What other threads share with the decision thread. It outlives the runner
  // if a call does not come back.
  struct Inbox {
    Mutex mutex;
    CondVar changed;
    std::vector<Event> events ABSL_GUARDED_BY(mutex);
    bool stop ABSL_GUARDED_BY(mutex) = false;
    // Of train.jsonl, and not taken by the files thread yet.
    std::vector<std::string> train_lines ABSL_GUARDED_BY(mutex);
    std::optional<absl::Status> finished ABSL_GUARDED_BY(mutex);
  };

  // What the files thread works with. It outlives the runner, too.
  struct Disk {
    ObjectStore* files;
    std::string workdir;
    CheckpointCommitter committer;
    TrainFile train_file;
    Board board;
    // Is given back with the last task that may write.
    std::unique_ptr<WorkdirClaim> claim;
    std::string done_at_start;  // contents of DONE; "" without one
  };

  explicit ChiefRunner(Options options);
  absl::Status Start();
  // Makes this the work directory's chief, then tidies up after the last one.
  absl::Status TakeWorkdir(const std::string& checkpoints);
  std::string Secret() const;  // of the work directory
  // Removes DONE, which must not end what goes on; unless another chief has
  // written it since the start.
  static absl::Status RemoveOldDone(const Disk& disk);
  Board::Options BoardOptions() const;
  void MakeCallers(const std::shared_ptr<const InitialValues>& initial);
  // Reads what the work directory says of the job.
  absl::StatusOr<JobOptions> ReadWorkdir();
  // Returns false, and drops `event`, once the runner is being destroyed.
  static bool Post(const std::shared_ptr<Inbox>& inbox, Event event);
  // The same for what a peer asks for. UNAVAILABLE, or RESOURCE_EXHAUSTED while
  // the inbox is full: then `event` is dropped.
  absl::Status PostCall(Event event);
  void Loop();
  // Carries out what JobState asks for by now.
  void CarryOutAll();
  void CarryOut(Action action);
  void CarryOutFiles(Action action);
  // Writes the lines that are there by now; on the files thread.
  static void AppendTrainLines(Disk* disk, const std::shared_ptr<Inbox>& inbox);
  // Runs `task` on the files thread.
  void PostDisk(std::function<void(Disk*, const std::shared_ptr<Inbox>&)> task);
  // Looks now and then for the evaluator's line on `evaluated_`.
  void WatchEvaluator();

  const Options options_;
  const std::shared_ptr<Inbox> inbox_;
  std::string chief_secret_;    // constant after Start
  std::shared_ptr<Disk> disk_;  // used on the files thread once it runs
  // Used on the decision thread alone.
  std::unique_ptr<JobState> state_;
  std::map<uint64_t, std::shared_ptr<HeartbeatSink>> sinks_;
  SharedReport report_;  // the newest that was asked for
  int64_t report_ns_ = 0;
  std::string evaluated_;  // checkpoint that the evaluator is to report on
  int64_t evaluator_asked_ns_ = 0;
  bool looks_for_evaluator_ = false;  // the files thread does

  std::atomic<uint64_t> next_stream_{1};

  std::vector<std::unique_ptr<ShardCaller>> callers_;
  std::unique_ptr<TaskQueue> files_queue_;
  Thread loop_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_CHIEF_RUNNER_H_
