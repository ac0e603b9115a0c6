// One Volcano Job, which gives every task its TF_CONFIG.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/exit_code.h"
#include "common/base/status.h"
#include "deploy/render/cluster_objects.h"
#include "deploy/render/members.h"
#include "deploy/render/pods.h"
#include "deploy/render/yaml.h"

namespace weir {
namespace {

std::string HostName(const RenderPlan& plan, const RolePlan& role, int index) {
  return absl::StrCat(plan.name, "-", role.name(), "-", index);
}

// The policies of every task. The first that fits decides. A pod that ended
// with 5, replaced by a newer one, is to stay ended. Volcano has no action that
// does nothing, but ResumeJob is for an aborted job and leaves one that runs as
// it is.
Tree Policies(const RenderPlan& plan) {
  Tree policies = Tree::array();
  policies.push_back({{"event", "PodEvicted"}, {"action", "RestartPod"}});
  for (const int code : plan.Find(TaskRole::kWorker)->permanent_codes) {
    policies.push_back({{"exitCode", code}, {"action", "AbortJob"}});
  }
  policies.push_back({{"exitCode", kExitReplaced}, {"action", "ResumeJob"}});
  // Another start mends the rest: codes of signals and of `weir task`, and a
  // pod that failed before its program had a code.
  policies.push_back({{"event", "PodFailed"}, {"action", "RestartPod"}});
  return policies;
}

class VolcanoTarget : public Target {
 public:
  absl::Status Check(const RenderPlan& plan) const override {
    return CheckPodNames(plan, 0, [&](const RolePlan& role, int index) {
      return HostName(plan, role, index);
    });
  }

  std::string Render(const RenderPlan& plan) const override {
    std::vector<Document> documents = ClusterObjects(plan);
    documents.push_back(Job(plan));
    std::vector<std::string> head = HeadComment(
        plan, absl::StrCat("Weir job ", plan.name, " for Volcano 1.12+."),
        "vcjob,networkpolicy,poddisruptionbudget,configmap");
    return KubernetesFile(std::move(head), std::move(documents));
  }

  std::vector<Choice> Choices(const RenderPlan& plan) const override {
    return WithClusterChoices(
        {{"minAvailable", absl::StrCat(plan.task_count()),
          "a gang: the job starts when all of its pods fit"},
         {"policies", "AbortJob on permanent codes, RestartPod on the others",
          "an aborted job can be resumed once its cause is mended, and goes on "
          "from the newest checkpoint"}},
        plan);
  }

 private:
  static Document Job(const RenderPlan& plan) {
    const Tree done = {{"event", "TaskCompleted"}, {"action", "CompleteJob"}};
    Tree tasks = Tree::array();
    Tree tensorflow = Tree::array();
    for (const RolePlan& role : plan.roles) {
      PodStyle style;
      style.port_name = kPortName;
      Tree task = {{"name", role.name()}, {"replicas", role.count}};
      if (role.role == TaskRole::kChief || role.hosts_chief) {
        task["policies"] = Tree::array({done});
      }
      task["template"] = PodTemplate(plan, role, style);
      tasks.push_back(std::move(task));
      tensorflow.push_back(absl::StrCat("--", role.name(), "=", role.name()));
    }
    tensorflow.push_back(absl::StrCat("--port=", plan.options.port));
    Tree spec = {{"schedulerName", "volcano"},
                 {"minAvailable", plan.task_count()}};
    if (!plan.options.queue.empty()) {
      spec["queue"] = plan.options.queue;
    }
    spec["maxRetry"] = NewPodsMax(plan.task_count());
    spec["plugins"] = {{"tensorflow", tensorflow},
                       {"svc",
                        {"--publish-not-ready-addresses=true",
                         "--disable-network-policy=true"}}};
    spec["policies"] = Policies(plan);
    spec["tasks"] = std::move(tasks);
    return {
        {"The whole job. The plugin tensorflow gives each pod its TF_CONFIG,",
         "and svc its name."},
        {{"apiVersion", "batch.volcano.sh/v1alpha1"},
         {"kind", "Job"},
         {"metadata", Metadata(plan, plan.name, "job")},
         {"spec", spec}}};
  }
};

}  // namespace

std::unique_ptr<Target> MakeVolcanoTarget() {
  return std::make_unique<VolcanoTarget>();
}

}  // namespace weir
