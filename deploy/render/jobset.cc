// One JobSet, which Kueue admits as a whole.
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

constexpr size_t kRandomSuffix = 6;
// How often the Jobs may be made again. Each time the job goes on from its
// newest checkpoint, so the bound only ends a job that never gets anywhere.
constexpr int kRestartsMax = 100;

// The host of a pod, and its name but for the suffix: the JobSet, its Job, the
// number of that Job among its replicas, and the pod's own index.
std::string HostName(const RenderPlan& plan, const RolePlan& role, int index) {
  return absl::StrCat(plan.name, "-", role.name(), "-0-", index);
}

class JobSetTarget : public Target {
 public:
  absl::Status Check(const RenderPlan& plan) const override {
    return CheckPodNames(plan, kRandomSuffix,
                         [&](const RolePlan& role, int index) {
                           return HostName(plan, role, index);
                         });
  }

  std::string Render(const RenderPlan& plan) const override {
    std::vector<Document> documents = ClusterObjects(plan);
    documents.push_back(JobSet(plan));
    std::vector<std::string> head = HeadComment(
        plan, absl::StrCat("Weir job ", plan.name, " for JobSet 0.8+."),
        "jobset,networkpolicy,poddisruptionbudget,configmap");
    return KubernetesFile(std::move(head), std::move(documents));
  }

  std::vector<Choice> Choices(const RenderPlan& plan) const override {
    return WithClusterChoices(
        {{"successPolicy", plan.options.chief ? "chief" : "worker",
          "the job is done when its chief is; JobSet ends what is left"},
         {"failurePolicy", "FailJobSet on PodFailurePolicy, else restart all",
          "a permanent code ends the job; after anything else all tasks start "
          "again from the newest checkpoint"}},
        plan);
  }

 private:
  static Document JobSet(const RenderPlan& plan) {
    const std::string cluster =
        ClusterText(plan, [&](const RolePlan& role, int index) {
          return absl::StrCat(HostName(plan, role, index), ".", plan.name);
        });
    Tree jobs = Tree::array();
    for (const RolePlan& role : plan.roles) {
      PodStyle style;
      style.port_name = kPortName;
      style.env = IndexedEnv(plan, role, cluster);
      jobs.push_back({{"name", role.name()},
                      {"replicas", 1},
                      {"template",
                       {{"metadata", {{"labels", Labels(plan, role.name())}}},
                        {"spec", IndexedJobSpec(plan, role, style)}}}});
    }
    Tree metadata = Metadata(plan, plan.name, "job");
    if (!plan.options.queue.empty()) {
      metadata["labels"]["kueue.x-k8s.io/queue-name"] = plan.options.queue;
    }
    const char* const main = plan.options.chief ? "chief" : "worker";
    const Tree rule = {{"name", "permanent_error"},
                       {"action", "FailJobSet"},
                       {"onJobFailureReasons", {"PodFailurePolicy"}}};
    return {
        {"The whole job. A Job that failed by its podFailurePolicy ends it;",
         "after any other failure all tasks start again."},
        {{"apiVersion", "jobset.x-k8s.io/v1alpha2"},
         {"kind", "JobSet"},
         {"metadata", metadata},
         {"spec",
          {{"network",
            {{"enableDNSHostnames", true},
             {"subdomain", plan.name},
             {"publishNotReadyAddresses", true}}},
           {"successPolicy",
            {{"operator", "All"}, {"targetReplicatedJobs", {main}}}},
           {"failurePolicy",
            {{"maxRestarts", kRestartsMax}, {"rules", Tree::array({rule})}}},
           {"replicatedJobs", jobs}}}}};
  }
};

}  // namespace

std::unique_ptr<Target> MakeJobSetTarget() {
  return std::make_unique<JobSetTarget>();
}

}  // namespace weir
