// A cluster started task by task with TF_CONFIG, as users do on hosts.
#ifndef TESTS_INTEGRATION_HAND_CLUSTER_H_
#define TESTS_INTEGRATION_HAND_CLUSTER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/integration/harness.h"

namespace weir {

// Returns the text of a job: a small dense model on generated digits, in a few
// blocks. `more` is the rest of the job, and names at least its consistency
// mode.
std::string DigitsJob(int steps, const std::string& more);

class HandCluster {
 public:
  // Writes `job` (text format) to dir/job.textproto; starts nothing.
  HandCluster(const std::string& dir, const std::string& job, int ps,
              int workers, bool chief);

  // Starts "ps", "worker", "chief" or "evaluator" number `index`. Kills the
  // process that was started under that name before, if it still runs.
  Process& Start(const std::string& role, int index,
                 const std::vector<std::string>& flags = {},
                 const std::vector<std::string>& environment = {});
  void StartAll(const std::vector<std::string>& chief_flags = {});
  Process& task(const std::string& role, int index) {
    return tasks_.at(role + "/" + std::to_string(index));
  }
  std::string LogPath(const std::string& role, int index) const {
    return dir_ + "/" + role + "-" + std::to_string(index) + ".log";
  }
  // By name, such as "ps/0", the process that was started last under it.
  std::map<std::string, Process>& tasks() { return tasks_; }
  // Takes a process out of the cluster, so that another can take its name.
  Process Detach(const std::string& role, int index);

  // The address of a task, as those that are started from now on know it.
  std::string address(const std::string& role, int index) const {
    return cluster_[role][static_cast<size_t>(index)];
  }
  // The address at which tasks that are started from now on look for the chief.
  std::string chief_address() const { return cluster_["chief"][0]; }
  void SetChiefAddress(const std::string& address) {
    cluster_["chief"][0] = address;
  }

  const std::string& dir() const { return dir_; }
  std::vector<nlohmann::json> curve() const {
    return ReadJsonLines(dir_ + "/train.jsonl");
  }
  // Returns the last step of train.jsonl; 0 without one.
  uint64_t step() const;
  // Returns the names under dir/checkpoints that hold a manifest.
  std::vector<std::string> checkpoints() const;

 private:
  const std::string dir_;
  nlohmann::json cluster_;
  std::map<std::string, Process> tasks_;
  const int ps_;
  const int workers_;
  const bool chief_;
};

}  // namespace weir

#endif  // TESTS_INTEGRATION_HAND_CLUSTER_H_
