#include "server/chief/chief_runner.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/identity.h"
#include "common/base/limits.h"
#include "common/base/logging.h"
#include "common/base/plant.h"
#include "common/base/status.h"
#include "common/objects/any_store.h"
#include "common/threads/thread.h"
#include "common/trace/trace.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/checkpoint/evaluated.h"
#include "proto/job/job_spec_text.h"
#include "server/chief/start/store_place.h"

namespace weir {
namespace {

// Well below every wait of JobState, which are seconds.
constexpr std::chrono::milliseconds kTick{50};
// How often to look for the evaluator's last line, and in an object store.
constexpr int64_t kEvaluatorPollNs = 200'000'000;
constexpr int64_t kEvaluatorPollOfStoreNs = 2'000'000'000;

void WarnIf(const absl::Status& status) {
  if (!status.ok()) {
    LOG_WARN("{}", std::string(status.message()));
  }
}

}  // namespace

absl::Status ChiefRunner::Options::Validate() const {
  if (transport == nullptr || files == nullptr || clock == nullptr) {
    return absl::InternalError("a chief needs a transport, files and a clock");
  }
  if (ps_addresses.empty() || worker_count < 1) {
    return Invalid("the cluster has ", ps_addresses.size(), " ps and ",
                   worker_count, " workers; a job needs at least one of each");
  }
  if (workdir.empty()) {
    return absl::InvalidArgumentError(
        "no work directory is given; set --workdir");
  }
  return absl::OkStatus();
}

ChiefRunner::ChiefRunner(Options options)
    : options_(std::move(options)), inbox_(std::make_shared<Inbox>()) {}

absl::StatusOr<std::unique_ptr<ChiefRunner>> ChiefRunner::Create(
    Options options) {
  WEIR_RETURN_IF_ERROR(options.Validate());
  std::unique_ptr<ChiefRunner> runner(new ChiefRunner(std::move(options)));
  WEIR_RETURN_IF_ERROR(runner->Start());
  return runner;
}

void ChiefRunner::MakeCallers(
    const std::shared_ptr<const InitialValues>& initial) {
  const double lost_after = options_.spec.limits().lost_after_seconds();
  for (size_t s = 0; s < options_.ps_addresses.size(); ++s) {
    ShardCaller::Options caller;
    caller.shard = static_cast<int>(s);
    caller.link = options_.transport->Connect(options_.ps_addresses[s]);
    caller.link->SpeakAsChief();
    if (lost_after > 0.0) {
      caller.lost_after =
          std::chrono::milliseconds(static_cast<int64_t>(lost_after * 1e3));
    }
    caller.initial = initial;
    caller.report = [inbox = inbox_](Event event) {
      Post(inbox, std::move(event));
    };
    callers_.push_back(std::make_unique<ShardCaller>(std::move(caller)));
  }
}

std::string ChiefRunner::Secret() const {
  if (disk_->claim == nullptr) {
    return "";  // a planted defect: it has no claim
  }
  return disk_->claim->secret();
}

absl::Status ChiefRunner::TakeWorkdir(const std::string& checkpoints) {
  if (IsObjectUrl(checkpoints)) {
    WEIR_RETURN_IF_ERROR(CheckStorePlace(options_.files, options_.workdir,
                                         options_.allow_unguarded));
  }
  WEIR_RETURN_IF_ERROR(disk_->committer.MakeDirectory());
  bool alone = true;
  if (!Planted("chief.sweeps_before_bind")) {
    WorkdirClaim::Options claim;
    claim.directory = checkpoints;
    claim.store = options_.files;
    claim.wait = options_.claim_wait;
    WEIR_ASSIGN_OR_RETURN(disk_->claim, WorkdirClaim::Take(claim));
    alone = disk_->claim->exclusive();
  }
  if (IsObjectUrl(checkpoints)) {
    // No lock keeps another chief away, but the numbers of checkpoints do.
    WEIR_RETURN_IF_ERROR(disk_->committer.ReadNumber());
    return WriteEnding(options_.files, options_.workdir, absl::OkStatus());
  }
  // Only behind the claim: before it, what looks unfinished may be what a chief
  // that is alive is writing.
  if (alone) {
    std::string note;
    WEIR_RETURN_IF_ERROR(disk_->committer.Sweep(&note));
    if (!note.empty()) {
      LOG_WARN("{}", note);
    }
  } else {
    LOG_WARN("unfinished checkpoints in {} stay where they are", checkpoints);
  }
  // Nothing has ended any more: tasks that look for ENDED must not find that of
  // the chief before.
  return WriteEnding(options_.files, options_.workdir, absl::OkStatus());
}

absl::Status ChiefRunner::RemoveOldDone(const Disk& disk) {
  const std::string path = JoinPath(disk.workdir, kDoneName);
  const auto done = disk.files->ReadAll(path);
  if (absl::IsNotFound(done.status())) {
    return absl::OkStatus();
  }
  WEIR_RETURN_IF_ERROR(done.status());
  if (*done != disk.done_at_start) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " stays: another chief has finished the job"));
  }
  const absl::Status removed = disk.files->Remove(path);
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

absl::StatusOr<JobOptions> ChiefRunner::ReadWorkdir() {
  JobOptions job = options_;
  job.checkpoint_directory = JoinPath(options_.workdir, "checkpoints");
  job.chief_secret = chief_secret_ = Secret();
  WEIR_ASSIGN_OR_RETURN(job.train_lines, disk_->train_file.Read());
  job.random = RandomId;
  std::string note;
  const auto newest = disk_->committer.Find(false, false, &note);
  // If it is damaged, whoever restores it says so.
  if (!newest.ok() && !absl::IsDataLoss(newest.status())) {
    return newest.status();
  }
  if (newest.ok() && newest->has_value()) {
    job.newest = (*newest)->manifest;
    if (options_.sdk_job) {
      WEIR_ASSIGN_OR_RETURN(
          job.newest_finished,
          disk_->committer.IsMarkedFinished(job.newest->name()));
    }
  }
  if (disk_->claim != nullptr && !disk_->claim->first()) {
    WEIR_ASSIGN_OR_RETURN(const bool saved, disk_->committer.HasCommitted());
    job.never_saved = !saved;
  }
  const auto source = JobSource::Create(job);
  const bool may_go_on = source->ContinuesWhenDone();
  const auto done_text =
      options_.files->ReadAll(JoinPath(options_.workdir, kDoneName));
  if (!absl::IsNotFound(done_text.status())) {
    WEIR_ASSIGN_OR_RETURN(disk_->done_at_start, done_text);
  }
  WEIR_ASSIGN_OR_RETURN(
      const bool done,
      FindDone(options_.files, options_.workdir, source->spec_text()));
  if (!done) {
    return job;
  }
  std::string name = options_.spec.name();
  if (name.empty() && job.newest.has_value()) {
    name = job.newest->declaration().job();
  }
  if (may_go_on) {
    job.finished_job = name;
    return job;
  }
  LOG_INFO(
      "the job is done already: {}/DONE; to train again choose another "
      "--workdir{}",
      options_.workdir,
      source->workers_decide() ? ", to train on add --resume" : "");
  job.done_job = name;
  return job;
}

Board::Options ChiefRunner::BoardOptions() const {
  Board::Options board;
  board.clock = options_.clock;
  board.directory = options_.tensorboard;
  // The job of scripts has no text.
  if (options_.spec.has_model()) {
    board.job_text = CanonicalJobSpecText(options_.spec);
    board.hparams = HparamsOfJob(options_.spec,
                                 static_cast<int>(options_.ps_addresses.size()),
                                 options_.worker_count);
  }
  return board;
}

absl::Status ChiefRunner::Start() {
  const std::string& workdir = options_.workdir;
  CheckpointCommitter::Options commit;
  commit.files = options_.files;
  commit.clock = options_.clock;
  commit.directory = JoinPath(workdir, "checkpoints");
  commit.keep = options_.spec.checkpoint().keep();
  disk_ = std::make_shared<Disk>(
      Disk{options_.files, workdir, CheckpointCommitter(commit),
           TrainFile(options_.files, JoinPath(workdir, "train.jsonl")),
           Board(BoardOptions()), nullptr, ""});
  WEIR_RETURN_IF_ERROR(TakeWorkdir(commit.directory));
  WEIR_ASSIGN_OR_RETURN(JobOptions job, ReadWorkdir());
  std::shared_ptr<const InitialValues> initial;
  if (!options_.init_from.empty()) {
    WEIR_ASSIGN_OR_RETURN(
        initial, InitialValues::Open(options_.files, options_.init_from));
  }
  MakeCallers(initial);
  files_queue_ = std::make_unique<TaskQueue>("files");
  state_ = std::make_unique<JobState>(std::move(job));
  state_->Start();
  loop_ = Thread([this] { Loop(); });
  return absl::OkStatus();
}

ChiefRunner::~ChiefRunner() {
  {
    MutexLock lock(&inbox_->mutex);
    inbox_->stop = true;
    inbox_->changed.NotifyAll();
  }
  if (loop_.joinable()) {
    loop_.join();
  }
  // Every caller gets its answer: a request of gRPC that nobody finishes would
  // keep its server from shutting down.
  std::vector<Event> events;
  {
    MutexLock lock(&inbox_->mutex);
    events.swap(inbox_->events);
  }
  for (const Event& event : events) {
    event(state_.get());
  }
  for (const auto& [id, sink] : sinks_) {
    sink->End(absl::UnavailableError("the chief ends"));
  }
}

// ---------------------------------------------------------------- decisions

bool ChiefRunner::Post(const std::shared_ptr<Inbox>& inbox, Event event) {
  MutexLock lock(&inbox->mutex);
  if (inbox->stop) {
    return false;
  }
  inbox->events.push_back(std::move(event));
  inbox->changed.NotifyAll();
  return true;
}

absl::Status ChiefRunner::PostCall(Event event) {
  MutexLock lock(&inbox_->mutex);
  if (inbox_->stop) {
    return absl::UnavailableError("the chief ends");
  }
  if (inbox_->events.size() >= kChiefInboxMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kChiefInboxMax, " calls to the chief wait already"));
  }
  inbox_->events.push_back(std::move(event));
  inbox_->changed.NotifyAll();
  return absl::OkStatus();
}

void ChiefRunner::Loop() {
  NameTraceLane("decisions");
  auto next_tick = MonotonicClock::now();
  for (;;) {
    std::vector<Event> events;
    bool over = false;
    {
      MutexLock lock(&inbox_->mutex);
      const auto now = MonotonicClock::now();
      if (inbox_->events.empty() && !inbox_->stop && now < next_tick) {
        inbox_->changed.WaitFor(&inbox_->mutex, next_tick - now);
      }
      if (inbox_->stop) {
        return;
      }
      // The lock is not held while events run: they call into sinks and links.
      events.swap(inbox_->events);
      over = inbox_->finished.has_value();
    }
    for (const Event& event : events) {
      const TraceSpan span("decide");
      event(state_.get());
      CarryOutAll();
    }
    if (MonotonicClock::now() >= next_tick) {
      next_tick = MonotonicClock::now() + kTick;
      if (!over) {
        state_->OnTick();
        WatchEvaluator();
      }
      CarryOutAll();
    }
  }
}

void ChiefRunner::CarryOutAll() {
  for (Action& action : state_->TakeActions()) {
    CarryOut(std::move(action));
  }
}

void ChiefRunner::PostDisk(
    std::function<void(Disk*, const std::shared_ptr<Inbox>&)> task) {
  files_queue_->Post([disk = disk_, inbox = inbox_, task = std::move(task)] {
    task(disk.get(), inbox);
  });
}

void ChiefRunner::WatchEvaluator() {
  const int64_t now = options_.clock->NowNs();
  const int64_t every = IsObjectUrl(options_.workdir) ? kEvaluatorPollOfStoreNs
                                                      : kEvaluatorPollNs;
  // One look at a time: a store may take longer for one than `every`.
  if (evaluated_.empty() || looks_for_evaluator_ ||
      now - evaluator_asked_ns_ < every) {
    return;
  }
  evaluator_asked_ns_ = now;
  looks_for_evaluator_ = true;
  PostDisk([this, checkpoint = evaluated_](Disk* disk, const auto& inbox) {
    const bool there =
        EvaluatedCheckpoints(disk->files, disk->workdir).count(checkpoint) > 0;
    // Events run while this lives.
    Post(inbox, [this, there](JobState* state) {
      looks_for_evaluator_ = false;
      if (there) {
        evaluated_.clear();
        state->end().OnEvaluated();
      }
    });
  });
}

void ChiefRunner::CarryOut(Action action) {
  if (auto* call = std::get_if<ShardCall>(&action)) {
    callers_[call->shard]->Call(std::move(*call));
  } else if (const auto* send = std::get_if<SendCommand>(&action)) {
    if (send->command.hold()) {
      Failpoint("chief.before_hold");
    }
    if (const auto it = sinks_.find(send->stream); it != sinks_.end()) {
      it->second->Send(send->command);
    }
  } else if (const auto* end = std::get_if<EndStream>(&action)) {
    if (const auto it = sinks_.find(end->stream); it != sinks_.end()) {
      it->second->End(end->status);
      sinks_.erase(it);
    }
  } else if (const auto* line = std::get_if<LogLine>(&action)) {
    if (line->warning) {
      LOG_WARN("{}", line->text);
    } else {
      LOG_INFO("{}", line->text);
    }
  } else if (auto* done = std::get_if<WriteDone>(&action)) {
    evaluated_.clear();
    if (done->wait) {
      evaluated_ = done->checkpoint;  // WatchEvaluator looks for its line
    }
    CarryOutFiles(std::move(action));
  } else if (auto* line = std::get_if<AppendTrainLog>(&action)) {
    {
      MutexLock lock(&inbox_->mutex);
      inbox_->train_lines.push_back(line->line);
    }
    PostDisk([line = std::move(line->line)](Disk* disk, const auto& inbox) {
      AppendTrainLines(disk, inbox);
      disk->board.AddLine(line);
    });
  } else {
    CarryOutFiles(std::move(action));
  }
}

// Workers wait for the directory of a checkpoint, and it comes behind the lines
// before. So each is not a write of its own: the first task writes all.
void ChiefRunner::AppendTrainLines(Disk* disk,
                                   const std::shared_ptr<Inbox>& inbox) {
  std::vector<std::string> lines;
  {
    MutexLock lock(&inbox->mutex);
    lines.swap(inbox->train_lines);
  }
  if (lines.empty()) {
    return;
  }
  const TraceSpan span(kActionNames[Action(AppendTrainLog()).index()]);
  WarnIf(disk->train_file.Append(absl::StrJoin(lines, "\n")));
}

void ChiefRunner::CarryOutFiles(Action action) {
  PostDisk([action = std::move(action), options = options_](
               Disk* disk, const std::shared_ptr<Inbox>& inbox) {
    const TraceSpan span(kActionNames[action.index()]);
    std::string note;
    if (const auto* find = std::get_if<FindCheckpoint>(&action)) {
      const auto found = disk->committer.Find(
          find->verify, find->verify && options.allow_older, &note);
      Post(inbox, [found](JobState* state) {
        state->start().OnCheckpointFound(found);
      });
    } else if (const auto* make = std::get_if<PrepareCheckpoint>(&action)) {
      const absl::StatusOr<std::string> name =
          disk->committer.Prepare(make->step);
      Post(inbox,
           [name](JobState* state) { state->checkpoint().OnPrepared(name); });
    } else if (const auto* commit = std::get_if<CommitCheckpoint>(&action)) {
      const absl::Status status =
          disk->committer.Commit(commit->manifest, &note);
      Post(inbox, [status](JobState* state) {
        state->checkpoint().OnCommitted(status);
      });
    } else if (const auto* drop = std::get_if<DiscardCheckpoint>(&action)) {
      WarnIf(disk->committer.Discard(drop->name));
    } else if (const auto* cut = std::get_if<CutTrainLog>(&action)) {
      WarnIf(disk->train_file.Cut(cut->step));
      disk->board.Restart();
      Post(inbox, [](JobState* state) { state->OnTrainLogCut(); });
    } else if (const auto* spread = std::get_if<AppendHistograms>(&action)) {
      disk->board.AddHistograms(spread->step, spread->histograms);
    } else if (const auto* done = std::get_if<WriteDone>(&action)) {
      Failpoint("chief.before_done");
      // Whoever finds DONE may expect the whole curve.
      WarnIf(disk->train_file.Flush());
      absl::Status status;
      if (options.sdk_job) {
        status = disk->committer.MarkFinished(done->checkpoint);
      }
      if (status.ok()) {
        status =
            disk->files->WriteAtomically(JoinPath(disk->workdir, kDoneName),
                                         absl::StrCat(done->checkpoint, "\n"));
      }
      Post(inbox,
           [status](JobState* state) { state->end().OnDoneWritten(status); });
    } else if (std::holds_alternative<LookForDone>(action)) {
      const absl::Status there =
          disk->files->Stat(JoinPath(disk->workdir, kDoneName)).status();
      Post(inbox, [there](JobState* state) { state->end().OnLooked(there); });
    } else if (std::holds_alternative<RemoveDone>(action)) {
      WarnIf(RemoveOldDone(*disk));
    } else if (const auto* finish = std::get_if<Finish>(&action)) {
      // PERMISSION_DENIED: another chief goes on, so the job has not ended.
      if (!absl::IsPermissionDenied(finish->status)) {
        WarnIf(disk->train_file.Flush());
        WarnIf(WriteEnding(disk->files, disk->workdir, finish->status));
        disk->board.End(finish->status.ok());
      }
      MutexLock lock(&inbox->mutex);
      inbox->finished = finish->status;
      inbox->changed.NotifyAll();
    }
    if (!note.empty()) {
      LOG_WARN("{}", note);
    }
  });
}

}  // namespace weir
