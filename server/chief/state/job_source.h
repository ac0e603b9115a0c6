// Where a job comes from, and all that follows from it.
//
// A spec job is described by a job file, the JobSpec: its workers are
// interchangeable, and everybody can compute how long it is. An SDK job is
// brought by its workers, programs of their own: they declare it, assign its
// initial values, push when they like and end when they like.
//
// Place: inside JobState, which runs one course of phases for both kinds and
// asks here wherever they differ. See "Jobs that their workers bring" in
// docs/design_notes.md.
//
// The first worker that is admitted says what the chief does not know: the
// model's variables and the number of samples, or in an SDK job the whole
// declaration. Everybody after it must bring the same.
//
// Invariants
//   I1. A request that is refused changes nothing.
//   I2. All admitted workers have the same job: variables and number of samples
//       of a spec job, the declaration of an SDK job.
// Threads: compatible.
// Owns/borrows: borrows the options.
// Errors: INVALID_ARGUMENT  the request, the checkpoint or the shards do not
//                           fit this cluster, this kind of job, or the other
//                           workers; names both values.
//         ALREADY_EXISTS    SDK job: another declaration; names a difference.
#ifndef SERVER_CHIEF_STATE_JOB_SOURCE_H_
#define SERVER_CHIEF_STATE_JOB_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/job/slot_marks.h"
#include "proto/checkpoint.pb.h"
#include "proto/chief.pb.h"
#include "proto/ps.pb.h"
#include "server/chief/state/actions.h"
#include "server/chief/state/job_options.h"
#include "server/chief/state/roster.h"
#include "server/chief/state/train_log.h"

namespace weir {

class JobSource {
 public:
  // The length of a job that nobody knows yet.
  static constexpr uint64_t kEndless = UINT64_MAX;
  // How far a job is, and how long: steps in sync, else contributions.
  struct Reach {
    uint64_t step = 0;
    uint64_t step_count = 0;
  };

  static std::unique_ptr<JobSource> Create(const JobOptions& options);
  virtual ~JobSource() = default;

  // Checks whether a worker may join the job.
  absl::Status Check(const RegisterRequest& request);

  // What the shards are to hold, but for the history: a new job, or with
  // `found` the one that continues from that checkpoint. nullopt while only a
  // worker that is still to come can say it.
  virtual absl::StatusOr<std::optional<Declaration>> Declare(
      const FoundCheckpoint* found) const = 0;
  // Checks that shards which are in training train this job.
  virtual absl::Status CheckHeld(const Declaration& held) const = 0;
  // The shards hold `declaration` now: workers must bring the same.
  void Hold(const Declaration& declaration);
  const Declaration& held() const { return held_; }

  // In whose process the initial values are: worker 0's, or the chief's own.
  virtual bool worker_assigns() const = 0;
  // Whether its workers push when they like, and end by themselves: a worker
  // has finished when it has retired its slot.
  virtual bool workers_decide() const = 0;
  // A manifest of this job has this text (Manifest.job_spec_text).
  virtual std::string spec_text() const = 0;
  // Whether a chief that finds the job done lets it go on.
  virtual bool ContinuesWhenDone() const = 0;

  // Takes the number of samples of the first worker. kEndless: nobody has said
  // it. Where only that tells how long the job is, and no checkpoint does, it
  // is taken for one of the longest.
  virtual absl::Status ReadLength(uint64_t sample_count) = 0;
  // Contributions of the whole job; 0 where nobody counts them.
  virtual uint64_t contribution_count() const = 0;
  // The lines of train.jsonl that a chief goes on to write.
  virtual TrainLog::Options CurveOptions(uint64_t step, bool adopted) const = 0;
  // Takes what the shards say of a worker's slot.
  virtual void TakeMarks(int slot, const SlotMarks& marks,
                         Roster::Worker* worker) const = 0;
  // REQUIRES: TakeMarks came before, for every slot.
  virtual Reach Count(const Roster& roster) const = 0;
  // True if the worker of `slot` has nothing more to do.
  virtual bool Done(int slot, const Roster::Worker& worker) const = 0;
  // Adds to a manifest at `step` how far each slot was. `next` has the next
  // sequence number of each slot, but in sync, where the step says it.
  virtual absl::Status FillManifest(uint64_t step,
                                    const std::vector<int64_t>& next,
                                    Manifest* manifest) const = 0;

  bool sync() const { return per_step() > 0; }
  // Sync: contributions in each step; else 0.
  uint32_t per_step() const { return held_.update().sync().contributions(); }
  // Sync: contributions of `slot` in each step, the m < n with m mod W = slot.
  uint64_t ContributionsPerStep(int slot) const;
  // Sync: the step that a slot has come to.
  uint64_t StepOf(int slot, const Roster::Worker& worker) const;
  // What `slot` pushed in earlier histories; 0 where nobody counts that.
  uint64_t PushesBefore(int slot) const;
  // What the job is counted in, for messages: "step ".
  std::string unit() const;

 protected:
  explicit JobSource(const JobOptions& options) : options_(options) {}
  const JobOptions& options() const { return options_; }
  // Sets where the curve of a job that is at `step` goes on: what the last line
  // says that counts. Returns the step of that line, or 0.
  uint64_t ContinueCurve(uint64_t step, TrainLog::Options* log) const;

 private:
  // `who` is the worker's name for messages.
  virtual absl::Status CheckJob(const RegisterRequest& request,
                                const std::string& who) = 0;
  // What Hold tells of: every worker must bring it.
  virtual void Expect(const Declaration& declaration) = 0;
  virtual std::string async_unit() const = 0;

  const JobOptions& options_;
  Declaration held_;
};

// The two kinds of jobs.
std::unique_ptr<JobSource> MakeSpecJob(const JobOptions& options);
std::unique_ptr<JobSource> MakeSdkJob(const JobOptions& options);

// Returns the first field in which a spec job that continues from `before` must
// not differ from it, "model.layer[1].dense.units: 64 -> 32", or "". The length
// of the job, schedules, checkpoints, evaluation and limits may change.
std::string FirstResumeDifference(const JobSpec& before, const JobSpec& now);

}  // namespace weir

#endif  // SERVER_CHIEF_STATE_JOB_SOURCE_H_
