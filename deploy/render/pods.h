// The pods of a job, which all targets of Kubernetes have in common.
//
// Place: k8s.cc, jobset.cc, volcano.cc and tfjob.cc put these templates into
// objects of their own; the objects beside them are in cluster_objects.h.
//
// Threads: safe.
#ifndef DEPLOY_RENDER_PODS_H_
#define DEPLOY_RENDER_PODS_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "deploy/render/plan.h"
#include "deploy/render/yaml.h"

namespace weir {

// In what the targets differ.
struct PodStyle {
  std::string container;     // "": the role's name
  std::string port_name;     // of the container's port
  std::string subdomain;     // the headless Service; "": the operator sets it
  Tree env = Tree::array();  // who the task is, and where the others are
  // Whether the template says that the kubelet starts no container again. Where
  // an operator decides it the template has to be silent.
  bool never_restarts = true;
};

// Doubles every $. Kubernetes replaces $(NAME) in a container's words and
// variables, and compose replaces $NAME, unless there are two.
std::string Escaped(const std::string& text);

// How many pods may be made anew, after failures that no other rule has decided
// (such as a container that ran out of memory), in the whole life of `pods`
// ones.
int NewPodsMax(int pods);

// The port's name, which meshes take for TLS that they must not touch.
inline constexpr char kPortName[] = "tls-weir";

// app.kubernetes.io/*. With "" as the component: those that all pods share.
Tree Labels(const RenderPlan& plan, const std::string& component);
// The labels by which the job's pods are found.
Tree Selector(const RenderPlan& plan);
// Name, namespace if there is one, and labels.
Tree Metadata(const RenderPlan& plan, const std::string& name,
              const std::string& component);

// {metadata, spec} of a pod.
Tree PodTemplate(const RenderPlan& plan, const RolePlan& role,
                 const PodStyle& style);

// WEIR_CLUSTER: "ps=a:2222,b:2222;worker=c:2222". The evaluator is not in it.
std::string ClusterText(
    const RenderPlan& plan,
    const std::function<std::string(const RolePlan&, int index)>& host_of);

// The environment of a pod whose index its Indexed Job writes into an
// annotation.
Tree IndexedEnv(const RenderPlan& plan, const RolePlan& role,
                const std::string& cluster);

// The spec of an Indexed Job: as many pods as the role has tasks, and what to
// do after each exit code.
Tree IndexedJobSpec(const RenderPlan& plan, const RolePlan& role,
                    const PodStyle& style);

// Checks that the name of the longest pod, which `name_of` makes of a role and
// its last index, fits with `suffix` more characters into a label of DNS.
absl::Status CheckPodNames(
    const RenderPlan& plan, size_t suffix,
    const std::function<std::string(const RolePlan&, int index)>& name_of);

// What is chosen in every pod, and why.
std::vector<Choice> PodChoices(const RenderPlan& plan);

}  // namespace weir

#endif  // DEPLOY_RENDER_PODS_H_
