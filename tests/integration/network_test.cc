// The four binaries, each task on a host of its own, with TF_CONFIG only.
//
// Hosts are network namespaces joined by a bridge. The directory is shared, as
// a network file system would be.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "tests/integration/harness.h"

namespace weir {
namespace {

constexpr char kJob[] = R"(
name: "network" seed: 5
model {
  layer { name: "flat" flatten {} }
  layer { name: "hidden" dense { units: 32 } }
  layer { name: "relu" relu {} }
  layer { name: "logits" dense { units: 10 } }
  loss { softmax_cross_entropy {} }
}
data { train { digits { count: 4000 } } }
train { batch_size: 32 epochs: 4 }
optimizer { adam {} }
schedule { learning_rate: 0.003 }
update { async {} }
checkpoint { every_steps: 100 }
evaluation { source { digits { count: 1000 stream: 1 } } }
)";

bool Run(const std::string& command) {
  // All words of the command come from this file.
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;  // NOLINT
}

// Namespaces weir<pid>-0.. on one bridge, 10.77.0.1 and up.
class Hosts {
 public:
  explicit Hosts(int count) : prefix_("w" + std::to_string(getpid() % 100000)) {
    ok_ = Run("ip netns add " + Name(0) + "-sw") &&
          Run("ip -n " + Name(0) + "-sw link add br0 type bridge") &&
          Run("ip -n " + Name(0) + "-sw link set br0 up");
    for (int i = 0; ok_ && i < count; ++i) {
      const std::string port = prefix_ + "p" + std::to_string(i);
      ok_ =
          Run("ip netns add " + Name(i)) &&
          Run("ip link add " + port + " netns " + Name(0) +
              "-sw type veth peer name eth0 netns " + Name(i)) &&
          Run("ip -n " + Name(0) + "-sw link set " + port + " master br0 up") &&
          Run("ip -n " + Name(i) + " addr add " + Address(i) +
              "/24 dev eth0") &&
          Run("ip -n " + Name(i) + " link set eth0 up") &&
          Run("ip -n " + Name(i) + " link set lo up");
      count_ = i + 1;
    }
  }
  ~Hosts() {
    for (int i = 0; i < count_; ++i) {
      Run("ip netns del " + Name(i));
    }
    Run("ip netns del " + Name(0) + "-sw");
  }

  bool ok() const { return ok_; }
  std::string Name(int i) const { return prefix_ + "-" + std::to_string(i); }
  static std::string Address(int i) {
    return "10.77.0." + std::to_string(i + 1);
  }

 private:
  const std::string prefix_;
  int count_ = 0;
  bool ok_ = false;
};

TEST(NetworkTest, TrainsToTheEndAcrossHosts) {
  Hosts hosts(6);
  if (!hosts.ok()) {
    GTEST_SKIP() << "network namespaces need root and iproute2";
  }
  const std::string dir = FreshDir("network");
  WriteFile(dir + "/job.textproto", kJob);
  const std::vector<std::pair<std::string, int>> tasks = {
      {"ps", 0},     {"ps", 1},     {"chief", 0},
      {"worker", 0}, {"worker", 1}, {"evaluator", 0}};
  nlohmann::json cluster;
  for (size_t i = 0; i + 1 < tasks.size(); ++i) {
    cluster[tasks[i].first].push_back(Hosts::Address(static_cast<int>(i)) +
                                      ":2222");
  }
  std::vector<std::unique_ptr<Process>> processes;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const auto& [role, index] = tasks[i];
    std::vector<std::string> argv = {"/sbin/ip", "netns", "exec",
                                     hosts.Name(static_cast<int>(i)),
                                     RoleBinary(role)};
    if (role == "ps") {
      argv.insert(argv.end(), {"--checkpoint_root", dir + "/checkpoints"});
    } else {
      argv.insert(argv.end(),
                  {"--job", dir + "/job.textproto", "--workdir", dir});
    }
    if (role == "chief") {
      argv.push_back("--evaluator_expected");
    }
    processes.push_back(std::make_unique<Process>(
        argv, std::vector<std::string>{TfConfig(cluster, role, index)},
        dir + "/" + role + "-" + std::to_string(index) + ".log"));
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    EXPECT_EQ(processes[i]->Wait(180), 0)
        << tasks[i].first << "/" << tasks[i].second << "\n"
        << processes[i]->Log();
  }
  const auto evaluations = ReadJsonLines(dir + "/eval.jsonl");
  ASSERT_FALSE(evaluations.empty());
  EXPECT_EQ(evaluations.back()["checkpoint"], "ckpt-500");
  EXPECT_GT(evaluations.back()["accuracy"].get<double>(), 0.8);
  EXPECT_EQ(ReadFile(dir + "/DONE").substr(0, 8), "ckpt-500");
}

}  // namespace
}  // namespace weir
