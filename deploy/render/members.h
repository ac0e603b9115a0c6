// The members of the family of targets, for the table in factory.cc.
//
// What each promises is in target.h.
#ifndef DEPLOY_RENDER_MEMBERS_H_
#define DEPLOY_RENDER_MEMBERS_H_

#include <memory>

#include "deploy/render/target.h"

namespace weir {

// Kubernetes alone: an Indexed Job for each role behind one headless Service.
std::unique_ptr<Target> MakeK8sTarget();
// One JobSet (jobset.x-k8s.io/v1alpha2), which Kueue admits as a whole.
std::unique_ptr<Target> MakeJobSetTarget();
// One Volcano Job (batch.volcano.sh/v1alpha1), which gives out TF_CONFIG.
std::unique_ptr<Target> MakeVolcanoTarget();
// One TFJob of Kubeflow (kubeflow.org/v1), which gives out TF_CONFIG.
std::unique_ptr<Target> MakeTfJobTarget();
// A compose file, for one host.
std::unique_ptr<Target> MakeComposeTarget();
// A batch script of Slurm.
std::unique_ptr<Target> MakeSlurmTarget();

}  // namespace weir

#endif  // DEPLOY_RENDER_MEMBERS_H_
