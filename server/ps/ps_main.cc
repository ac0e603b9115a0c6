// weir_ps: one parameter server.
//
//   TF_CONFIG=... weir_ps
//   weir_ps --cluster "ps=10.0.0.1:2222" --task_index 0
//
// It starts empty and waits for the chief to declare or restore its shard.
// Exit codes: 0 after Shutdown, 138 when that says that another shard was lost
// or that the job was stopped (start it again, empty), 2 for a wrong flag,
// TF_CONFIG or an address that is in use, 143 after SIGTERM, 130 after SIGINT.
//
// On SIGTERM it serves on until the chief has saved the job and shuts it down,
// --grace_seconds at most; a second signal ends it at once.
#include <grpc/support/log.h>
#include <pthread.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "common/base/exit_code.h"
#include "common/base/failpoint.h"
#include "common/base/logging.h"
#include "common/base/malloc_settings.h"
#include "common/base/mutex.h"
#include "common/base/plant.h"
#include "common/base/status.h"
#include "common/job/cluster_spec.h"
#include "proto/job/tf_config.h"
#include "server/ps/memory/shared_arena.h"
#include "server/ps/ps_server.h"
#include "server/ps/service/leaving.h"
#include "server/ps/store/store.h"

namespace weir {
namespace {

struct Flags {
  std::string cluster;
  std::string task_index;
  std::string address;
  int queues = 1;
  std::string transport = "auto";
  double grace_seconds = 25.0;  // Kubernetes kills after 30
  std::string checkpoint_root;
};

int Usage(const absl::Status& status) {
  std::fprintf(stderr, "weir_ps: %s\n", std::string(status.message()).c_str());
  return kExitUsage;
}

// SIGUSR1 stands for the Shutdown call: one thread waits for every reason to
// end.
sigset_t EndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    sigaddset(&signals, signal);
  }
  return signals;
}

// Why the chief ended the job; the first call counts.
class Ending {
 public:
  void Set(const absl::Status& why) {
    MutexLock lock(&mutex_);
    if (!why_.has_value()) {
      why_ = why;
    }
  }
  absl::Status Get() {
    MutexLock lock(&mutex_);
    return why_.value_or(absl::OkStatus());
  }

 private:
  Mutex mutex_;
  std::optional<absl::Status> why_ ABSL_GUARDED_BY(mutex_);
};

uint64_t RandomIncarnation() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

absl::StatusOr<ClusterSpec> FindCluster(const Flags& flags) {
  ClusterSources sources = ClusterSources::FromEnv();
  sources.flag_cluster = flags.cluster;
  sources.flag_task_index = flags.task_index;
  if (!flags.cluster.empty() || !flags.task_index.empty()) {
    sources.flag_task_type = "ps";
  }
  WEIR_ASSIGN_OR_RETURN(ClusterSpec cluster, ResolveCluster(sources));
  if (!cluster.task().has_value()) {
    return absl::InvalidArgumentError(
        "no cluster is given; set TF_CONFIG, or --cluster and --task_index");
  }
  if (cluster.task()->role != TaskRole::kPs) {
    return absl::InvalidArgumentError(absl::StrCat(
        "this task is ", cluster.task()->ToString(), "; weir_ps runs a ps"));
  }
  return cluster;
}

// After SIGTERM: serves on while a chief may want to save what is here. Returns
// what ended the wait: SIGUSR1 for the chief's Shutdown, else a signal.
int WaitForChief(const Store& store, const sigset_t& signals,
                 Leaving* leaving) {
  // An empty ps holds nothing to save.
  if (store.Hello().state() == EMPTY || Planted("ps.leaves_at_once")) {
    return SIGTERM;
  }
  leaving->Begin();
  if (!leaving->MayGo()) {
    LOG_INFO("SIGTERM: serving on until the chief has saved the job");
  }
  while (!leaving->MayGo()) {
    const timespec tenth = {0, 100'000'000};
    if (const int signal = sigtimedwait(&signals, nullptr, &tenth);
        signal > 0) {
      return signal;
    }
  }
  return SIGTERM;
}

// Null: clients on this host take gRPC.
std::unique_ptr<SharedArena> MakeSharedArena(const Flags& flags) {
  if (flags.transport != "auto") {
    return nullptr;
  }
  auto arena = SharedArena::Create();
  if (!arena.ok()) {
    LOG_WARN("{}; clients on this host take gRPC", arena.status().ToString());
    return nullptr;
  }
  return *std::move(arena);
}

// Ends the process after the chief's Shutdown, which says why; `terminated`:
// SIGTERM came first. Not by return from main: a disk that hangs may hold a
// thread, which would be joined.
[[noreturn]] void EndAsTold(const absl::Status& why, bool terminated) {
  if (why.ok()) {
    LOG_INFO("shut down by the chief");
  } else {
    LOG_ERROR("shut down by the chief: {}", std::string(why.message()));
  }
  int code = ExitCodeFor(why);
  // Whoever sent SIGTERM does not want to see this process started again.
  if (terminated && IsTransientExit(code)) {
    code = kExitTerminated;
  }
  std::quick_exit(code);
}

int Serve(const Flags& flags) {
  if (const absl::Status status = InitFailpointsFromEnv(); !status.ok()) {
    return Usage(status);
  }
  const absl::StatusOr<ClusterSpec> cluster = FindCluster(flags);
  if (!cluster.ok()) {
    return Usage(cluster.status());
  }
  const std::string task = cluster->task()->ToString();
  InitLogging(task);

  const sigset_t signals = EndSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before any thread exists

  const auto shared_arena = MakeSharedArena(flags);  // outlives the store
  Store::Options store_options;
  store_options.incarnation = RandomIncarnation();
  store_options.checkpoint_root = flags.checkpoint_root;
  if (shared_arena != nullptr) {
    store_options.arena = shared_arena.get();
  }
  auto store = Store::Create(store_options);
  if (!store.ok()) {
    LOG_ERROR("{}", store.status().ToString());
    return ExitCodeFor(store.status());
  }
  PsServer::Options options;
  options.address = flags.address;
  if (options.address.empty()) {
    options.address = cluster->bind_address();
  }
  options.queue_count = flags.queues;
  options.shared_arena = shared_arena.get();
  Ending ending;
  Leaving leaving(Clock::Real(), std::chrono::nanoseconds(static_cast<int64_t>(
                                     flags.grace_seconds * 1e9)));
  options.leaving = &leaving;
  options.on_shutdown = [&ending](const absl::Status& why) {
    ending.Set(why);
    kill(getpid(), SIGUSR1);
  };
  auto server = PsServer::Create(options, store->get());
  if (!server.ok()) {
    return Usage(Annotate(server.status(), task));
  }
  LOG_INFO("serving on {}, port {}", options.address, (*server)->port());
  if (flags.checkpoint_root.empty()) {
    LOG_INFO(
        "checkpoints may lie in any directory that a peer names; "
        "--checkpoint_root keeps them below one");
  }

  int signal = 0;
  sigwait(&signals, &signal);
  const bool terminated = signal == SIGTERM;
  if (terminated) {
    signal = WaitForChief(**store, signals, &leaving);
  }
  if (signal != SIGUSR1) {
    const bool term = signal == SIGTERM;
    LOG_INFO("ended by {}", term ? "SIGTERM" : "SIGINT");
    // At once: open calls see UNAVAILABLE, and the state is memory only.
    _exit(term ? kExitTerminated : kExitInterrupted);
  }
  (*server)->Stop(std::chrono::milliseconds(200));
  EndAsTold(ending.Get(), terminated);
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::SetMallocForBulk();
  // gRPC's errors come back as statuses; its own log would say them twice.
  gpr_set_log_function([](gpr_log_func_args* line) {
    LOG_DEBUG("{}:{} {}", line->file, line->line, line->message);
  });
  weir::Flags flags;
  CLI::App app("weir_ps: one parameter server of a cluster");
  app.add_option(
      "--cluster", flags.cluster,
      "\"ps=host:port,...;worker=host:port,...\"; default TF_CONFIG");
  app.add_option("--task_index", flags.task_index,
                 "which ps this is; default TF_CONFIG's");
  app.add_option("--address", flags.address,
                 "listen here in place of the own address in the cluster");
  app.add_option("--transport", flags.transport,
                 "auto: clients on this host may use shared memory; grpc: none "
                 "may")
      ->check(CLI::IsMember({"auto", "grpc"}))
      ->capture_default_str();
  app.add_option("--grace_seconds", flags.grace_seconds,
                 "after SIGTERM: how long the chief may take to save the job")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  app.add_option("--checkpoint_root", flags.checkpoint_root,
                 "read and write checkpoints below this directory only, "
                 "usually the workdir's checkpoints; default anywhere");
  app.add_option("--queues", flags.queues, "completion queues, one thread each")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? weir::kExitOk : weir::kExitUsage;
  }
  return weir::Serve(flags);
}
