// The objects of Kubernetes beside a job's pods: its file, its volume, its
// Service, and the rules about evictions and the network.
//
// Place: every target of Kubernetes writes them before its own objects.
//
// Threads: safe.
#ifndef DEPLOY_RENDER_CLUSTER_OBJECTS_H_
#define DEPLOY_RENDER_CLUSTER_OBJECTS_H_

#include <string>
#include <vector>

#include "deploy/render/plan.h"
#include "deploy/render/yaml.h"

namespace weir {

// The lines before the first document: what it is, what must be there before
// (the secret or the certificates), and how it is started and deleted.
// `title` is a sentence; `kinds` are those of the objects, for kubectl delete.
std::vector<std::string> HeadComment(const RenderPlan& plan,
                                     const std::string& title,
                                     const std::string& kinds);

// ConfigMap, PersistentVolumeClaim, NetworkPolicy, PodDisruptionBudget; each
// where the job needs it.
std::vector<Document> ClusterObjects(const RenderPlan& plan);

// The headless Service that gives pods their names.
Document HeadlessService(const RenderPlan& plan);

// Writes the documents, the first one behind `head`.
std::string KubernetesFile(std::vector<std::string> head,
                           std::vector<Document> documents);

// Adds to a target's own choices those of its pods and of these objects.
std::vector<Choice> WithClusterChoices(std::vector<Choice> own,
                                       const RenderPlan& plan);

}  // namespace weir

#endif  // DEPLOY_RENDER_CLUSTER_OBJECTS_H_
