// The end of a job: the last lines of train.jsonl, DONE, who must hear that the
// job is over, and how an error or a stop ends it.
//
// Place: a part of JobState, from the last checkpoint on. A chief that finds
// its job done begins here: it tells every task that asks, since the chief
// before may have died before every task knew, or somebody started all tasks
// once more. See "The end of a job" in docs/design_notes.md.
//
// Invariants
//   I1. Finish is the last action and comes once.
//   I2. Once the last checkpoint is committed the job always ends well: nothing
//       that is lost later is needed.
//   I3. No worker hears that the job is done before DONE is written.
//   I4. A chief that another chief has replaced ends alone: it sends no
//       Shutdown, and its workers hear no Stop.
//   I5. A ps that another job has is not ended.
//   I6. When the job is done every ps is told, also one that was lost and comes
//       back empty: it would wait without end for a chief that is gone. But not
//       when DONE is gone: then another chief goes on with the job, and an
//       empty ps was started for it. Of a job that was done before none is
//       ended then.
//   I7. After a good end the chief goes on to answer for two seconds after the
//       last worker that registered: a lost answer is asked for again.
// Threads: compatible.
// Owns/borrows: borrows the facts.
#ifndef SERVER_CHIEF_STATE_JOB_END_H_
#define SERVER_CHIEF_STATE_JOB_END_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/chief/state/job_facts.h"

namespace weir {

class JobEnd {
 public:
  explicit JobEnd(JobFacts* facts) : facts_(*facts) {}

  // Ends the job with `status`: the workers first, then the ps.
  void Begin(absl::Status status, bool shutdown_ps);
  // Ends the job with an error, unless I2 or I4 says otherwise.
  void Fail(const absl::Status& status);
  // Ends a start that found a shard lost and nothing to restore: the ps that
  // still hold a shard are told to end, so that all are started again, empty.
  void BeginAnew(const absl::Status& status);
  // Begins the end of a job that an earlier chief has finished.
  void BeginDone(const std::string& job);
  // Nobody is waited for any more who need not be.
  void OnStop();

  // The job goes on: it is not done any more.
  void OnTraining();
  // LAST: writes the end of the curve, once every worker's reports are here.
  void LogLast();
  // LAST: the last checkpoint is committed.
  void WriteDone();
  void OnDoneWritten(const absl::Status& status);
  void OnEvaluated();
  // NOT_FOUND: DONE is gone.
  void OnLooked(const absl::Status& there);
  void OnShutdown(int shard, const absl::Status& status);

  // About every 50 ms.
  void Tick();
  // Runs what is possible now, from EVALUATING on.
  void Advance();

  // The answer to a worker that comes when the job is over, or when that
  // worker's part of it is.
  RegisterReply AnswerLate(const RegisterRequest& request,
                           const absl::Status& end);
  Command StopCommand() const;
  const absl::Status& status() const { return status_; }
  // BeginDone was called.
  bool done_before() const { return done_job_.has_value(); }
  // I4: another chief has the job.
  bool superseded() const { return superseded_; }
  absl::Status Superseded() const;

 private:
  bool WaitsForEvaluator() const;
  // True if every worker heard of the end and left, or need not be waited for.
  bool WorkersAreGone() const;
  // Whether a worker that was answered may not have heard it (I7).
  bool MayBeAskedAgain() const;
  // Whether a phase has waited long enough that waits for `seconds` in a job of
  // this chief; longer while it looks for DONE.
  bool TimeIsUp(double seconds) const;
  void GiveWay(const absl::Status& why);
  void ShutDown(int shard, const Sender& sender);
  // Says of what a shard holds, as it has told itself.
  Sender SenderFor(int shard) const;
  // Whether every ps is asked until it has taken Shutdown (I6).
  bool SeeksPs() const;
  // Whether what a ps holds is of the job that is done.
  bool IsOurs(const HelloReply& hello) const;
  // Whether a ps has answered since it was asked, and is to be ended or left.
  bool HasAnswered(int shard) const;
  // Whether it is ended only where DONE is still there (I6).
  bool NeedsDone(const HelloReply& hello) const {
    return hello.state() == EMPTY || done_before();
  }
  // Ends each ps that has answered since it was asked; those that need DONE
  // only if it was seen after their answer, or the place says nothing.
  void ShutDownThoseThatAnswer(bool done_seen);
  void Finish();

  JobFacts& facts_;
  absl::Status status_;
  bool last_logged_ = false;
  bool done_asked_ = false;    // DONE is being written
  int64_t retry_ns_ = 0;       // DONE is not written again before
  bool look_asked_ = false;    // LookForDone is under way
  int64_t look_ns_ = 0;        // not again before
  int64_t look_since_ns_ = 0;  // an empty ps waits for its answer; 0: none
  int64_t look_until_ns_ = 0;  // the end waits for it, and for that ps
  bool shutdown_ps_ = false;
  bool anew_ = false;  // BeginAnew
  bool superseded_ = false;
  std::optional<std::string> done_job_;  // of a job that was done before
  int64_t begun_ns_ = 0;                 // its end
  int64_t answered_ns_ = 0;              // the last AnswerLate; 0: none
  // By shard.
  std::vector<uint64_t> hello_ticket_;  // that it is asked by; 0: none
  std::vector<bool> asked_;             // Shutdown is under way
  std::vector<bool> shut_down_;         // it need not be waited for
};

}  // namespace weir

#endif  // SERVER_CHIEF_STATE_JOB_END_H_
