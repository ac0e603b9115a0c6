#include "sim/job.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/exit_code.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "deploy/launcher/supervisor.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/job/job_spec_defaults.h"
#include "proto/job/job_spec_text.h"
#include "server/chief/chief_runner.h"
#include "sim/job_plan.h"
#include "sim/network.h"
#include "sim/object_store.h"
#include "worker/train/worker_task.h"

namespace weir::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kPlace[] = "s3://sim/run";
constexpr char kChief[] = "chief:1";
constexpr int kKilled = 137;
constexpr auto kPoll = milliseconds(50);
// In the world's time: all troubles, and all waits of a job for what is lost,
// are far shorter.
constexpr auto kWorldMax = std::chrono::hours(4);
// Between a job's end and that of its tasks.
constexpr auto kEndMax = std::chrono::minutes(5);
// As the chief's server: for the last commands to go out.
constexpr auto kChiefGrace = milliseconds(500);
// Whoever looks after a container waits so long before it is started again.
constexpr auto kOperatorDelay = seconds(2);

// One task of the job and its `weir task`, which starts it again.
struct Task {
  std::string role;
  int index = 0;
  std::string name;
  std::unique_ptr<Supervisor> supervisor;
  int process = 0;
  std::optional<int> exit_code;          // of the process, which is about to go
  std::function<void()> on_term;         // for a fibre of the process
  std::optional<int> ended;              // with which code `weir task` ended
  std::chrono::nanoseconds again_at{0};  // when it is started once more
};

class Job {
 public:
  Job(const JobPlan& plan, WorldResult* result) : plan_(plan), result_(result) {
    absl::StatusOr<JobSpec> spec = ParseJobSpec(plan_.SpecText(), "sim");
    if (!spec.ok()) {
      std::abort();
    }
    spec_ = *std::move(spec);
    ResolveDefaults(&spec_);
    spec_text_ = CanonicalJobSpecText(spec_);
    network_.SetFaults(plan_.network);
    objects_.SetFaults(plan_.store);
    for (int s = 0; s < plan_.ps; ++s) {
      addresses_.push_back(absl::StrCat("ps", s, ":1"));
      AddTask("ps", s);
    }
    AddTask("chief", 0);
    for (int w = 0; w < plan_.workers; ++w) {
      AddTask("worker", w);
    }
  }

  // Returns the values of the last checkpoint; empty if something is broken.
  std::vector<float> Run() {
    network_.Join();
    while (result_->broken.empty() && !AllEnded()) {
      if (Now() > kWorldMax) {
        Break("the job has not ended after four hours");
      }
      Supervise();
      CheckNewest();
      MakeTrouble();
      SleepFor(kPoll);
    }
    std::vector<float> values;
    if (result_->broken.empty()) {
      values = CheckEnd();
    }
    result_->counts.messages += network_.arrived();
    result_->counts.resets += network_.resets();
    result_->counts.unavailable += objects_.unavailable();
    return values;
  }

 private:
  void Break(const std::string& what) {
    if (result_->broken.empty()) {
      result_->broken = what;
      Note(what);
    }
  }

  // ---------------------------------------------------------------- tasks

  void AddTask(const char* role, int index) {
    auto task = std::make_unique<Task>();
    task->role = role;
    task->index = index;
    task->name = absl::StrCat(role, "/", index);
    tasks_.push_back(std::move(task));
    StartWeirTask(tasks_.back().get());
  }

  static void StartWeirTask(Task* task) {
    Supervisor::Options options;
    options.alone = true;
    options.healthy_after = seconds(60);
    LocalTask local;
    local.role = task->role;
    local.index = task->index;
    task->supervisor = std::make_unique<Supervisor>(
        options, std::vector<LocalTask>{std::move(local)});
    task->ended.reset();
  }

  void Supervise() {
    for (const auto& task : tasks_) {
      if (task->exit_code.has_value()) {
        network_.EndProcess(task->process);  // what it left running ends, too
        OnExit(task.get(), *std::exchange(task->exit_code, std::nullopt));
      }
      if (task->ended.has_value()) {
        // As a pod of Kubernetes: started again after a code of 128 and more.
        if (IsTransientExit(*task->ended) && Now() >= task->again_at) {
          StartWeirTask(task.get());
        }
        continue;
      }
      for ([[maybe_unused]] const int one :
           task->supervisor->TakeStarts(Now().count())) {
        StartProcess(task.get());
      }
      if (task->supervisor->finished()) {
        task->ended = task->supervisor->exit_code();
        task->again_at = Now() + kOperatorDelay;
      }
    }
  }

  void OnExit(Task* task, int code) {
    Note(absl::StrCat(task->name, " ended with ", code));
    task->on_term = nullptr;
    task->process = 0;
    if (code != kExitOk && code != kExitReplaced && !IsTransientExit(code)) {
      Break(absl::StrCat(task->name, " ended for good with ", code, ": ",
                         last_words_[task->name]));
    }
    if (code == kExitOk && !Done()) {
      Break(absl::StrCat(task->name, " ended with 0 before the job was done"));
    }
    task->supervisor->OnExit(0, code, Now().count());
  }

  void StartProcess(Task* task) {
    task->process = ++processes_;
    Note(absl::StrCat("start ", task->name, " as ", task->process));
    StartAs(task->process, [this, task] {
      network_.Join();
      absl::Status status;
      if (task->role == "ps") {
        status = RunPs(task);
      } else if (task->role == "chief") {
        status = RunChief(task);
      } else {
        status = RunWorker(task);
      }
      last_words_[task->name] = status.ToString();
      Note(absl::StrCat(task->name, ": ", status.ToString()));
      task->exit_code = ExitCodeFor(status);
    });
  }

  absl::Status RunPs(Task* task) {
    Store::Options options;
    options.files = &objects_;
    options.incarnation = Random();
    options.memory_bytes_max = int64_t{1} << 30;
    options.checkpoint_root = JoinPath(kPlace, "checkpoints");
    // Never deleted: streams may speak of it until the world ends.
    WEIR_ASSIGN_OR_RETURN(auto made, Store::Create(options));
    Store* const store = made.release();
    Start([store] {
      for (;;) {
        SleepFor(milliseconds(50));
        store->ExpireWaits();
      }
    });
    struct Ending {
      std::optional<absl::Status> why;
      WaitQueue told;
    };
    auto* const ending = new Ending;
    const std::string& address = addresses_[static_cast<size_t>(task->index)];
    network_.Serve(address, store, [ending](const absl::Status& why) {
      ending->why = why;
      Wake(&ending->told, 1);
    });
    while (!ending->why.has_value()) {
      Wait(&ending->told, nullptr);
    }
    const PsStatus counted = store->GetStatus();
    result_->counts.pushes +=
        counted.chunks_accepted() + counted.chunks_duplicate();
    result_->counts.duplicates += counted.chunks_duplicate();
    return *ending->why;
  }

  absl::Status RunChief(Task* task) {
    const auto transport = network_.NewTransport();
    ChiefRunner::Options options;
    options.spec = spec_;
    options.ps_addresses = addresses_;
    options.worker_count = plan_.workers;
    options.workdir = kPlace;
    options.resume = true;
    options.transport = transport.get();
    options.files = &objects_;
    WEIR_ASSIGN_OR_RETURN(auto runner, ChiefRunner::Create(options));
    network_.Serve(kChief, runner.get());
    task->on_term = [chief = runner.get()] { chief->RequestStop("SIGTERM"); };
    const absl::Status status = runner->Wait();
    task->on_term = nullptr;
    SleepFor(kChiefGrace);
    network_.StopServing(kChief);
    return status;
  }

  absl::Status RunWorker(Task* task) {
    const auto transport = network_.NewTransport();
    WorkerTask::Options options;
    options.spec = spec_;
    options.index = task->index;
    options.process = Random();
    options.host = absl::StrCat("host", task->index);
    options.chief = network_.NewChiefLink(kChief);
    options.transport = transport.get();
    options.job_is_done = [this] {
      return JobIsDone(&objects_, kPlace, spec_text_);
    };
    WEIR_ASSIGN_OR_RETURN(const auto worker,
                          WorkerTask::Create(std::move(options)));
    task->on_term = [worker = worker.get()] {
      worker->RequestStop("ended by signal 15");
    };
    const absl::Status status = worker->Run();
    task->on_term = nullptr;
    return status;
  }

  // -------------------------------------------------------------- trouble

  void MakeTrouble() {
    if (plan_.faults.empty()) {
      Heal();
      return;
    }
    const Fault& fault = plan_.faults.back();
    if (!trouble_at_.has_value()) {
      // The end of a job is behind its last checkpoint but one.
      if (plan_.late && newest_ + plan_.every_steps < plan_.last_step()) {
        return;
      }
      trouble_at_ = Now() + fault.after;
    }
    if (Now() < *trouble_at_) {
      return;
    }
    trouble_at_ = std::nullopt;
    Commit(fault);
    plan_.faults.pop_back();
    if (!plan_.faults.empty()) {
      trouble_at_ = Now() + plan_.faults.back().after;
    }
  }

  void Commit(const Fault& fault) {
    Task* const task = tasks_[fault.task % tasks_.size()].get();
    if (task->process == 0 || task->exit_code.has_value()) {
      return;
    }
    switch (fault.kind) {
      case Fault::kKill:
        ++result_->counts.kills;
        Note(absl::StrCat("kill ", task->name));
        network_.KillProcess(task->process);
        OnExit(task, kKilled);
        return;
      case Fault::kTerm:
        if (task->on_term) {
          ++result_->counts.stops;
          Note(absl::StrCat("SIGTERM to ", task->name));
          StartAs(task->process, task->on_term);
        }
        return;
      case Fault::kPart: {
        const Task* const other = tasks_[fault.other % tasks_.size()].get();
        ++result_->counts.parts;
        Note(absl::StrCat("part ", task->name, " and ", other->name));
        network_.Part(task->process, other->process, fault.time);
        return;
      }
    }
  }

  void Heal() {
    if (!std::exchange(healed_, true)) {
      Faults calm = plan_.network;
      calm.reset_one_in = 0;
      network_.SetFaults(calm);
      StoreFaults answers = plan_.store;
      answers.unavailable_one_in = 0;
      objects_.SetFaults(answers);
    }
  }

  // --------------------------------------------------------------- oracles

  bool AllEnded() {
    if (!std::all_of(tasks_.begin(), tasks_.end(), [](const auto& task) {
          return task->ended.has_value() && !IsTransientExit(*task->ended);
        })) {
      return false;
    }
    return true;
  }

  template <typename Look>
  auto FromOutside(Look look) {
    objects_.SetAtOnce(true);
    auto seen = look();
    objects_.SetAtOnce(false);
    return seen;
  }

  bool Done() {
    return FromOutside(
        [&] { return JobIsDone(&objects_, kPlace, spec_text_); });
  }

  void CheckNewest() {
    const auto list = FromOutside([&] {
      return ListCheckpoints(&objects_, JoinPath(kPlace, "checkpoints"));
    });
    if (!list.ok() || (list->empty() && newest_ > 0)) {
      Break(absl::StrCat("there were checkpoints up to step ", newest_, ": ",
                         list.status().ToString()));
    } else if (!list->empty()) {
      const uint64_t step = list->back().step;
      if (step < newest_) {
        Break(absl::StrCat("the newest checkpoint is of step ", step,
                           " and was of ", newest_));
      }
      result_->counts.checkpoints += step > newest_ ? 1 : 0;
      newest_ = step;
    }
  }

  std::vector<float> CheckEnd() {
    if (!Done()) {
      Break("all tasks have ended, and the job is not done");
      return {};
    }
    absl::StatusOr<std::vector<float>> values =
        FromOutside([&] { return ReadLast(); });
    if (!values.ok()) {
      Break(absl::StrCat("the last checkpoint: ", values.status().ToString()));
      return {};
    }
    return *std::move(values);
  }

  absl::StatusOr<std::vector<float>> ReadLast() {
    WEIR_ASSIGN_OR_RETURN(
        const std::string directory,
        ResolveCheckpoint(&objects_, absl::StrCat(kPlace, "/checkpoints/ckpt-",
                                                  plan_.last_step())));
    WEIR_ASSIGN_OR_RETURN(const auto reader,
                          CheckpointReader::Open(&objects_, directory));
    WEIR_RETURN_IF_ERROR(reader->Verify());
    const Manifest& manifest = reader->manifest();
    if (manifest.applied_range_size() != 2 || manifest.applied_range(0) != 0 ||
        manifest.applied_range(1) != manifest.contribution_count() ||
        manifest.step() != plan_.last_step()) {
      return absl::DataLossError(
          absl::StrCat("contributions are missing: ",
                       absl::StrCat(manifest.applied_range_size()),
                       " ends of ranges, step ", manifest.step()));
    }
    result_->counts.contributions += manifest.contribution_count();
    std::vector<float> values(
        static_cast<size_t>(reader->layout().flat_elements()));
    WEIR_RETURN_IF_ERROR(reader->ReadFlat(
        kValuesArray, 0, static_cast<int64_t>(values.size()), values.data()));
    return values;
  }

  JobPlan plan_;
  WorldResult* const result_;
  JobSpec spec_;
  std::string spec_text_;
  Network network_;
  SimObjectStore objects_;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<Task>> tasks_;
  std::map<std::string, std::string> last_words_;
  std::optional<std::chrono::nanoseconds> trouble_at_;
  bool healed_ = false;
  uint64_t newest_ = 0;  // step of the newest committed checkpoint
  int processes_ = 0;
};

std::vector<float> RunPlan(uint64_t seed, const JobPlan& plan,
                           WorldResult* result) {
  std::vector<float> values;
  result->outcome = RunWorld(seed, [&] {
    // Not destroyed: fibres that never end look at it until the world does.
    auto* const job = new Job(plan, result);
    values = job->Run();
  });
  if (result->broken.empty()) {
    result->broken = result->outcome.stuck;
  }
  return values;
}

}  // namespace

WorldResult RunJob(uint64_t seed) {
  WorldResult result;
  JobPlan plan;
  RunWorld(seed, [&plan] { plan = DrawJobPlan(); });
  result.job = plan.Words();
  const std::vector<float> values = RunPlan(seed, plan, &result);
  if (result.broken.empty() && plan.mode == Mode::kSync) {
    WorldResult alone;
    const std::vector<float> expected = RunPlan(seed, plan.Alone(), &alone);
    if (!alone.broken.empty()) {
      result.broken = absl::StrCat("the same job alone: ", alone.broken);
    } else if (values != expected) {
      result.broken = "the values are not those of the same job alone";
    }
  }
  return result;
}

}  // namespace weir::sim
