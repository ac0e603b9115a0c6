// Kubernetes alone: an Indexed Job for each role behind one headless Service.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "deploy/render/cluster_objects.h"
#include "deploy/render/members.h"
#include "deploy/render/pods.h"
#include "deploy/render/yaml.h"

namespace weir {
namespace {

// The characters that a Job adds to a pod's name.
constexpr size_t kRandomSuffix = 6;

std::string JobName(const RenderPlan& plan, const RolePlan& role) {
  return absl::StrCat(plan.name, "-", role.name());
}

class K8sTarget : public Target {
 public:
  absl::Status Check(const RenderPlan& plan) const override {
    return CheckPodNames(plan, kRandomSuffix,
                         [&](const RolePlan& role, int index) {
                           return absl::StrCat(JobName(plan, role), "-", index);
                         });
  }

  std::string Render(const RenderPlan& plan) const override {
    std::vector<Document> documents = ClusterObjects(plan);
    documents.push_back(HeadlessService(plan));
    const std::string cluster =
        ClusterText(plan, [&](const RolePlan& role, int index) {
          return absl::StrCat(JobName(plan, role), "-", index, ".", plan.name);
        });
    for (const RolePlan& role : plan.roles) {
      documents.push_back(Job(plan, role, cluster));
    }
    std::vector<std::string> head = HeadComment(
        plan, absl::StrCat("Weir job ", plan.name, " for Kubernetes 1.29+."),
        "job,service,networkpolicy,poddisruptionbudget,configmap");
    if (!plan.options.queue.empty()) {
      head.emplace_back("");
      head.emplace_back(
          "Kueue admits each Job by itself. The target jobset has one object, "
          "which is");
      head.emplace_back("admitted as a whole.");
    }
    return KubernetesFile(std::move(head), std::move(documents));
  }

  std::vector<Choice> Choices(const RenderPlan& plan) const override {
    return WithClusterChoices(
        {{"kind", "Indexed Job for every role",
          "hosts have stable names, a ps ends with the job, and every cluster "
          "has it; a StatefulSet never ends"},
         {"podFailurePolicy", "Ignore disruptions and 5; FailJob on the rest",
          "a code below 64 is permanent (docs/exit_codes.md); 5 ends a process "
          "that a newer one has replaced"}},
        plan);
  }

 private:
  static Document Job(const RenderPlan& plan, const RolePlan& role,
                      const std::string& cluster) {
    PodStyle style;
    style.port_name = kPortName;
    style.subdomain = plan.name;
    style.env = IndexedEnv(plan, role, cluster);
    Tree metadata = Metadata(plan, JobName(plan, role), role.name());
    if (!plan.options.queue.empty()) {
      metadata["labels"]["kueue.x-k8s.io/queue-name"] = plan.options.queue;
    }
    return {{},
            {{"apiVersion", "batch/v1"},
             {"kind", "Job"},
             {"metadata", metadata},
             {"spec", IndexedJobSpec(plan, role, style)}}};
  }
};

}  // namespace

std::unique_ptr<Target> MakeK8sTarget() {
  return std::make_unique<K8sTarget>();
}

}  // namespace weir
