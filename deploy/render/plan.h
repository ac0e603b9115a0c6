// What is going to run, decided before any file is written.
//
// Place: between the command line (options.h) and the targets (target.h). It
// reads and writes nothing: render.cc hands it the job file.
//
// Terms
//   role   ps, chief, worker or evaluator, with as many tasks as it has.
//   args   the words behind `weir` in the command of every task of a role.
//   choice a value that the plan has chosen, and why: what --explain prints.
//
// Invariants
//   I1. Every role that the job has is in `roles` once, in the order ps, chief,
//       worker, evaluator, with one task at least.
//   I2. No value of a secret is in a plan, only the name of what holds it.
//   I3. The same options and job file give the same plan.
// Threads: safe.
// Errors: INVALID_ARGUMENT  one line, which names the option and says what to
//                           do.
#ifndef DEPLOY_RENDER_PLAN_H_
#define DEPLOY_RENDER_PLAN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/cluster_spec.h"
#include "common/objects/any_store.h"
#include "deploy/render/job_memory.h"
#include "deploy/render/options.h"
#include "deploy/render/role_options.h"
#include "proto/job_spec.pb.h"

namespace weir {

// A job file as it was read, and what follows from it.
struct RenderJob {
  std::string text;
  JobSpec spec;  // with --set and defaults
  JobMemory memory;
};

// Where a container finds things.
struct ContainerPaths {
  static constexpr char kJobFolder[] = "/etc/weir";
  static constexpr char kRun[] = "/run/weir";
  static constexpr char kSecretFolder[] = "/run/secrets/weir";
  static constexpr char kTlsFolder[] = "/run/secrets/weir-tls";
  static constexpr char kStoreFolder[] = "/run/secrets/weir-store";
};

// The user and group of Weir's image.
inline constexpr int kContainerUser = 10001;

enum class RunVolume { kReadOnly, kReadWrite };

struct RolePlan {
  TaskRole role = TaskRole::kWorker;
  int count = 1;
  std::string image;
  // The user's program, or empty: Weir's own.
  std::vector<std::string> command;
  bool reads_job = false;
  bool reads_data = false;
  bool hosts_chief = false;  // task 0 does
  RunVolume run_volume = RunVolume::kReadWrite;
  int milli_cpus = 0;
  int64_t memory_request = 0;  // bytes, multiples of 1 MiB
  int64_t memory_limit = 0;
  int gpus = 0;
  std::vector<Toleration> tolerations;
  std::map<std::string, std::string> node_selector;
  // Codes after which another start does not help: they end the job.
  std::vector<int> permanent_codes;

  std::string name() const { return RoleName(role); }
};

struct DataPlan {
  enum class Source { kNone, kClaim, kImage, kBucket };
  Source source = Source::kNone;
  std::string folder;  // in the container; "": the job reads no files
  std::string claim;
  std::string bucket;
  std::string copy_image;
};

struct Choice {
  std::string what;
  std::string value;
  std::string why;
};

struct RenderPlan {
  RenderOptions options;  // the rest, which needs no decision
  std::string name;
  std::vector<RolePlan> roles;
  DataPlan data;
  std::string job_text;  // "": a user's program
  std::string job_file;  // its name in a container: "job.textproto"
  std::string device;    // of workers and evaluator, of a job file
  std::string secret;    // the name of the Secret; "": certificates
  std::string storage;
  std::vector<Choice> choices;
  // What a reader of the files should know, in sentences.
  std::vector<std::string> remarks;

  // Null if the job has no task of that role.
  const RolePlan* Find(TaskRole role) const;
  int task_count() const;
  bool user_program() const { return !options.command.empty(); }
  // The run's state is in an object store, and there is no volume for it.
  bool in_store() const { return !options.checkpoints.empty(); }
  // The tasks call an object store: for that, or for the data.
  bool uses_store() const { return in_store() || IsObjectUrl(data.folder); }
};

// `job` is null for a user's program.
absl::StatusOr<RenderPlan> MakeRenderPlan(const RenderOptions& options,
                                          const RenderJob* job);

// What every target asks of a job's name.
absl::Status CheckName(const std::string& name);

// Variables that every task needs for the object store; no secret (I2).
std::vector<std::pair<std::string, std::string>> StoreVariables(
    const RenderPlan& plan);

// Whether the program of a role has an admin port that the cluster may reach.
bool ShowsMetrics(const RenderPlan& plan, const RolePlan& role);

// The words behind `weir` of a task. `job` and `workdir` are paths where it
// runs.
std::vector<std::string> TaskWords(const RenderPlan& plan, const RolePlan& role,
                                   const std::string& job,
                                   const std::string& workdir);

}  // namespace weir

#endif  // DEPLOY_RENDER_PLAN_H_
