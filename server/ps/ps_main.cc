// weir_ps: one parameter server.
//
//   TF_CONFIG=... weir_ps
//   weir_ps --cluster "ps=10.0.0.1:2222" --task_index 0
//
// It starts empty and waits for the chief to declare or restore its shard.
// Exit codes: 0 after Shutdown, 138 when that says that another shard was lost
// or that the job was stopped, and when there is no memory in the middle of an
// update (start it again, empty), 2 for a wrong flag, TF_CONFIG or an address
// that is in use, or no word on security, 143 after SIGTERM, 130 after SIGINT.
//
// On SIGTERM it serves on until the chief has saved the job and shuts it down,
// --grace_seconds at most; a second signal ends it at once.
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>

#include "common/base/identity.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "common/flags/flags.h"
#include "common/objects/any_store.h"
#include "proto/task/task_main.h"
#include "server/ps/memory/shared_arena.h"
#include "server/ps/ps_metrics.h"
#include "server/ps/ps_server.h"
#include "server/ps/service/leaving.h"
#include "server/ps/service/ps_end.h"
#include "server/ps/store/store.h"

namespace weir {
namespace {

struct Flags {
  std::string address;
  int queues = 1;
  std::string transport = "auto";
  double grace_seconds = 25.0;  // Kubernetes kills after 30
  std::string checkpoint_root;
  std::string audit_log;
};

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

absl::Status Serve(const Flags& flags, const Task& task) {
  const auto shared_arena = MakeSharedArena(flags);  // outlives the store
  Store::Options store_options;
  store_options.incarnation = RandomId();
  store_options.checkpoint_root = flags.checkpoint_root;
  store_options.files = AnyStore();
  if (shared_arena != nullptr) {
    store_options.arena = shared_arena.get();
  }
  WEIR_ASSIGN_OR_RETURN(const auto store, Store::Create(store_options));
  PsServer::Options options;
  options.address = flags.address;
  if (options.address.empty()) {
    options.address = task.cluster.bind_address();
  }
  AccessControl::Options access_options = AccessOptions(task);
  access_options.audit_path = flags.audit_log;
  AccessControl access(access_options);  // outlives the server
  options.access = &access;
  options.queue_count = flags.queues;
  options.shared_arena = shared_arena.get();
  PsEnd end;
  Leaving leaving(Clock::Real(), std::chrono::nanoseconds(static_cast<int64_t>(
                                     flags.grace_seconds * 1e9)));
  options.leaving = &leaving;
  options.host = task.host;
  options.on_shutdown = [&end](const absl::Status& why) { end.Tell(why); };
  const auto server = PsServer::Create(options, store.get());
  if (!server.ok()) {
    return absl::InvalidArgumentError(server.status().message());
  }
  LOG_INFO("serving on {}, port {}", options.address, (*server)->port());
  const AdminScope admin(task.admin);
  if (task.admin != nullptr) {
    task.admin->AddMetrics([&server](MetricPage* page) {
      AddPsMetrics((*server)->Status(), page);
    });
  }
  if (flags.checkpoint_root.empty()) {
    LOG_INFO(
        "this ps keeps no checkpoints; a job with a chief wants "
        "--checkpoint_root");
  }
  const absl::Status why = end.Wait(
      *store, [&task] { return task.stop->first(); }, &leaving);
  if (end.told()) {
    // The answer to Shutdown may still be on its way to the chief.
    (*server)->Stop(std::chrono::milliseconds(200));
  }
  // Not by return from main: a disk that hangs may hold a thread, which would
  // be joined. Open calls see UNAVAILABLE, and the state is memory only.
  std::quick_exit(EndTask(why, *task.stop));
}

void AddFlags(CLI::App* app, Flags* flags) {
  AddOption(app, "--address", &flags->address,
            "listen here in place of the own address in the cluster");
  AddOption(app, "--transport", &flags->transport,
            "auto: clients on this host may use shared memory; grpc: "
            "none may")
      .OneOf({"auto", "grpc"})
      .ShowDefault();
  AddOption(app, "--grace_seconds", &flags->grace_seconds,
            "after SIGTERM: how long the chief may take to save the job")
      .Range(0.0, 3600.0)
      .ShowDefault();
  AddOption(app, "--checkpoint_root", &flags->checkpoint_root,
            "read and write checkpoints here and nowhere else: what is "
            "WORKDIR/checkpoints on the chief's host, or "
            "s3://BUCKET/PREFIX/checkpoints for its --checkpoints");
  AddOption(app, "--audit_log", &flags->audit_log,
            "append here who controlled this ps and who was refused; "
            "default the log");
  AddOption(app, "--queues", &flags->queues,
            "completion queues, one thread each")
      .ShowDefault();
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  return weir::TaskMain(argc, argv, weir::TaskRole::kPs,
                        "one parameter server of a cluster", weir::AddFlags,
                        weir::Serve);
}
