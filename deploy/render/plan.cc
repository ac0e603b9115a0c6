#include "deploy/render/plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/exit_code.h"
#include "common/base/status.h"
#include "deploy/launcher/user_command.h"
#include "deploy/render/data_shape.h"
#include "deploy/render/plan_checks.h"
#include "deploy/render/quantity.h"

namespace weir {
namespace {

// A label of DNS.
constexpr size_t kNameCharsMax = 63;

// What gRPC of a ps may hold of messages on their way, beyond what is usual:
// PsServer::Options::wire_bytes_max.
constexpr int64_t kPsBurstBytes = 512 * kMiB;

// A chief holds the job's curve and a message for each worker.
constexpr int64_t kChiefRequest = 128 * kMiB;
constexpr int64_t kChiefLimit = 512 * kMiB;

// Where nothing is known of a job.
constexpr int64_t kUnknownPsRequest = kGiB;
constexpr int64_t kUnknownWorkerRequest = 2 * kGiB;
constexpr int64_t kUnknownStorage = 10 * kGiB;

constexpr int kDefaultPort = 2222;

constexpr int kPsMilliCpus = 1000;
constexpr int kChiefMilliCpus = 100;

// The job's name in a form that DNS takes: "ctr_dlrm" is "ctr-dlrm".
std::string DnsForm(const std::string& name) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(name),
                             {{"_", "-"}, {".", "-"}});
}

absl::Status ChooseName(const RenderJob* job, RenderPlan* plan) {
  if (!plan->options.name.empty()) {
    plan->name = plan->options.name;
  } else if (job != nullptr) {
    plan->name = DnsForm(job->spec.name());
  } else {
    plan->name = DnsForm(RunName(plan->options.command));
  }
  plan->choices.push_back({"name", plan->name,
                           plan->options.name.empty()
                               ? "the job's or the program's own"
                               : "--name"});
  return CheckName(plan->name);
}

// Codes after which the job ends. `weir task` starts no program again after one
// below 128, and a program of the user's may end with any of them.
std::vector<int> PermanentCodes(bool user_program) {
  if (!user_program) {
    // A runtime says 126 or 127 of a program that it cannot start.
    return {kExitBug, kExitUsage, kExitPermanent, kExitDataLoss, kExitRefused,
            126,      127};
  }
  std::vector<int> codes;
  for (int code = 1; code < 128; ++code) {
    if (code != kExitReplaced) {
      codes.push_back(code);
    }
  }
  return codes;
}

void ChooseMemory(const MemoryNeed* need, int64_t otherwise, int64_t burst,
                  const std::string& unknown, RolePlan* role,
                  std::vector<Choice>* choices) {
  role->memory_request =
      need == nullptr ? otherwise : RoundUpMemory(need->total());
  role->memory_limit =
      role->memory_request + (burst > 0 ? burst : role->memory_request);
  choices->push_back({absl::StrCat(role->name(), " memory request"),
                      FormatMemory(role->memory_request),
                      need == nullptr ? absl::StrCat("not computed: ", unknown)
                                      : need->ToString()});
  choices->push_back(
      {absl::StrCat(role->name(), " memory limit"),
       FormatMemory(role->memory_limit),
       burst > 0 ? "the request and what messages on their way may take at most"
                 : "twice the request, for buffers and for what the allocator "
                   "keeps"});
}

struct RoleMaker {
  const RenderJob* job;
  RenderPlan* plan;

  std::string Unknown() const {
    if (job == nullptr) {
      return "a user's program says nothing of its model; set --memory";
    }
    return absl::StrCat(job->memory.unknown,
                        "; name the data by --local_data, or set --memory");
  }
  const MemoryNeed* Need(const MemoryNeed JobMemory::*need) const {
    const bool known = job != nullptr && job->memory.unknown.empty();
    return known ? &(job->memory.*need) : nullptr;
  }
  void AddCpu(RolePlan* role, int milli_cpus, const std::string& why) const {
    role->milli_cpus = milli_cpus;
    plan->choices.push_back({absl::StrCat(role->name(), " CPU request"),
                             FormatCpu(milli_cpus), why});
  }

  RolePlan Make(TaskRole kind, int count) const {
    RolePlan role;
    role.role = kind;
    role.count = count;
    role.image = plan->options.weir_image;
    if (job != nullptr && !plan->options.image.empty()) {
      role.image = plan->options.image;
    }
    role.permanent_codes = PermanentCodes(/*user_program=*/false);
    return role;
  }

  void AddPs() const {
    RolePlan ps = Make(TaskRole::kPs, plan->options.ps_count);
    // By the job file it knows DONE of its own job, if no chief is left to end
    // it.
    ps.reads_job = job != nullptr;
    AddCpu(&ps, kPsMilliCpus,
           "one thread receives and applies, and may take more: no CPU limit");
    ChooseMemory(Need(&JobMemory::ps), kUnknownPsRequest, kPsBurstBytes,
                 Unknown(), &ps, &plan->choices);
    plan->roles.push_back(std::move(ps));
  }
  void AddChief() const {
    RolePlan chief = Make(TaskRole::kChief, 1);
    chief.reads_job = job != nullptr;
    AddCpu(&chief, kChiefMilliCpus, "it sees no gradient");
    chief.memory_request = kChiefRequest;
    chief.memory_limit = kChiefLimit;
    plan->choices.push_back({"chief memory request",
                             FormatMemory(kChiefRequest),
                             "the job's state and curve; it holds no values"});
    plan->roles.push_back(std::move(chief));
  }
  // Worker or evaluator.
  void AddComputing(TaskRole kind, int count,
                    const MemoryNeed JobMemory::*need) const {
    RolePlan role = Make(kind, count);
    role.reads_job = job != nullptr;
    role.reads_data = true;
    role.gpus = plan->options.gpus;
    if (kind == TaskRole::kEvaluator) {
      role.gpus = std::min(role.gpus, 1);  // of several it would use the first
    }
    int threads = 1;
    if (job == nullptr) {
      role.image = plan->options.image;
      role.permanent_codes = PermanentCodes(/*user_program=*/true);
      AddCpu(&role, 1000, "not known of a user's program; set --cpu");
    } else {
      threads = static_cast<int>(job->spec.compute().threads());
      AddCpu(&role, threads * 1000, "compute.threads of the job");
    }
    ChooseMemory(Need(need), kUnknownWorkerRequest, 0, Unknown(), &role,
                 &plan->choices);
    plan->roles.push_back(std::move(role));
  }
};

// I1. In the order in which a reader of the files should meet them.
absl::Status AddRoles(const RenderJob* job, RenderPlan* plan) {
  const RenderOptions& options = plan->options;
  const RoleMaker maker{job, plan};
  maker.AddPs();
  if (options.chief) {
    maker.AddChief();
  }
  maker.AddComputing(TaskRole::kWorker, options.worker_count,
                     &JobMemory::worker);
  RolePlan& worker = plan->roles.back();
  worker.command = options.command;
  worker.hosts_chief = !options.chief;
  // A worker of a job file looks there whether the job is done, and writes
  // nothing. A program may write what it likes.
  if (options.chief && job != nullptr && !plan->in_store()) {
    worker.run_volume = RunVolume::kReadOnly;
  }
  bool evaluator = !options.evaluator_command.empty();
  if (job != nullptr) {
    evaluator = options.evaluator.value_or(job->spec.has_evaluation());
  }
  if (evaluator) {
    maker.AddComputing(TaskRole::kEvaluator, 1, &JobMemory::evaluator);
    WEIR_ASSIGN_OR_RETURN(plan->roles.back().command,
                          SplitWords(options.evaluator_command));
  }
  return absl::OkStatus();
}

// Calls `set` with the role and the value of every option for one role.
template <typename Value, typename Set>
absl::Status ForRoles(absl::string_view option, const ByRole<Value>& by_role,
                      RenderPlan* plan, const Set& set) {
  for (const auto& [kind, value] : by_role) {
    auto role = plan->roles.begin();
    while (role != plan->roles.end() && role->role != kind) {
      ++role;
    }
    if (role == plan->roles.end()) {
      return Invalid(option, " ", RoleName(kind), ": this job has no ",
                     RoleName(kind));
    }
    set(&*role, value);
  }
  return absl::OkStatus();
}

absl::Status ApplyRoleOptions(RenderPlan* plan) {
  const RenderOptions& options = plan->options;
  WEIR_ASSIGN_OR_RETURN(const auto tolerations,
                        ParseTolerations(options.tolerations));
  WEIR_ASSIGN_OR_RETURN(const auto selectors,
                        ParseNodeSelectors(options.node_selectors));
  WEIR_ASSIGN_OR_RETURN(const auto cpus, ParseCpus(options.cpus));
  WEIR_ASSIGN_OR_RETURN(const auto memories, ParseMemories(options.memories));
  std::vector<Choice>* const choices = &plan->choices;
  WEIR_RETURN_IF_ERROR(ForRoles(
      "--tolerate", tolerations, plan,
      [](RolePlan* role, const auto& value) { role->tolerations = value; }));
  WEIR_RETURN_IF_ERROR(ForRoles(
      "--node", selectors, plan,
      [](RolePlan* role, const auto& value) { role->node_selector = value; }));
  WEIR_RETURN_IF_ERROR(
      ForRoles("--cpu", cpus, plan, [choices](RolePlan* role, int value) {
        role->milli_cpus = value;
        choices->push_back({absl::StrCat(role->name(), " CPU request"),
                            FormatCpu(value), "--cpu, in place of that"});
      }));
  return ForRoles(
      "--memory", memories, plan, [choices](RolePlan* role, int64_t value) {
        role->memory_request = value;
        role->memory_limit = value;
        choices->push_back({absl::StrCat(role->name(), " memory"),
                            FormatMemory(value),
                            "--memory, in place of that: request and limit"});
      });
}

void ChooseData(const RenderJob* job, RenderPlan* plan) {
  const RenderOptions& options = plan->options;
  DataPlan* const data = &plan->data;
  data->folder = options.data_dir;
  if (!options.data_claim.empty()) {
    data->source = DataPlan::Source::kClaim;
    data->claim = options.data_claim;
  } else if (!options.data_bucket.empty()) {
    data->source = DataPlan::Source::kBucket;
    data->bucket = options.data_bucket;
    data->copy_image = options.data_copy_image;
  } else if (!options.data_image_path.empty()) {
    data->source = DataPlan::Source::kImage;
    data->folder = options.data_image_path;
  } else if (job != nullptr && options.target != "slurm" &&
             !IsObjectUrl(options.data_dir)) {
    data->folder = "";  // the job makes its data
    return;
  }
  if (data->folder.empty() && data->source != DataPlan::Source::kNone) {
    data->folder = "/data";
  }
}

void ChooseStorage(const RenderJob* job, RenderPlan* plan) {
  if (plan->in_store()) {
    return;
  }
  if (!plan->options.storage.empty() || !plan->options.run_claim.empty()) {
    plan->storage = plan->options.storage;
    return;
  }
  std::string why = "not computed; set --storage";
  double bytes = static_cast<double>(kUnknownStorage);
  if (job != nullptr && job->memory.unknown.empty()) {
    // One is written while the oldest is still there, and one more is exported.
    const double copies = job->spec.checkpoint().keep() + 2.0;
    bytes = copies * job->memory.checkpoint_bytes;
    why = absl::StrCat(copies, " checkpoints of ",
                       ReadableBytes(job->memory.checkpoint_bytes),
                       " (checkpoint.keep and two), and whole GiB");
  }
  const auto gibibytes =
      static_cast<int64_t>(bytes / static_cast<double>(kGiB)) + 1;
  plan->storage = absl::StrCat(gibibytes, "Gi");
  plan->choices.push_back({"storage", plan->storage, why});
}

void ChooseDevice(RenderPlan* plan) {
  plan->device = plan->options.device;
  if (plan->device != "auto") {
    return;
  }
  if (plan->options.gpus == 0) {
    plan->device = "cpu";
  } else if (plan->options.target != "slurm") {
    plan->device = plan->options.gpus == 1 ? "cuda" : "cuda:all";
  }
  plan->choices.push_back(
      {"device", plan->device, absl::StrCat("--gpu ", plan->options.gpus)});
}

}  // namespace

absl::Status CheckName(const std::string& name) {
  const bool characters =
      std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
      });
  if (name.empty() || !characters || name.back() == '-' ||
      !absl::ascii_islower(static_cast<unsigned char>(name[0]))) {
    return Invalid("name '", name,
                   "': hosts are named by it, so use a-z, 0-9 and -, from a "
                   "letter on; choose one with --name");
  }
  if (name.size() > kNameCharsMax) {
    return Invalid("name '", name, "' has ", name.size(),
                   " characters, more than ", kNameCharsMax,
                   "; choose a shorter one with --name");
  }
  return absl::OkStatus();
}

const RolePlan* RenderPlan::Find(TaskRole role) const {
  for (const RolePlan& found : roles) {
    if (found.role == role) {
      return &found;
    }
  }
  return nullptr;
}

int RenderPlan::task_count() const {
  int count = 0;
  for (const RolePlan& role : roles) {
    count += role.count;
  }
  return count;
}

// I3. Nothing but the arguments is looked at: no file, no clock, no host.
absl::StatusOr<RenderPlan> MakeRenderPlan(const RenderOptions& options,
                                          const RenderJob* job) {
  WEIR_RETURN_IF_ERROR(CheckRenderOptions(options, job));
  RenderPlan plan;
  plan.options = options;
  if (options.port == 0 && options.target != "slurm") {
    plan.options.port = kDefaultPort;
  }
  WEIR_RETURN_IF_ERROR(ChooseName(job, &plan));
  WEIR_RETURN_IF_ERROR(AddRoles(job, &plan));
  WEIR_RETURN_IF_ERROR(ApplyRoleOptions(&plan));
  ChooseData(job, &plan);
  ChooseStorage(job, &plan);
  if (job != nullptr) {
    ChooseDevice(&plan);
    plan.job_text = job->text;
    plan.job_file = absl::EndsWith(options.job_path, ".json") ? "job.json"
                                                              : "job.textproto";
    plan.remarks = job->memory.assumptions;
    if (!job->memory.unknown.empty()) {
      plan.remarks.push_back(absl::StrCat(
          "The memory of ps and workers is not computed, because ",
          job->memory.unknown, ": name the data by --local_data."));
    }
  } else {
    plan.remarks.push_back(
        "The memory of ps and workers is not computed for a user's program: "
        "set --memory.");
  }
  // I2. The name, and never the value, which nobody has told us.
  if (!options.tls) {
    plan.secret = options.secret.empty() ? absl::StrCat(plan.name, "-secret")
                                         : options.secret;
  }
  plan.choices.push_back({"grace", absl::StrCat(options.grace_seconds, " s"),
                          "what a checkpoint may take after SIGTERM; a spot "
                          "node leaves about 30"});
  return plan;
}

std::vector<std::pair<std::string, std::string>> StoreVariables(
    const RenderPlan& plan) {
  std::vector<std::pair<std::string, std::string>> variables;
  if (!plan.options.store_endpoint.empty()) {
    variables.emplace_back("AWS_ENDPOINT_URL", plan.options.store_endpoint);
  }
  if (!plan.options.store_region.empty()) {
    variables.emplace_back("AWS_REGION", plan.options.store_region);
  }
  return variables;
}

bool ShowsMetrics(const RenderPlan& plan, const RolePlan& role) {
  return plan.options.metrics && role.command.empty();
}

std::vector<std::string> TaskWords(const RenderPlan& plan, const RolePlan& role,
                                   const std::string& job,
                                   const std::string& workdir) {
  std::vector<std::string> words = {"task"};
  if (role.reads_job) {
    words.push_back(absl::StrCat("--job=", job));
    for (const std::string& set : plan.options.sets) {
      words.push_back(absl::StrCat("--set=", set));
    }
  }
  words.push_back(absl::StrCat("--workdir=", workdir));
  if (plan.in_store()) {
    words.push_back(absl::StrCat("--checkpoints=", plan.options.checkpoints));
  }
  words.push_back(absl::StrCat("--grace_seconds=", plan.options.grace_seconds));
  // A user's program does not get it from `weir task`.
  if (plan.options.metrics) {
    words.push_back("--admin_address=0.0.0.0");
  }
  if (role.reads_job && role.reads_data) {
    if (!plan.data.folder.empty()) {
      words.push_back(absl::StrCat("--data_dir=", plan.data.folder));
    }
    std::string device = plan.device;
    if (role.role == TaskRole::kEvaluator && role.gpus == 1) {
      device = "cuda";  // its container sees no second one
    }
    words.push_back(absl::StrCat("--device=", device));
  }
  const bool chief = role.role == TaskRole::kChief || role.hosts_chief;
  if (chief && role.reads_job && plan.Find(TaskRole::kEvaluator) != nullptr) {
    words.push_back("--evaluator_expected");
  }
  if (chief && plan.options.allow_older) {
    words.push_back("--allow_older");
  }
  if (chief && plan.options.allow_unguarded) {
    words.push_back("--allow_unguarded");
  }
  if (!role.command.empty()) {
    words.push_back("--");
    words.insert(words.end(), role.command.begin(), role.command.end());
  }
  return words;
}

}  // namespace weir
