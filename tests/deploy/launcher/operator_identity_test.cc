// What each operator sets, as it was seen with the real ones.
#include "deploy/launcher/operator_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace weir {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

constexpr char kCluster[] = "ps=a:1,b:1;worker=c:1,d:1,e:1;chief=f:1";

absl::StatusOr<ClusterSpec> Find(const Variables& variables,
                                 const std::string& host = "host",
                                 const std::string& layout = "") {
  OperatorSources sources;
  sources.variable = [&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? "" : found->second;
  };
  sources.host_name = host;
  sources.layout = layout;
  return IdentityFromOperator(sources);
}

std::string TaskOf(const Variables& variables, const std::string& host = "host",
                   const std::string& layout = "") {
  const auto cluster = Find(variables, host, layout);
  return cluster.ok() ? cluster->task()->ToString()
                      : std::string(cluster.status().message());
}

TEST(OperatorIdentityTest, AnIndexedJobSaysTheIndex) {
  EXPECT_EQ(TaskOf({{"WEIR_CLUSTER", kCluster},
                    {"WEIR_TASK_TYPE", "worker"},
                    {"JOB_COMPLETION_INDEX", "2"}},
                   "digits-worker-1"),
            "worker/2");
}

TEST(OperatorIdentityTest, WeirsOwnVariableWins) {
  EXPECT_EQ(TaskOf({{"WEIR_CLUSTER", kCluster},
                    {"WEIR_TASK_TYPE", "ps"},
                    {"WEIR_TASK_INDEX", "1"},
                    {"JOB_COMPLETION_INDEX", "0"}}),
            "ps/1");
}

TEST(OperatorIdentityTest, TheHostOfAStatefulSetSaysTheIndex) {
  const Variables ps = {{"WEIR_CLUSTER", kCluster}, {"WEIR_TASK_TYPE", "ps"}};
  EXPECT_EQ(TaskOf(ps, "digits-ps-1"), "ps/1");
  EXPECT_EQ(TaskOf(ps, "digits-ps-1.digits.default.svc"), "ps/1");
  for (const char* host : {"digits", "digits-", "digits-x1", "digits--"}) {
    EXPECT_THAT(TaskOf(ps, host), HasSubstr("WEIR_TASK_INDEX")) << host;
  }
}

TEST(OperatorIdentityTest, TheOneChiefAndEvaluatorNeedNoIndex) {
  for (const std::string role : {"chief", "evaluator"}) {
    EXPECT_EQ(TaskOf({{"WEIR_CLUSTER", kCluster}, {"WEIR_TASK_TYPE", role}},
                     "node-17"),
              role + "/0");
  }
}

TEST(OperatorIdentityTest, VolcanoAndTfJobInjectTfConfig) {
  const std::string config =
      R"({"cluster": {"ps": ["j-ps-0.j:2222"], "worker": ["j-worker-0.j:2222",)"
      R"( "j-worker-1.j:2222"]}, "task": {"type": "worker", "index": 1}})";
  EXPECT_EQ(TaskOf({{"TF_CONFIG", config}, {"VC_TASK_INDEX", "0"}}),
            "worker/1");
  EXPECT_EQ(TaskOf({{"WEIR_CLUSTER", kCluster},
                    {"WEIR_TASK_TYPE", "worker"},
                    {"VC_TASK_INDEX", "2"}}),
            "worker/2");
}

Variables SlurmTask(int rank) {
  return {{"SLURM_PROCID", std::to_string(rank)},
          {"SLURM_STEP_NODELIST", "n[0-2]"},
          {"SLURM_STEP_TASKS_PER_NODE", "2,2,1"}};
}

TEST(OperatorIdentityTest, RanksOfASlurmStepGetTheRolesOfTheLayout) {
  const std::string layout = "ps=1,chief=1,worker=2,evaluator=1";
  const char* const kTasks[] = {"ps/0", "chief/0", "worker/0", "worker/1",
                                "evaluator/0"};
  for (int rank = 0; rank < 5; ++rank) {
    const auto cluster = Find(SlurmTask(rank), "n0", layout);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    EXPECT_EQ(cluster->task()->ToString(), kTasks[rank]);
    EXPECT_EQ(ClusterText(*cluster),
              "ps=n0:2222;worker=n1:2222,n1:2223;chief=n0:2223");
  }
}

TEST(OperatorIdentityTest, ALayoutThatDoesNotFitIsNamed) {
  EXPECT_THAT(TaskOf(SlurmTask(0), "n0", "ps=1,worker=2"),
              HasSubstr("which has 5"));
  EXPECT_THAT(TaskOf(SlurmTask(0), "n0", "ps=1,worker=9"),
              HasSubstr("which has 5"));
  EXPECT_THAT(TaskOf(SlurmTask(0), "n0", "ps=1,helper=4"),
              HasSubstr("'helper=4'"));
  EXPECT_THAT(TaskOf(SlurmTask(0), "n0", "ps=x"), HasSubstr("'ps=x'"));
  EXPECT_THAT(TaskOf({}, "n0", "ps=1"), HasSubstr("SLURM_PROCID is not set"));
}

TEST(OperatorIdentityTest, WhatIsMissingIsNamedWithWhatToSet) {
  EXPECT_THAT(TaskOf({}), HasSubstr("set WEIR_TASK_TYPE"));
  EXPECT_THAT(TaskOf({{"WEIR_TASK_TYPE", "worker"}}), HasSubstr("index"));
  EXPECT_THAT(TaskOf({{"WEIR_TASK_TYPE", "worker"}, {"WEIR_TASK_INDEX", "0"}}),
              HasSubstr("WEIR_CLUSTER"));
  EXPECT_THAT(TaskOf({{"WEIR_CLUSTER", kCluster},
                      {"WEIR_TASK_TYPE", "worker"},
                      {"JOB_COMPLETION_INDEX", "7"}}),
              HasSubstr("7"));
  EXPECT_THAT(TaskOf({{"TF_CONFIG", "{"}}), HasSubstr("TF_CONFIG"));
}

}  // namespace
}  // namespace weir
