#include "deploy/launcher/local_cluster.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::IsSupersetOf;
using testing::Not;
using testing::StartsWith;

using Json = nlohmann::json;

std::vector<std::string> NamesOf(const LocalCluster& plan) {
  std::vector<std::string> names;
  for (const LocalTask& task : plan.tasks) {
    names.push_back(task.name());
  }
  return names;
}

const ChildCommand& CommandOf(const LocalCluster& plan,
                              const std::string& name) {
  const std::vector<std::string> names = NamesOf(plan);
  const auto it = std::find(names.begin(), names.end(), name);
  EXPECT_NE(it, names.end()) << name;
  return plan.commands.at(static_cast<size_t>(it - names.begin()));
}

Json TfConfigOf(const ChildCommand& command) {
  const std::string name = "TF_CONFIG=";
  for (const std::string& entry : command.environment) {
    if (entry.rfind(name, 0) == 0) {
      return Json::parse(entry.substr(name.size()));
    }
  }
  ADD_FAILURE() << "no TF_CONFIG";
  return nullptr;
}

LocalClusterOptions JobOptions() {
  LocalClusterOptions options;
  options.bin_dir = "/b";
  options.job_path = "/w/job.textproto";
  options.workdir = "/w";
  options.data_dir = "/d";
  return options;
}

CommandClusterOptions CommandOptions() {
  CommandClusterOptions options;
  options.bin_dir = "/b";
  options.worker = {"/bin/python", "train.py"};
  return options;
}

class LocalClusterTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"WEIR_CLUSTER", "WEIR_TASK_TYPE", "WEIR_TASK_INDEX",
          "OMP_NUM_THREADS", "PYTHONUNBUFFERED"}) {
      ::unsetenv(name);
    }
  }
};

TEST_F(LocalClusterTest, EveryTaskHasItsPlaceInOneCluster) {
  LocalClusterOptions options = JobOptions();
  options.ps_count = 2;
  options.worker_count = 2;
  options.evaluator = true;
  const auto plan = PlanLocalCluster(options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(NamesOf(*plan), ElementsAre("ps/0", "ps/1", "worker/0",
                                          "worker/1", "evaluator/0"));
  const Json cluster = TfConfigOf(plan->commands[0])["cluster"];
  std::set<std::string> addresses;
  for (const auto& [role, of_role] : cluster.items()) {
    for (const Json& address : of_role) {
      addresses.insert(address.get<std::string>());
    }
  }
  EXPECT_EQ(addresses.size(), 4u) << cluster;  // the evaluator serves nobody
  for (size_t i = 0; i < plan->tasks.size(); ++i) {
    const Json config = TfConfigOf(plan->commands[i]);
    EXPECT_EQ(config["cluster"], cluster);
    EXPECT_EQ(config["task"]["type"].get<std::string>(), plan->tasks[i].role);
    EXPECT_EQ(config["task"]["index"].get<int>(), plan->tasks[i].index);
  }
  EXPECT_EQ(plan->chief_address, cluster["worker"][0].get<std::string>());
}

TEST_F(LocalClusterTest, TellsAPsOnlyWhereItMayWrite) {
  const auto plan = PlanLocalCluster(JobOptions());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const ChildCommand& ps = CommandOf(*plan, "ps/0");
  EXPECT_THAT(ps.argv, ElementsAre("/b/server/ps/weir_ps", "--checkpoint_root",
                                   "/w/checkpoints", "--audit_log",
                                   "/w/logs/audit-ps-0.jsonl"));
  EXPECT_EQ(ps.log_path, "/w/logs/ps-0.log");
}

std::string SecretOf(const ChildCommand& command) {
  for (const std::string& entry : command.environment) {
    if (entry.starts_with("WEIR_SECRET=")) {
      return entry.substr(entry.find('=') + 1);
    }
  }
  return "";
}

TEST_F(LocalClusterTest, DrawsASecretForTheJobAndTellsNobodyElse) {
  const auto plan = PlanLocalCluster(JobOptions());
  const auto other = PlanLocalCluster(JobOptions());
  ASSERT_TRUE(plan.ok() && other.ok());
  const std::string secret = SecretOf(plan->commands[0]);
  EXPECT_EQ(secret.size(), 64);
  EXPECT_NE(secret, SecretOf(other->commands[0]));
  for (const ChildCommand& command : plan->commands) {
    EXPECT_EQ(SecretOf(command), secret);
    for (const std::string& argument : command.argv) {
      EXPECT_EQ(argument.find(secret), std::string::npos) << argument;
    }
    EXPECT_EQ(TfConfigOf(command).dump().find(secret), std::string::npos);
  }
}

TEST_F(LocalClusterTest, HandsTheUsersChoiceOfSecurityOn) {
  LocalClusterOptions options = JobOptions();
  options.security.insecure = true;
  auto plan = PlanLocalCluster(options);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->commands[0].environment,
              IsSupersetOf({"WEIR_INSECURE=1", "WEIR_SECRET=",
                            "WEIR_SECRET_FILE=", "WEIR_TLS_DIR="}));
  // Of a directory of all tasks each takes its own.
  const std::string dir = MakeTempDir();
  std::filesystem::create_directory(dir + "/ps-0");
  options.security = Security::Options();
  options.security.tls_dir = dir;
  plan = PlanLocalCluster(options);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(CommandOf(*plan, "ps/0").environment,
              Contains("WEIR_TLS_DIR=" + dir + "/ps-0"));
  EXPECT_THAT(CommandOf(*plan, "worker/0").environment,
              Contains("WEIR_TLS_DIR=" + dir));
}

TEST_F(LocalClusterTest, OnlyTheProcessThatHostsTheChiefGetsItsFlags) {
  const std::vector<std::string> flags = {"--resume", "--allow_older",
                                          "--allow_unguarded", "--init_from",
                                          "--evaluator_expected"};
  for (const bool chief : {false, true}) {
    LocalClusterOptions options = JobOptions();
    options.worker_count = 2;
    options.chief = chief;
    options.evaluator = true;
    options.resume = true;
    options.allow_older = true;
    options.allow_unguarded = true;
    options.init_from = "/i";
    const auto plan = PlanLocalCluster(options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::string host = "worker/0";
    if (chief) {
      host = "chief/0";
      const Json cluster = TfConfigOf(plan->commands[0])["cluster"];
      EXPECT_EQ(plan->chief_address, cluster["chief"][0].get<std::string>());
    }
    for (const std::string& name : NamesOf(*plan)) {
      for (const std::string& flag : flags) {
        const auto& argv = CommandOf(*plan, name).argv;
        const bool has = std::count(argv.begin(), argv.end(), flag) == 1;
        EXPECT_EQ(has, name == host) << name << " " << flag;
      }
    }
  }
}

TEST_F(LocalClusterTest, WorkersAndTheEvaluatorComputeAndTheChiefDoesNot) {
  LocalClusterOptions options = JobOptions();
  options.chief = true;
  options.evaluator = true;
  options.device = "cuda:1";
  options.device_plugin = "/p.so";
  options.transport = "grpc";
  options.channels_per_peer = 3;
  const auto plan = PlanLocalCluster(options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(
      CommandOf(*plan, "worker/0").argv,
      ElementsAre("/b/worker/weir_worker", "--transport", "grpc",
                  "--channels_per_peer", "3", "--job", "/w/job.textproto",
                  "--workdir", "/w", "--data_dir", "/d", "--device", "cuda:1",
                  "--device_plugin", "/p.so"));
  EXPECT_THAT(
      CommandOf(*plan, "evaluator/0").argv,
      ElementsAre("/b/worker/weir_evaluator", "--job", "/w/job.textproto",
                  "--workdir", "/w", "--data_dir", "/d", "--device", "cuda:1",
                  "--device_plugin", "/p.so"));
  EXPECT_THAT(CommandOf(*plan, "chief/0").argv, Not(Contains("--device")));
  EXPECT_EQ(CommandOf(*plan, "chief/0").argv[0], "/b/server/chief/weir_chief");
}

TEST_F(LocalClusterTest, TasksLogAsTheFlagsSay) {
  LocalClusterOptions options = JobOptions();
  const auto silent = PlanLocalCluster(options);
  ASSERT_TRUE(silent.ok()) << silent.status();
  options.log.levels = "info,server/ps=debug";
  options.log.format = "json";
  const auto plan = PlanLocalCluster(options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (size_t i = 0; i < plan->commands.size(); ++i) {
    EXPECT_THAT(plan->commands[i].environment,
                AllOf(Contains("WEIR_LOG_LEVEL=info,server/ps=debug"),
                      Contains("WEIR_LOG_FORMAT=json")));
    // What is not said stays what the environment says.
    EXPECT_THAT(silent->commands[i].environment,
                Not(Contains(StartsWith("WEIR_LOG"))));
  }
}

// The user may have them for a cluster of their own.
TEST_F(LocalClusterTest, EmptiesVariablesThatWouldWinOverTfConfig) {
  ::setenv("WEIR_CLUSTER", "ps=elsewhere:1", 1);
  const auto plan = PlanLocalCluster(JobOptions());
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const ChildCommand& command : plan->commands) {
    EXPECT_THAT(command.environment, Contains("WEIR_CLUSTER="));
    EXPECT_THAT(command.environment,
                Not(Contains(StartsWith("WEIR_TASK_TYPE="))));
  }
}

TEST_F(LocalClusterTest, AUsersCommandIsTheWorker) {
  CommandClusterOptions options = CommandOptions();
  options.evaluator = {"/bin/python", "eval.py"};
  options.worker_count = 2;
  options.transport = "shm";
  options.workdir = "/w";
  const auto plan = PlanCommandCluster(options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(NamesOf(*plan),
              ElementsAre("ps/0", "worker/0", "worker/1", "evaluator/0"));
  const ChildCommand& worker = CommandOf(*plan, "worker/1");
  EXPECT_THAT(worker.argv, ElementsAre("/bin/python", "train.py"));
  EXPECT_THAT(CommandOf(*plan, "evaluator/0").argv,
              ElementsAre("/bin/python", "eval.py"));
  EXPECT_THAT(worker.environment,
              IsSupersetOf({"WEIR_TRANSPORT=shm", "WEIR_WORKDIR=/w",
                            "PYTHONUNBUFFERED=1"}));
  EXPECT_THAT(worker.environment, Contains(StartsWith("OMP_NUM_THREADS=")));
  EXPECT_THAT(worker.environment, Contains("WEIR_CHECKPOINTS="));
  EXPECT_EQ(worker.log_path, "/w/logs/worker-1.log");
  EXPECT_THAT(CommandOf(*plan, "ps/0").environment,
              Not(Contains(StartsWith("WEIR_TRANSPORT="))));
}

TEST_F(LocalClusterTest, WithoutAWorkdirThereAreNoLogsAndNoCheckpoints) {
  const auto plan = PlanCommandCluster(CommandOptions());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(CommandOf(*plan, "ps/0").argv,
              ElementsAre("/b/server/ps/weir_ps"));
  for (const ChildCommand& command : plan->commands) {
    EXPECT_EQ(command.log_path, "");
    EXPECT_THAT(command.environment,
                Not(Contains(StartsWith("WEIR_WORKDIR="))));
  }
}

TEST_F(LocalClusterTest, TheChiefOfACommandGetsItsFlags) {
  CommandClusterOptions options = CommandOptions();
  options.chief = true;
  options.workdir = "/w";
  options.resume = true;
  options.allow_unguarded = true;
  options.chief_flags = {"--keep=3", "--checkpoint_every_steps=9"};
  const auto plan = PlanCommandCluster(options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(CommandOf(*plan, "chief/0").argv,
              ElementsAre("/b/server/chief/weir_chief", "--workdir", "/w",
                          "--resume", "--allow_unguarded", "--keep=3",
                          "--checkpoint_every_steps=9"));
  EXPECT_THAT(CommandOf(*plan, "worker/0").argv,
              ElementsAre("/bin/python", "train.py"));
}

TEST_F(LocalClusterTest, TheAdminPortIsTheChiefs) {
  LocalClusterOptions options = JobOptions();
  options.worker_count = 2;
  options.evaluator = true;
  options.admin.port = 0;
  const auto plan = PlanLocalCluster(options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const std::string& name : NamesOf(*plan)) {
    const auto& argv = CommandOf(*plan, name).argv;
    if (name == "worker/0") {
      EXPECT_THAT(argv, Contains("--admin_port")) << name;
    } else {
      EXPECT_THAT(argv, Not(Contains("--admin_port"))) << name;
    }
  }
  CommandClusterOptions command = CommandOptions();
  command.chief = true;
  command.workdir = "/w";
  command.admin.port = 0;
  const auto with_chief = PlanCommandCluster(command);
  ASSERT_TRUE(with_chief.ok()) << with_chief.status();
  EXPECT_THAT(CommandOf(*with_chief, "chief/0").argv, Contains("--admin_port"));
  EXPECT_THAT(CommandOf(*with_chief, "worker/0").argv,
              Not(Contains("--admin_port")));
}

TEST_F(LocalClusterTest, ASingleTaskHasItsAdminPortUnlessItIsAUsersProgram) {
  SingleTaskOptions options;
  options.bin_dir = "/b";
  options.workdir = "/w";
  options.job_path = "/w/job.textproto";
  options.admin.port = 9464;
  options.admin.may_miss = true;
  for (const TaskRole role : {TaskRole::kPs, TaskRole::kChief,
                              TaskRole::kWorker, TaskRole::kEvaluator}) {
    options.task = {.role = role, .index = 1};
    EXPECT_THAT(PlanSingleTask(options).commands[0].argv,
                IsSupersetOf({"--admin_port", "9464", "--admin_may_miss"}));
  }
  options.command = {"/bin/python"};
  options.job_path = "";
  EXPECT_THAT(PlanSingleTask(options).commands[0].argv,
              ElementsAre("/bin/python"));
}

TEST_F(LocalClusterTest, LeavesAUsersOwnSettingsAlone) {
  ::setenv("OMP_NUM_THREADS", "9", 1);
  ::setenv("PYTHONUNBUFFERED", "", 1);
  const auto plan = PlanCommandCluster(CommandOptions());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto& environment = CommandOf(*plan, "worker/0").environment;
  EXPECT_THAT(environment, Not(Contains(StartsWith("OMP_NUM_THREADS="))));
  EXPECT_THAT(environment, Not(Contains(StartsWith("PYTHONUNBUFFERED="))));
}

}  // namespace
}  // namespace weir
