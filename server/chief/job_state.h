// The chief's decisions: what happens in a job, and in which order.
//
// Place: events in, actions out; chief_runner.cc is the shell that has the
// threads, the sockets and the files. The methods are in job_state.cc and in
// the files job_state_*.cc beside it.
//
// A phase, and what ends it:
//   STARTING    every shard holds the job (start_sequence.h)
//   READY       the first worker said how many samples there are
//   TRAINING    every contribution is acknowledged by every shard
//   LAST        the last checkpoint is committed, and DONE is written
//   EVALUATING  the evaluator has written its line, or the wait is over
//   ENDING      the workers know of the end and are gone
//   SHUTDOWN    the ps took Shutdown, or the wait is over
//   OVER        nothing: it is the last one
//
// An SDK job (Options::sdk_job) has no JobSpec and no length: its TRAINING ends
// when every slot is retired, and there is no train.jsonl.
//
// Invariants
//   I1. A chief declares or restores the shards at most once; an ACTIVE shard
//       is never declared.
//   I2. No generation of a slot is granted to two processes.
//   I3. Finish is the last action and comes once.
//   I4. A job ends well only with a committed checkpoint of its last step. Once
//       it has that it always ends well: nothing that is lost later is needed.
//   I5. No worker hears that the job is done before DONE is written.
//   I6. A chief that another chief has replaced ends alone: it sends no
//       Shutdown, and its workers hear no Stop.
// Threads: compatible.
// Errors (of the job): see common/base/exit_code.h.
#ifndef SERVER_CHIEF_JOB_STATE_H_
#define SERVER_CHIEF_JOB_STATE_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/contribution_list.h"
#include "proto/checkpoint.pb.h"
#include "proto/chief.pb.h"
#include "server/chief/checkpoint/checkpoint_cycle.h"
#include "server/chief/checkpoint/checkpoint_schedule.h"
#include "server/chief/start/start_sequence.h"
#include "server/chief/state/actions.h"
#include "server/chief/state/job_options.h"
#include "server/chief/state/register_check.h"
#include "server/chief/state/roster.h"
#include "server/chief/state/shard_tracker.h"
#include "server/chief/state/train_log.h"

namespace weir {

class JobState {
 public:
  // The length of an SDK job until all of its workers are done.
  static constexpr uint64_t kEndless = UINT64_MAX;

  using Options = JobOptions;

  explicit JobState(Options options);

  // Returns and forgets what the events so far ask for, in order.
  std::vector<Action> TakeActions();

  void Start();
  void OnTick();  // about every 50 ms
  void RequestStop(const std::string& reason);

  // Answers of the shards.
  void OnHello(int shard, const absl::StatusOr<HelloReply>& reply);
  void OnStatus(int shard, const absl::StatusOr<PsStatus>& reply);
  void OnDeclared(int shard, const absl::StatusOr<DeclareReply>& reply);
  void OnAssigned(int shard, const absl::Status& status);
  void OnSlotsSet(int shard, const absl::Status& status);
  // `directory` is the one that the answered Snapshot call named.
  void OnFrozen(int shard, const std::string& directory,
                const SnapshotReply& reply);
  void OnWritten(int shard, const std::string& directory,
                 const absl::StatusOr<ShardFile>& file);
  void OnShutdown(int shard);

  // Workers. `stream` names a Heartbeat call, from 1; an error ends it.
  absl::StatusOr<RegisterReply> OnRegister(const RegisterRequest& request);
  absl::Status OnProgress(uint64_t stream, const Progress& progress);
  void OnStreamLost(uint64_t stream);

  // Files.
  void OnCheckpointFound(
      const absl::StatusOr<std::optional<FoundCheckpoint>>& found);
  void OnPrepared(const absl::StatusOr<std::string>& name);
  void OnCommitted(const absl::Status& status);
  void OnDoneWritten(const absl::Status& status);
  void OnEvaluated();

  ChiefStatus status() const;
  bool over() const { return phase_ == Phase::kOver; }

 private:
  enum class Phase {
    kStarting,
    kReady,
    kTraining,
    kLast,
    kEvaluating,
    kEnding,
    kShutdown,
    kOver,
  };

  bool Running() const {
    return phase_ >= Phase::kReady && phase_ <= Phase::kEvaluating;
  }
  // Runs everything that the last event made possible.
  void Advance();
  void AdvanceStart();
  void AdvanceProgress();
  void AdvanceRound();
  void AdvanceCheckpoint();
  void AdvanceEnd();
  void TickStart();
  void TickRunning();
  void WatchProgress();
  // Logs which worker or shard keeps the others waiting.
  void WatchEach();

  // The answer to worker 0 of an SDK job that is to assign the initial values
  // first; nullopt for everybody else.
  std::optional<RegisterReply> AskForValues(const RegisterRequest& request);
  TrainLog::Options TrainLogOptions() const;
  absl::Status EnterTraining(uint64_t sample_count);
  // Computes how many contributions and steps the job has.
  absl::Status ReadLength(uint64_t sample_count);
  Grant MakeGrant(int slot) const;
  // `repeated` of the first reports were counted before. With `heard` all of
  // the message was, and only its error counts.
  absl::Status TakeReports(int slot, const Progress& progress, int repeated,
                           bool heard);
  // Acknowledges `progress`. Returns true if its reports were taken before.
  bool Hear(uint64_t stream, const Progress& progress);
  // Sends the Hold, Release or Stop that a stream must hear when it opens.
  void Greet(uint64_t stream);
  void Broadcast(const Command& command);

  void BeginCheckpoint();
  // Reads fresh marks after a hold. Returns false if they ended the stop.
  bool CheckMarks();
  // Tells the workers to hold or to go on, as the checkpoint under way wants.
  void HoldOrRelease();
  // The step at which a checkpoint is due, if one is.
  std::optional<uint64_t> DueCheckpoint();
  bool WaitsForTornWorker();
  // The first slot whose worker is away and left a contribution torn.
  std::optional<int> TornAndAway() const;
  // In a stop: asks a worker that lives to take `slot`, whose worker ended
  // inside a contribution. Returns true while that worker, one that was asked
  // before, or the slot's own may yet come, and false if nobody is left to ask.
  bool AskToTake(int slot);
  // "; worker 1 (host) ended inside contribution 7 ...", or "" if none did.
  std::string DescribeTorn() const;
  // True if a worker that has work left is not connected.
  bool SomebodyIsAway() const;
  // Sync: true if no version can come before somebody joins.
  bool StandsStill() const;
  // True while a checkpoint lets nobody work until it is frozen.
  bool KeepsWorkersWaiting();
  // Returns how long a hold waits for workers, in seconds.
  double HoldWait() const;
  // Sync: gives up a checkpoint whose version will not come, or not in time.
  void DropHopelessVersion();
  void OnPassed();
  void OnOutcome(const CheckpointCycle::Outcome& outcome);
  // Plans another try after a checkpoint that the job needs failed.
  void RetryNeeded(const absl::Status& status);
  // Logs what a slow checkpoint waits for.
  void SaySlowCheckpoint();
  void OnTorn();
  absl::Status CommitCycle();
  // Goes on to the end: the last checkpoint, or that of a stop, is committed.
  void FinishCheckpoints();

  // Writes the lines of train.jsonl up to `step`.
  void LogEnd(uint64_t step);
  // Does the same for the last step, once every worker's reports are here.
  void LogLast();
  void WriteTheDone();
  bool WaitsForEvaluator() const {
    return options_.evaluator_expected && options_.spec.has_evaluation();
  }
  // Ends the job with `status`: the workers first, then the ps.
  void End(absl::Status status, bool shutdown_ps);
  // Ends the job with an error, unless I4 or I6 says otherwise.
  void Fail(const absl::Status& status);
  // The answer to a worker that comes when the job is over, or when that
  // worker's part of it is.
  absl::StatusOr<RegisterReply> AnswerLate(const RegisterRequest& request,
                                           const absl::Status& end);
  // True if every worker heard of the end and left, or need not be waited for.
  bool WorkersAreGone() const;
  // I6: ends this chief alone, since a shard refused it or is no longer in its
  // history.
  void GiveWay(const absl::Status& why);
  absl::Status Superseded() const;

  void AskHello(int shard);
  std::vector<uint64_t> AskAll();
  bool AllFresh(const std::vector<uint64_t>& tickets) const;
  Sender ChiefSender() const;
  std::string WorkerName(int slot) const;
  bool sync() const { return per_step_ > 0; }
  // Sync: contributions of `slot` in each step, the m < n with m mod W = slot.
  uint64_t ContributionsPerStep(int slot) const;
  // Contributions of `slot` in this history.
  uint64_t CountOfSlot(int slot) const;
  // AdvanceProgress of an SDK job.
  void AdvanceSdkProgress();
  // SDK job: what `slot` pushed in earlier histories.
  uint64_t PushesBefore(int slot) const;
  // True if `slot` has nothing more to do.
  bool Done(int slot) const;
  bool Complete() const {
    return step_ == step_count_ && (step_count_ > 0 || options_.sdk_job);
  }
  // True if the last checkpoint is committed.
  bool Finished() const {
    return phase_ >= Phase::kLast && Complete() &&
           checkpoint_step_ == step_count_;
  }
  double SecondsSince(int64_t then_ns) const;
  // Returns true once in `period_s` seconds for each `what`.
  bool TimeToSay(const std::string& what, double period_s);
  void Say(std::string text, bool warning = false);

  const Options options_;
  const int64_t lost_after_ns_;
  std::vector<Action> actions_;
  Phase phase_ = Phase::kStarting;
  int64_t phase_begin_ns_ = 0;
  int64_t now_ns_ = 0;  // of this event

  ShardTracker tracker_;
  StartSequence start_;
  RegisterCheck register_check_;
  Roster roster_;
  CheckpointCycle cycle_;
  std::optional<CheckpointSchedule> schedule_;
  std::optional<TrainLog> train_log_;

  // The job's length; from the first worker or the shards.
  uint64_t total_ = 0;  // contributions
  uint32_t per_step_ = 0;
  ContributionList list_;

  uint64_t step_ = 0;
  uint64_t step_count_ = 0;
  uint64_t contributions_done_ = 0;
  int64_t progress_ns_ = 0;  // when there was progress last
  int64_t moved_ns_ = 0;     // when a worker last told of more bytes
  int64_t reached_ns_ = 0;   // when a contribution was last acknowledged
  // By slot: the contribution that it is at, and since when.
  std::vector<std::pair<uint64_t, int64_t>> seen_;
  uint32_t bad_count_ = 0;

  // A slot round under way.
  std::vector<bool> slots_set_;
  std::vector<uint64_t> round_tickets_;

  // Checkpoints.
  std::vector<uint64_t> marks_tickets_;
  bool hold_sent_ = false;
  int64_t torn_since_ns_ = 0;            // 0: not torn
  int64_t take_ns_ = 0;                  // when a worker was asked to take one
  std::set<uint64_t> asked_to_take_;     // streams
  int64_t retry_ns_ = 0;                 // not before
  int tries_failed_ = 0;                 // in a row
  std::optional<uint64_t> passed_step_;  // the newest that was refused
  std::string checkpoint_;               // newest committed
  std::optional<uint64_t> checkpoint_step_;

  bool last_logged_ = false;
  bool done_asked_ = false;  // DONE is being written
  bool stop_requested_ = false;
  std::string stop_reason_;
  int64_t stop_ns_ = 0;
  bool shutdown_ps_ = false;
  bool superseded_ = false;
  std::vector<bool> shut_down_;
  absl::Status final_status_;
  std::vector<std::pair<std::string, int64_t>> said_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_JOB_STATE_H_
