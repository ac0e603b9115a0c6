// The chief's decisions: what happens in a job, and in which order.
//
// Place: events in, actions out; chief_runner.cc is the shell that has the
// threads, the sockets and the files. This class keeps the phases (job_facts.h)
// and the workers' calls. What has a life of its own is a part:
//   JobSource         a job of a job file, or of programs of the SDK
//   StartSequence     until every shard holds the job
//   Absence           workers that are away or stand still
//   SlotRound         SetSlots, when workers come or retire
//   CheckpointKeeper  checkpoints and the holds for them
//   JobEnd            DONE, who must hear of the end, the ps
// An answer goes to the part that asked for it; TakeActions then lets all
// others go on from there.
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
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/chief.pb.h"
#include "proto/report.pb.h"
#include "server/chief/checkpoint/checkpoint_keeper.h"
#include "server/chief/start/start_sequence.h"
#include "server/chief/state/absence.h"
#include "server/chief/state/actions.h"
#include "server/chief/state/job_end.h"
#include "server/chief/state/job_facts.h"
#include "server/chief/state/slot_round.h"

namespace weir {

class JobState {
 public:
  using Options = JobOptions;

  explicit JobState(Options options);

  // Runs everything that the events so far made possible. Returns and forgets
  // what they ask for, in order.
  std::vector<Action> TakeActions();

  void Start();
  void OnTick();  // about every 50 ms
  void RequestStop(const std::string& reason);

  // Take the answers to what they asked for: Declare, Restore, Assign,
  // GetStatus and FindCheckpoint; Snapshot and the files of checkpoints;
  // Shutdown, DONE and the evaluator's line.
  StartSequence& start() { return start_; }
  CheckpointCycle& checkpoint() { return checkpoints_.cycle(); }
  JobEnd& end() { return end_; }

  void OnTrainLogCut() { facts_.cutting = false; }

  // Answers of the shards.
  void OnHello(int shard, const absl::StatusOr<HelloReply>& reply);
  void OnSlotsSet(int shard, const absl::Status& status);
  // `directory` is the one that the answered Snapshot call named.
  void OnWritten(int shard, const std::string& name,
                 const absl::StatusOr<ShardFile>& file);

  // Workers. `stream` names a Heartbeat call, from 1; an error ends it.
  absl::StatusOr<RegisterReply> OnRegister(const RegisterRequest& request);
  absl::Status OnProgress(uint64_t stream, const Progress& progress);
  void OnStreamLost(uint64_t stream);

  // A ps's answer to ReportCall.
  void OnReportStatus(int shard, const absl::StatusOr<PsStatus>& status);

  ChiefStatus status() const;
  JobReport Report() const;
  CurveReport CurveOfJob() const { return facts_.reporter.curve().Report(); }
  bool over() const { return facts_.phase == Phase::kOver; }

 private:
  using Phase = JobFacts::Phase;

  void Advance();
  void AdvanceStart();
  void AdvanceCheckpoints();
  void TickStart();
  void TickRunning();
  void Watch();
  void AskForReports();
  void FillWorkers(JobReport* report) const;
  void FillShards(JobReport* report) const;

  // The answer to worker 0 that is to assign the initial values first; nullopt
  // for everybody else.
  std::optional<RegisterReply> AskForValues(const RegisterRequest& request);
  // A stop before training: at once if there is nothing to save.
  void StopAtStart();
  absl::Status EnterTraining(uint64_t sample_count);
  // The same without a worker, where one is not waited for.
  void EnterTrainingAlone();
  // Of scripts: the program of a slot has said so; every slot is retired on the
  // shards.
  bool HasFinished(uint32_t slot) const;
  bool AllHaveFinished();
  Grant MakeGrant(int slot) const;
  // `repeated` of the first reports were counted before. With `heard` all of
  // the message was, and only its error counts.
  absl::Status TakeReports(int slot, const Progress& progress, int repeated,
                           bool heard);
  // Acknowledges `progress`. Returns true if its reports were taken before.
  bool Hear(uint64_t stream, const Progress& progress);
  // Sends the Hold, Release or Stop that a stream must hear when it opens.
  void Greet(uint64_t stream);

  JobFacts facts_;
  StartSequence start_;
  Absence absence_;
  SlotRound round_;
  CheckpointKeeper checkpoints_;
  JobEnd end_;
  uint32_t bad_count_ = 0;
  bool over_taken_ = false;      // Finish was taken
  bool length_guessed_ = false;  // by EnterTrainingAlone, until a worker comes

  int64_t report_asked_ns_ = 0;
  std::vector<bool> report_pending_;  // by shard
};

}  // namespace weir

#endif  // SERVER_CHIEF_JOB_STATE_H_
