#include "sim/tasks.h"

#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/exit_code.h"
#include "common/base/plant.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "common/threads/scheduler.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/job/job_spec_defaults.h"
#include "proto/job/job_spec_text.h"
#include "server/chief/chief_runner.h"
#include "server/ps/service/leaving.h"
#include "server/ps/service/ps_end.h"
#include "server/ps/store/store.h"
#include "worker/evaluate/evaluation.h"
#include "worker/evaluate/evaluator.h"
#include "worker/train/worker_task.h"

namespace weir::sim {
namespace {

using std::chrono::milliseconds;

constexpr auto kPsGrace = std::chrono::seconds(25);
// Of `weir task`, before it kills a program that does not end.
constexpr auto kInterruptGrace = std::chrono::seconds(28);
// As the chief's server: for the last commands to go out.
constexpr auto kChiefGrace = milliseconds(500);

}  // namespace

void Task::StartWeirTask() {
  Supervisor::Options options;
  options.alone = true;
  options.healthy_after = std::chrono::seconds(60);
  options.user_commands = is_script;
  options.interrupt_grace = kInterruptGrace;
  LocalTask local;
  local.role = role;
  local.index = index;
  supervisor = std::make_unique<Supervisor>(
      options, std::vector<LocalTask>{std::move(local)});
  ended.reset();
}

bool Task::ended_for_good() const {
  // As a pod of Kubernetes: started again after a code of 128 and more, and
  // after 5, which the files of `weir render` have it ignore.
  return ended.has_value() && !IsTransientExit(*ended) &&
         *ended != kExitReplaced;
}

JobPlace MakePlace(const JobPlan& plan, const std::string& data_dir) {
  JobPlace place;
  place.run = plan.run_place();
  place.worker_count = plan.workers;
  place.has_evaluator = plan.evaluator;
  if (plan.script) {
    // As `weir_chief` without a job file.
    place.script = ScriptOptions{.mode = plan.mode,
                                 .pushes = plan.pushes_of_rank(),
                                 .table = plan.table,
                                 .optimizer = plan.optimizer,
                                 .row_optimizer = plan.row_optimizer,
                                 .rest = plan.batch_time};
    Checkpoint* const checkpoint = place.spec.mutable_checkpoint();
    checkpoint->set_every_steps(plan.every_steps);
    checkpoint->set_keep(2);
    if (plan.table) {
      checkpoint->set_tables_full_every(4);
    }
    return place;
  }
  absl::StatusOr<JobSpec> spec = ParseJobSpec(plan.SpecText(), "sim");
  if (!spec.ok()) {
    std::fprintf(stderr, "%s\n", spec.status().ToString().c_str());
    std::abort();
  }
  place.spec = *std::move(spec);
  ResolveDefaults(&place.spec);
  place.spec_text = CanonicalJobSpecText(place.spec);
  place.data_dir = data_dir;
  return place;
}

absl::Status RunPs(const JobPlace& place, int index, ProcessRun* run) {
  Store::Options options;
  options.files = place.objects;
  options.incarnation = Random();
  options.memory_bytes_max = int64_t{1} << 30;
  options.checkpoint_root = JoinPath(place.run, "checkpoints");
  // Never deleted: streams may speak of it until the world ends.
  WEIR_ASSIGN_OR_RETURN(auto made, Store::Create(options));
  Store* const store = made.release();
  Start([store] {
    for (;;) {
      SleepFor(milliseconds(250));
      store->ExpireWaits();
    }
  });
  auto* const end = new PsEnd;
  auto* const leaving = new Leaving(Clock::Real(), kPsGrace);
  place.network->Serve(
      place.ps_addresses[static_cast<size_t>(index)], store,
      [end](const absl::Status& why) { end->Tell(why); }, leaving);
  int signal = 0;
  run->OnTerm([&signal] { signal = SIGTERM; });
  const absl::Status why = end->Wait(
      *store, [&signal] { return signal; }, leaving);
  run->OnTerm(nullptr);
  const PsStatus counted = store->GetStatus();
  place.counts->pushes +=
      counted.chunks_accepted() + counted.chunks_duplicate();
  place.counts->duplicates += counted.chunks_duplicate();
  return why;
}

absl::Status RunChief(const JobPlace& place, ProcessRun* run) {
  // Nothing of it is destroyed: streams may speak of it until the world ends.
  auto* const transport = place.network->NewTransport().release();
  ChiefRunner::Options options;
  options.spec = place.spec;
  options.sdk_job = place.script.has_value();
  options.evaluator_expected = place.has_evaluator;
  options.ps_addresses = place.ps_addresses;
  options.worker_count = place.worker_count;
  options.workdir = place.run;
  options.resume = true;
  options.allow_older = place.allow_older;
  options.transport = transport;
  options.files = place.objects;
  // In the order of server/chief/chief_server.cc.
  const bool binds_first = !Planted("chief.sweeps_before_bind");
  const absl::Status taken = Invalid("another process has the port");
  if (run->port_is_taken && binds_first) {
    return taken;
  }
  WEIR_ASSIGN_OR_RETURN(auto made, ChiefRunner::Create(options));
  ChiefRunner* const chief = made.release();
  if (run->port_is_taken) {
    return taken;
  }
  place.network->Serve(kChief, chief);
  run->OnTerm([chief] { chief->RequestStop("SIGTERM"); });
  const absl::Status status = chief->Wait();
  run->OnTerm(nullptr);
  SleepFor(kChiefGrace);
  place.network->StopServing(kChief);
  return status;
}

absl::Status RunWorker(const JobPlace& place, int index, ProcessRun* run) {
  auto* const transport = place.network->NewTransport().release();
  WorkerTask::Options options;
  options.spec = place.spec;
  options.index = index;
  options.process = Random();
  options.host = absl::StrCat("host", index);
  options.data_dir = place.data_dir;
  options.chief = place.network->NewChiefLink(kChief);
  options.transport = transport;
  options.job_is_done = [place] {
    return JobIsDone(place.objects, place.run, place.spec_text);
  };
  WEIR_ASSIGN_OR_RETURN(auto made, WorkerTask::Create(std::move(options)));
  // Never deleted: a fibre may just be telling it of a signal.
  WorkerTask* const worker = made.release();
  run->OnTerm([worker] { worker->RequestStop("ended by signal 15"); });
  const absl::Status status = worker->Run();
  run->OnTerm(nullptr);
  return status;
}

absl::Status RunEvaluator(const JobPlace& place, ProcessRun* run) {
  WEIR_ASSIGN_OR_RETURN(
      const std::shared_ptr<CheckpointEvaluation> evaluation,
      CheckpointEvaluation::Create(place.objects, place.spec, place.data_dir,
                                   BackendOptions()));
  const auto stopped = std::make_shared<bool>(false);
  run->OnTerm([stopped] { *stopped = true; });
  Evaluator evaluator(
      place.objects, Clock::Real(), place.run, place.spec.train(),
      [evaluation](const std::string& dir) { return evaluation->Run(dir); });
  return evaluator.Follow([stopped] { return *stopped; });
}

}  // namespace weir::sim
