// What is known of a job now, and what is asked for.
//
// Place: JobState and its parts (absence.h, checkpoint_keeper.h, job_end.h)
// share one. Each part changes only what its comment names; the phases are
// JobState's and JobEnd's.
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
// Threads: compatible.
#ifndef SERVER_CHIEF_STATE_JOB_FACTS_H_
#define SERVER_CHIEF_STATE_JOB_FACTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/chief/report/reporter.h"
#include "server/chief/state/actions.h"
#include "server/chief/state/capability.h"
#include "server/chief/state/job_options.h"
#include "server/chief/state/job_source.h"
#include "server/chief/state/roster.h"
#include "server/chief/state/shard_tracker.h"
#include "server/chief/state/train_log.h"

namespace weir {

struct JobFacts {
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

  explicit JobFacts(JobOptions given);

  void Enter(Phase next);
  bool Running() const {
    return phase >= Phase::kReady && phase <= Phase::kEvaluating;
  }
  int64_t now_ns() const { return options.clock->NowNs(); }
  double SecondsSince(int64_t then_ns) const;
  double SecondsInPhase() const { return SecondsSince(phase_begin_ns); }

  void Do(Action action) { actions.push_back(std::move(action)); }
  // Writes a line of the log, made of its parts as by StrCat.
  template <typename... Parts>
  void Say(const Parts&... parts) {
    Log(/*warning=*/false, absl::StrCat(parts...));
  }
  template <typename... Parts>
  void Warn(const Parts&... parts) {
    Log(/*warning=*/true, absl::StrCat(parts...));
  }
  void Log(bool warning, std::string text);
  // Appends a line to the curve: the file, and what the report shows.
  void AddLine(std::string line);
  void AddToCurve(const TrainLine& line);
  // Returns true once in `period_s` seconds for each `what`, but not at first:
  // what has just begun is not worth a line yet.
  bool TimeToSay(const std::string& what, double period_s);
  void Broadcast(const Command& command);
  std::string WorkerName(int slot) const;  // "worker 1 (host)"
  Sender ChiefSender() const;              // REQUIRES: the shards hold the job
  // What a grant of this history comes with.
  Capability CapabilityFor(uint32_t slot, uint32_t generation) const {
    return CapabilityOf(options.chief_secret, job->held().history(), slot,
                        generation);
  }

  uint64_t AskHello(int shard);  // returns its ticket
  // Says Hello to shard `shard` if it was not asked for `every_ns`.
  void AskHelloIfDue(int shard, int64_t every_ns);
  std::vector<uint64_t> AskAll();  // returns the tickets
  bool AllFresh(const std::vector<uint64_t>& tickets) const;

  // Counts what workers and shards said since it was called last.
  void Count();
  bool Done(int slot) const;  // nothing more to do
  bool Complete() const {
    return step == step_count && phase >= Phase::kTraining;
  }
  // True if the last checkpoint is committed.
  bool Finished() const {
    return phase >= Phase::kLast && Complete() && checkpoint_step == step_count;
  }

  // Writes a worker's histograms at their step. REQUIRES: train_log.
  void AddHistograms(const Progress& progress);
  // Writes the lines of train.jsonl up to `step`, the last of which is due.
  void EndCurve(uint64_t last_step);

  const JobOptions options;
  const std::unique_ptr<JobSource> job;
  const int64_t lost_after_ns;
  std::vector<Action> actions;
  Phase phase = Phase::kStarting;
  int64_t phase_begin_ns;

  ShardTracker tracker;
  Roster roster;
  std::optional<TrainLog> train_log;
  Reporter reporter;
  uint64_t layout_fingerprint = 0;  // of what the shards hold

  uint64_t step = 0;
  uint64_t step_count = 0;
  uint64_t contributions_done = 0;
  int64_t progress_ns;     // when there was progress last
  int64_t moved_ns = 0;    // when a worker last told of more bytes
  int64_t reached_ns = 0;  // when a contribution was last acknowledged

  std::string checkpoint;  // the newest that is committed
  std::optional<uint64_t> checkpoint_step;
  bool cutting = false;  // CutTrainLog is under way
  // It goes on from a checkpoint at which all of its programs had finished.
  bool had_finished = false;
  bool done_may_stay = false;  // the job was done, and nothing came since

  std::optional<std::string> stop;  // why a stop was asked for
  int64_t stop_ns = 0;

 private:
  std::map<std::string, int64_t> said_;  // when, last
};

}  // namespace weir

#endif  // SERVER_CHIEF_STATE_JOB_FACTS_H_
