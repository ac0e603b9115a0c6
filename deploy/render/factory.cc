#include <utility>

#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "deploy/render/members.h"
#include "deploy/render/target.h"

namespace weir {
namespace {

using Maker = std::unique_ptr<Target> (*)();

constexpr std::pair<const char*, Maker> kTargets[] = {
    {"k8s", MakeK8sTarget},         {"jobset", MakeJobSetTarget},
    {"volcano", MakeVolcanoTarget}, {"tfjob", MakeTfJobTarget},
    {"compose", MakeComposeTarget}, {"slurm", MakeSlurmTarget}};

}  // namespace

absl::StatusOr<std::unique_ptr<Target>> MakeTarget(const std::string& name) {
  for (const auto& [known, make] : kTargets) {
    if (name == known) {
      return make();
    }
  }
  return Invalid("'", name, "' is no target; there are ",
                 absl::StrJoin(TargetNames(), ", "));
}

std::vector<std::string> TargetNames() {
  std::vector<std::string> names;
  for (const auto& [name, make] : kTargets) {
    names.emplace_back(name);
  }
  return names;
}

}  // namespace weir
