// A compose file: every task is a service on one host.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "deploy/render/members.h"
#include "deploy/render/pods.h"
#include "deploy/render/quantity.h"
#include "deploy/render/yaml.h"

namespace weir {
namespace {

constexpr int kGraceExtraSeconds = 5;
// Of the object store. Weir takes an empty one for none.
constexpr const char* kCallersKeys[] = {
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"};

std::string ServiceName(const RolePlan& role, int index) {
  return absl::StrCat(role.name(), "-", index);
}

// A path that compose takes for a path, and not for the name of a volume.
std::string HostPath(const std::string& path) {
  return path[0] == '/' || path[0] == '.' ? path : absl::StrCat("./", path);
}

bool IsPath(const std::string& source) {
  return source[0] == '/' || source[0] == '.';
}

// Every container that asks for a number of GPUs would get the first ones of
// the host. Workers have others than each other; the evaluator has worker 0's
// first.
Tree DeviceIds(const RolePlan& role, int index) {
  Tree ids = Tree::array();
  for (int i = 0; i < role.gpus; ++i) {
    ids.push_back(absl::StrCat(index * role.gpus + i));
  }
  return ids;
}

class ComposeTarget : public Target {
 public:
  absl::Status Check(const RenderPlan& plan) const override {
    const RenderOptions& options = plan.options;
    const std::pair<const char*, bool> unknown[] = {
        {"--namespace", !options.name_space.empty()},
        {"--queue", !options.queue.empty()},
        {"--tolerate", !options.tolerations.empty()},
        {"--node", !options.node_selectors.empty()},
        {"--storage_class", !options.storage_class.empty()},
        {"--storage", !options.storage.empty()},
        {"--service_account", !options.service_account.empty()},
        {"--secret", !options.secret.empty()},
        {"--tls", options.tls},
        {"--data_bucket", !options.data_bucket.empty()},
        {"--store_secret", !options.store_secret.empty()}};
    for (const auto& [flag, given] : unknown) {
      if (given) {
        return Invalid(flag,
                       ": a compose file has no such thing; leave it out");
      }
    }
    return absl::OkStatus();
  }

  std::string Render(const RenderPlan& plan) const override {
    const std::string cluster =
        ClusterText(plan, [](const RolePlan& role, int index) {
          return ServiceName(role, index);
        });
    Tree services = Tree::object();
    for (const RolePlan& role : plan.roles) {
      for (int i = 0; i < role.count; ++i) {
        services[ServiceName(role, i)] = Service(plan, role, i, cluster);
      }
    }
    Tree volumes = Tree::object();
    if (plan.options.run_claim.empty() && !plan.in_store()) {
      volumes["run"] = Tree::object();
    } else if (!plan.in_store()) {
      volumes["run"] = {{"name", plan.options.run_claim}, {"external", true}};
    }
    if (plan.data.source == DataPlan::Source::kClaim &&
        !IsPath(plan.data.claim)) {
      volumes["data"] = {{"name", plan.data.claim}, {"external", true}};
    }
    const Tree body = {
        {"name", plan.name}, {"services", services}, {"volumes", volumes}};
    const std::vector<Document> documents = {{Head(plan), body}};
    return ToYaml(documents);
  }

  std::vector<Choice> Choices(const RenderPlan& /*plan*/) const override {
    return {{"restart", "on-failure:10",
             "a container that ran out of memory comes back; a wrong job does "
             "not for ever"},
            {"secret", "WEIR_SECRET of the caller",
             "a secret's file would be readable by every user or by none"}};
  }

 private:
  static std::vector<std::string> Head(const RenderPlan& plan) {
    std::vector<std::string> lines = {
        absl::StrCat("Weir job ", plan.name, " on one host, with compose."),
        "",
        "Make the job's secret first; its value stands in no file:",
        "  export WEIR_SECRET=$(weir secret)",
        "Start it with:    docker compose -f FILE up -d",
        "Look at it with:  docker compose -f FILE logs -f",
        "Delete it with:   docker compose -f FILE down",
        "The checkpoints stay, and the job goes on from the newest one when it "
        "is",
        "started again."};
    if (plan.uses_store()) {
      lines.emplace_back("The keys of the object store are the caller's, too:");
      lines.emplace_back(
          "  export AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=...");
    }
    if (!plan.job_text.empty()) {
      lines.emplace_back("Paths are relative to this file.");
    }
    if (!plan.remarks.empty()) {
      lines.emplace_back("");
      AppendWrapped(plan.remarks, &lines);
    }
    return lines;
  }

  static Tree Volumes(const RenderPlan& plan, const RolePlan& role) {
    const bool read_only = role.run_volume == RunVolume::kReadOnly;
    Tree volumes = Tree::array();
    if (!plan.in_store()) {
      volumes.push_back(
          absl::StrCat("run:", ContainerPaths::kRun, read_only ? ":ro" : ""));
    }
    if (role.reads_job) {
      volumes.push_back(absl::StrCat(Escaped(HostPath(plan.options.job_path)),
                                     ":", ContainerPaths::kJobFolder, "/",
                                     plan.job_file, ":ro"));
    }
    if (role.reads_data && plan.data.source == DataPlan::Source::kClaim) {
      volumes.push_back(absl::StrCat(
          IsPath(plan.data.claim) ? Escaped(plan.data.claim) : "data", ":",
          plan.data.folder, ":ro"));
    }
    return volumes;
  }

  static Tree Service(const RenderPlan& plan, const RolePlan& role, int index,
                      const std::string& cluster) {
    std::vector<std::string> words =
        TaskWords(plan, role,
                  absl::StrCat(ContainerPaths::kJobFolder, "/", plan.job_file),
                  ContainerPaths::kRun);
    std::transform(words.begin(), words.end(), words.begin(), Escaped);
    Tree environment = {
        {"WEIR_CLUSTER", cluster},
        {"WEIR_TASK_TYPE", role.name()},
        {"WEIR_TASK_INDEX", absl::StrCat(index)},
        {"WEIR_SECRET", "${WEIR_SECRET:?is not set, see above}"}};
    for (const auto& [name, value] : StoreVariables(plan)) {
      environment[name] = Escaped(value);
    }
    if (plan.uses_store()) {
      for (const char* name : kCallersKeys) {
        environment[name] = absl::StrCat("${", name, ":-}");
      }
    }
    Tree scratch = {"/tmp"};
    if (plan.in_store()) {
      scratch.push_back(ContainerPaths::kRun);
    }
    if (!role.command.empty()) {
      environment["HOME"] = "/tmp";
    }
    Tree service = {
        {"image", role.image},
        {"entrypoint", {"weir"}},
        {"command", words},
        {"environment", environment},
        {"user", absl::StrCat(kContainerUser, ":", kContainerUser)},
        {"read_only", true},
        {"cap_drop", {"ALL"}},
        {"security_opt", {"no-new-privileges:true"}},
        {"tmpfs", scratch},
        {"mem_limit", absl::StrCat(role.memory_limit / kMiB, "m")},
        {"restart", "on-failure:10"},
        {"stop_grace_period",
         absl::StrCat(plan.options.grace_seconds + kGraceExtraSeconds, "s")},
        {"healthcheck",
         {{"test", {"CMD", "weir", "probe"}},
          {"interval", "10s"},
          {"timeout", "5s"}}},
        {"volumes", Volumes(plan, role)}};
    if (role.gpus > 0) {
      const Tree device = {{"driver", "nvidia"},
                           {"device_ids", DeviceIds(role, index)},
                           {"capabilities", {"gpu"}}};
      service["deploy"] = {
          {"resources",
           {{"reservations", {{"devices", Tree::array({device})}}}}}};
    }
    return service;
  }
};

}  // namespace

std::unique_ptr<Target> MakeComposeTarget() {
  return std::make_unique<ComposeTarget>();
}

}  // namespace weir
