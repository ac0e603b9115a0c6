// One TFJob of Kubeflow, which gives every task its TF_CONFIG.
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

// The operator finds the container and its port by these names.
constexpr char kContainer[] = "tensorflow";
constexpr char kTfJobPort[] = "tfjob-port";
constexpr int kBackoffLimit = 1000;

const char* ReplicaType(TaskRole role) {
  switch (role) {
    case TaskRole::kPs:
      return "PS";
    case TaskRole::kChief:
      return "Chief";
    case TaskRole::kWorker:
      return "Worker";
    case TaskRole::kEvaluator:
      return "Evaluator";
  }
  return "";
}

class TfJobTarget : public Target {
 public:
  absl::Status Check(const RenderPlan& plan) const override {
    return CheckPodNames(plan, 0, [&](const RolePlan& role, int index) {
      return absl::StrCat(plan.name, "-", role.name(), "-", index);
    });
  }

  std::string Render(const RenderPlan& plan) const override {
    std::vector<Document> documents = ClusterObjects(plan);
    documents.push_back(Job(plan));
    std::vector<std::string> head = HeadComment(
        plan,
        absl::StrCat("Weir job ", plan.name, " for Kubeflow's TFJob 1.9."),
        "tfjob,networkpolicy,poddisruptionbudget,configmap");
    return KubernetesFile(std::move(head), std::move(documents));
  }

  std::vector<Choice> Choices(const RenderPlan& plan) const override {
    return WithClusterChoices(
        {{"restartPolicy", "ExitCode",
          "the operator takes 1 to 127 for permanent and makes a new pod after "
          "the others; it knows no exception for 5"},
         {"cleanPodPolicy", "Running",
          "pods that are left when the chief is done go, and the logs of the "
          "others stay"}},
        plan);
  }

 private:
  static Document Job(const RenderPlan& plan) {
    Tree replicas = Tree::object();
    for (const RolePlan& role : plan.roles) {
      PodStyle style;
      style.container = kContainer;
      style.port_name = kTfJobPort;
      style.never_restarts = false;
      replicas[ReplicaType(role.role)] = {
          {"replicas", role.count},
          {"restartPolicy", "ExitCode"},
          {"template", PodTemplate(plan, role, style)}};
    }
    Tree metadata = Metadata(plan, plan.name, "job");
    if (!plan.options.queue.empty()) {
      metadata["labels"]["kueue.x-k8s.io/queue-name"] = plan.options.queue;
    }
    return {
        {"The whole job. It is done when its chief is, or else worker 0."},
        {{"apiVersion", "kubeflow.org/v1"},
         {"kind", "TFJob"},
         {"metadata", metadata},
         {"spec",
          {{"runPolicy",
            {{"cleanPodPolicy", "Running"}, {"backoffLimit", kBackoffLimit}}},
           {"tfReplicaSpecs", replicas}}}}};
  }
};

}  // namespace

std::unique_ptr<Target> MakeTfJobTarget() {
  return std::make_unique<TfJobTarget>();
}

}  // namespace weir
