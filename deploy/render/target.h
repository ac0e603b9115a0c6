// A kind of cluster that `weir render` writes files for.
//
// A family: this is its contract, each member is one .cc file, members.h names
// their makers, and the factory makes one by its name.
//
// What every target promises
//   T1. It runs every task of the plan with the words of TaskWords, and tells
//       each where the others are.
//   T2. A task that ended with a permanent code ends the job, and one that was
//       disturbed comes back; docs/render.md has the table.
//   T3. The text names what holds the job's secret and never has its value.
//   T4. The same plan gives the same bytes.
// Threads: safe.
#ifndef DEPLOY_RENDER_TARGET_H_
#define DEPLOY_RENDER_TARGET_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/render/plan.h"

namespace weir {

class Target {
 public:
  virtual ~Target() = default;

  // Says what this target cannot do of the plan: INVALID_ARGUMENT names the
  // option, or the task whose name would be too long.
  virtual absl::Status Check(const RenderPlan& plan) const = 0;
  // Returns one file. REQUIRES: Check(plan) is OK.
  virtual std::string Render(const RenderPlan& plan) const = 0;
  // What the target itself chooses, and why.
  virtual std::vector<Choice> Choices(const RenderPlan& plan) const = 0;
};

// INVALID_ARGUMENT for an unknown name; the message lists them.
absl::StatusOr<std::unique_ptr<Target>> MakeTarget(const std::string& name);

// In the order in which people should consider them.
std::vector<std::string> TargetNames();

}  // namespace weir

#endif  // DEPLOY_RENDER_TARGET_H_
