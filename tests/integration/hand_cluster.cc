#include "tests/integration/hand_cluster.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>

namespace weir {

std::string DigitsJob(int steps, const std::string& more) {
  return R"(
name: "digits" seed: 3
model {
  layer { name: "flat" flatten {} }
  layer { name: "hidden" dense { units: 8 } }
  layer { name: "relu" relu {} }
  layer { name: "logits" dense { units: 10 } }
  loss { softmax_cross_entropy {} }
}
data { train { digits { count: 2000 } } }
train { batch_size: 16 log_every_steps: 10 steps: )" +
         std::to_string(steps) + R"( }
optimizer { adam {} }
schedule { learning_rate: 0.002 }
limits { block_elements: 1024 }
)" + more;
}

HandCluster::HandCluster(const std::string& dir, const std::string& job, int ps,
                         int workers, bool chief)
    : dir_(dir), ps_(ps), workers_(workers), chief_(chief) {
  WriteFile(dir_ + "/job.textproto", job);
  for (int i = 0; i < ps; ++i) {
    cluster_["ps"].push_back(FreeAddress());
  }
  for (int i = 0; i < workers; ++i) {
    cluster_["worker"].push_back(FreeAddress());
  }
  if (chief) {
    cluster_["chief"].push_back(FreeAddress());
  }
}

Process& HandCluster::Start(const std::string& role, int index,
                            const std::vector<std::string>& flags,
                            const std::vector<std::string>& environment) {
  const std::string name = role + "/" + std::to_string(index);
  std::vector<std::string> argv = {RoleBinary(role)};
  if (role == "ps") {
    argv.insert(argv.end(), {"--checkpoint_root", dir_ + "/checkpoints"});
  } else {
    argv.insert(argv.end(),
                {"--job", dir_ + "/job.textproto", "--workdir", dir_});
  }
  argv.insert(argv.end(), flags.begin(), flags.end());
  std::vector<std::string> variables = environment;
  variables.push_back(TfConfig(cluster_, role, index));
  if (!ChoosesSecurity(environment)) {
    variables.push_back(SecurityVariable(*ParsePeerRole(role), index));
  }
  tasks_.erase(name);
  return tasks_
      .emplace(name, Process(argv, std::move(variables), LogPath(role, index)))
      .first->second;
}

void HandCluster::StartAll(const std::vector<std::string>& chief_flags) {
  for (int i = 0; i < ps_; ++i) {
    Start("ps", i);
  }
  if (chief_) {
    Start("chief", 0, chief_flags);
  }
  for (int i = 0; i < workers_; ++i) {
    Start("worker", i,
          i == 0 && !chief_ ? chief_flags : std::vector<std::string>{});
  }
}

Process HandCluster::Detach(const std::string& role, int index) {
  auto node = tasks_.extract(role + "/" + std::to_string(index));
  return std::move(node.mapped());
}

uint64_t HandCluster::step() const {
  const auto lines = curve();
  return lines.empty() ? 0 : lines.back().value("step", uint64_t{0});
}

std::vector<std::string> HandCluster::checkpoints() const {
  std::vector<std::string> names;
  std::error_code missing;
  for (const auto& entry :
       std::filesystem::directory_iterator(dir_ + "/checkpoints", missing)) {
    if (std::filesystem::exists(entry.path() / "manifest.json")) {
      names.push_back(entry.path().filename());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace weir
