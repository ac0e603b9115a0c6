#include "proto/job/tf_config.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::HasSubstr;

absl::StatusOr<ClusterSpec> FromTfConfig(const std::string& json) {
  return ResolveCluster({.tf_config = json});
}

std::string Text(const std::string& json) {
  const auto spec = FromTfConfig(json);
  return spec.ok() ? spec->ToString() : std::string(spec.status().message());
}

// All lines of a cluster but its fingerprint.
std::string Lines(const ClusterSpec& spec) {
  const std::string text = spec.ToString();
  return text.substr(0, text.find("fingerprint"));
}

TEST(TfConfigTest, UnsetEmptyAndClusterlessMeanLocal) {
  for (const char* json :
       {"", " \n", "{}", R"({"cluster":{}})", R"({"cluster":null})",
        R"({"cluster":{},"task":{"type":"worker","index":0}})",
        R"({"task":{"type":"worker","index":0}})"}) {
    const auto spec = FromTfConfig(json);
    ASSERT_TRUE(spec.ok()) << json << ": " << spec.status();
    EXPECT_TRUE(spec->local()) << json;
  }
}

TEST(TfConfigTest, ReadsTensorFlowsOwnForm) {
  const auto spec = FromTfConfig(
      R"({"cluster":{"worker":["w0:1","w1:1"],"ps":["p0:1"],"chief":["c:1"]},)"
      R"("task":{"type":"worker","index":"1"},"rpc_layer":"grpc",)"
      R"("session_master":"x","environment":"cloud"})");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(Lines(*spec),
            "task worker/1\nps/0 p0:1\nworker/0 w0:1\nworker/1 w1:1\n"
            "chief/0 c:1\n");
}

TEST(TfConfigTest, ReadsTfJobsFormWithTheEvaluatorInside) {
  const std::string cluster =
      R"({"cluster":{"chief":["j-chief-0.ns.svc:2222"],)"
      R"("evaluator":["j-evaluator-0.ns.svc:2222"],)"
      R"("ps":["j-ps-0.ns.svc:2222"],"worker":["j-worker-0.ns.svc:2222"]},)";
  const auto chief = FromTfConfig(
      cluster + R"("task":{"type":"chief","index":0},"environment":"cloud"})");
  ASSERT_TRUE(chief.ok()) << chief.status();
  EXPECT_EQ(chief->bind_address(), "0.0.0.0:2222");
  const auto evaluator =
      FromTfConfig(cluster + R"("task":{"type":"evaluator","index":3}})");
  ASSERT_TRUE(evaluator.ok()) << evaluator.status();
  EXPECT_EQ(chief->fingerprint(), evaluator->fingerprint());
}

TEST(TfConfigTest, ReadsTfJobsDynamicForms) {
  for (const char* key : {"cluster", "sparseCluster"}) {
    const auto worker =
        FromTfConfig(std::string("{\"") + key +
                     R"(":{"worker":{"0":"w:1"},"ps":["p0:1","p1:1"]},)"
                     R"("task":{"type":"worker","index":0}})");
    ASSERT_TRUE(worker.ok()) << worker.status();
    EXPECT_TRUE(worker->full_view());
    const auto ps = FromTfConfig(std::string("{\"") + key +
                                 R"(":{"worker":{},"ps":["p1:1"]},)"
                                 R"("task":{"type":"ps","index":1}})");
    ASSERT_TRUE(ps.ok()) << ps.status();
    EXPECT_FALSE(ps->full_view());
    EXPECT_EQ(ps->own_address(), "p1:1");
  }
}

TEST(TfConfigTest, MasterIsTheChief) {
  const auto spec = FromTfConfig(
      R"({"cluster":{"master":["m:1"],"ps":["p:1"],"worker":null},)"
      R"("task":{"type":"master","index":0}})");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->hosts_chief());
  EXPECT_EQ(spec->chief_address(), "m:1");
}

TEST(TfConfigTest, TheChiefWithoutAClusterIsToldWhatToSet) {
  ClusterSources sources;
  sources.tf_config =
      R"({"cluster":{"worker":{},"ps":[]},"task":{"type":"chief","index":0}})";
  EXPECT_THAT(
      std::string(ResolveCluster(sources).status().message()),
      HasSubstr("TF_CONFIG: this task is chief/0, but the cluster lists "
                "no chief; add its address or set WEIR_CLUSTER"));
  sources.weir_cluster = "ps=p0:1,p1:1; worker=w0:1; chief=c:1";
  const auto spec = ResolveCluster(sources);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->task()->ToString(), "chief/0");
  EXPECT_EQ(spec->ps_count(), 2);
}

TEST(TfConfigTest, FlagsWinOverWeirVariablesOverTfConfig) {
  ClusterSources sources;
  sources.tf_config = R"({"cluster":{"worker":["w0:1","w1:1","w2:1"],)"
                      R"("ps":["p0:1"]},"task":{"type":"worker","index":0}})";
  EXPECT_EQ(ResolveCluster(sources)->task()->index, 0);
  sources.weir_task_index = "1";
  EXPECT_EQ(ResolveCluster(sources)->task()->index, 1);
  sources.flag_task_index = "2";
  EXPECT_EQ(ResolveCluster(sources)->task()->index, 2);
  sources.weir_task_type = "worker";
  sources.flag_task_type = "ps";
  sources.flag_task_index = "0";
  EXPECT_EQ(ResolveCluster(sources)->task()->ToString(), "ps/0");
  sources.weir_cluster = "ps=a:1;worker=b:1";
  EXPECT_EQ(ResolveCluster(sources)->own_address(), "a:1");
  sources.flag_cluster = "ps=c:1;worker=b:1";
  EXPECT_EQ(ResolveCluster(sources)->own_address(), "c:1");
}

TEST(TfConfigTest, ReadsTheEnvironment) {
  ::setenv("TF_CONFIG", "{}", 1);
  ::setenv("WEIR_CLUSTER", "ps=a:1;worker=b:1", 1);
  ::setenv("WEIR_TASK_TYPE", "worker", 1);
  ::setenv("WEIR_TASK_INDEX", "0", 1);
  const auto spec = ResolveCluster(ClusterSources::FromEnv());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->own_address(), "b:1");
}

TEST(TfConfigTest, AToolNeedsNoTask) {
  ClusterSources sources;
  sources.flag_cluster = "ps=a:1;worker=b:1";
  EXPECT_THAT(std::string(ResolveCluster(sources).status().message()),
              HasSubstr("no task type"));
  sources.task_required = false;
  const auto spec = ResolveCluster(sources);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->task().has_value());
  EXPECT_EQ(spec->chief_address(), "b:1");
}

TEST(TfConfigTest, EveryMalformedFormIsOneLineWithTheRemedy) {
  const std::string task = R"(,"task":{"type":"worker","index":0}})";
  const struct {
    std::string json;
    std::string want;
  } cases[] = {
      {"{", "TF_CONFIG is not JSON"},
      {"ps=a:1", "TF_CONFIG is not JSON"},
      {"{\"a\":\"\xff\"}", "TF_CONFIG is not JSON"},
      {"[1]", "TF_CONFIG is a list, not an object"},
      {"3", "TF_CONFIG is 3, not an object; write {"},
      {R"({"cluster":[])" + task, "cluster is a list; write {"},
      {R"({"cluster":"a:1")" + task, "cluster is \"a:1\"; write {"},
      {R"({"cluster":{"ps":"a:1"})" + task,
       R"(cluster.ps is "a:1"; write a list ["host:port"])"},
      {R"({"cluster":{"ps":3})" + task, "cluster.ps is 3"},
      {R"({"cluster":{"ps":[3]})" + task, "cluster.ps[0] is 3; write"},
      {R"({"cluster":{"ps":{"x":"a:1"}})" + task, "a key of cluster.ps is 'x'"},
      {R"({"cluster":{"ps":{"-1":"a:1"}})" + task,
       "a key of cluster.ps is -1; indexes are in [0, 4096)"},
      {R"({"cluster":{"ps":{"0":"a:1","00":"b:1"}})" + task,
       "cluster.ps has index 0 twice"},
      {R"({"cluster":{"server":["a:1"]})" + task,
       "names the role 'server'; the roles are ps, worker, chief"},
      {R"({"cluster":{"chief":["a:1"],"master":["b:1"]})" + task,
       "both chief and master"},
      {R"({"cluster":{"ps":["a:1"],"worker":["b:1"],"chief":["c:1","d:1"]})" +
           task,
       "lists 2 chiefs"},
      {R"({"cluster":{"ps":["a"],"worker":["b:1"]})" + task, "'a' has no port"},
      {R"({"cluster":{"ps":["a:70000"],"worker":["b:1"]})" + task,
       "'a:70000' has port '70000'"},
      {R"({"cluster":{"ps":["a:1"],"worker":["a:1"]})" + task,
       "address a:1 is given to both ps/0 and worker/0"},
      {R"({"cluster":{"ps":[],"worker":["b:1"]})" + task, "lists no ps"},
      {R"({"cluster":{"ps":["a:1"]}})", "no task type; add \"task\""},
      {R"({"cluster":{"ps":["a:1"]},"task":{"type":"ps"}})", "no task index"},
      {R"({"cluster":{"ps":["a:1"]},"task":[]})", "task is a list; write"},
      {R"({"cluster":{"ps":["a:1"]},"task":{"type":1,"index":0}})",
       "task.type is 1"},
      {R"({"cluster":{"ps":["a:1"]},"task":{"type":"boss","index":0}})",
       "task.type names the role 'boss'"},
      {R"({"cluster":{"ps":["a:1"]},"task":{"type":"ps","index":-1}})",
       "task.index is -1"},
      {R"({"cluster":{"ps":["a:1"]},"task":{"type":"ps","index":"x"}})",
       "task.index is 'x'; write a whole number"},
      {R"({"cluster":{"ps":["a:1"]},"task":{"type":"ps","index":0.5}})",
       "task.index is '0.5'"},
      {R"({"cluster":{"ps":["a:1"]},"task":{"type":"ps","index":true}})",
       "task.index is 'true'"},
      {R"({"cluster":{"ps":["a:1"]},"task":{"type":"ps","index":[]}})",
       "task.index is 'a list'"},
      {R"({"cluster":{"ps":["a:1","b:1"]},"task":{"type":"ps","index":2}})",
       "this task is ps/2, but the cluster lists ps 0, 1 only"},
  };
  for (const auto& c : cases) {
    const auto spec = FromTfConfig(c.json);
    ASSERT_FALSE(spec.ok()) << c.json;
    const std::string message(spec.status().message());
    EXPECT_TRUE(absl::IsInvalidArgument(spec.status())) << message;
    EXPECT_THAT(message, HasSubstr(c.want));
    EXPECT_EQ(message.rfind("TF_CONFIG", 0), 0u) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(TfConfigTest, MalformedWeirVariablesAndFlagsAreNamed) {
  const auto error = [](const ClusterSources& sources) {
    return std::string(ResolveCluster(sources).status().message());
  };
  EXPECT_EQ(error({.weir_cluster = "a:1"}),
            "WEIR_CLUSTER: 'a:1' is not role=host:port,host:port");
  EXPECT_THAT(error({.weir_cluster = "ps=a:1;ps=b:1"}), HasSubstr("twice"));
  EXPECT_THAT(error({.flag_cluster = "pss=a:1"}),
              HasSubstr("--cluster: the cluster names the role 'pss'"));
  EXPECT_THAT(error({.weir_task_index = "x"}),
              HasSubstr("WEIR_TASK_INDEX is 'x'"));
  EXPECT_THAT(error({.flag_task_type = "x"}), HasSubstr("--task_type names"));
  EXPECT_THAT(error({.flag_task_type = "ps"}),
              HasSubstr("--task_type is set, but there is no cluster"));
}

TEST(TfConfigTest, AMessageIsOneLineWhateverTheNamesHold) {
  for (const ClusterSources& sources : {
           ClusterSources{.tf_config = R"({"cluster":{"p\ns":["a:1"]}})"},
           ClusterSources{.tf_config = R"({"cluster":{"ps":["a\n:1"]},)"
                                       R"("task":{"type":"ps","index":0}})"},
           ClusterSources{.tf_config = R"({"task":{"index":"1\u001b[m"}})"},
           ClusterSources{.weir_cluster = "ps=a:1;work\ner"},
           ClusterSources{.flag_task_type = "worker\n2026-01-01 chief/0"},
       }) {
    const auto spec = ResolveCluster(sources);
    ASSERT_FALSE(spec.ok());
    const std::string message(spec.status().message());
    EXPECT_TRUE(std::all_of(message.begin(), message.end(), [](char c) {
      return c >= ' ' && c <= '~';
    })) << message;
    EXPECT_THAT(message, HasSubstr("?"));
  }
}

TEST(TfConfigTest, HugeAndDeepInputIsRefusedNotFatal) {
  // Deep enough for the stack of a parser that calls itself to run out.
  constexpr size_t kDepth = 1 << 17;
  EXPECT_THAT(Text(std::string(kDepth, '[')), HasSubstr("is not JSON"));
  const std::string deep = std::string(kDepth, '[') + std::string(kDepth, ']');
  EXPECT_THAT(Text(deep), HasSubstr("is a list, not an object"));
  EXPECT_THAT(Text(R"({"cluster":{"ps":[)" + deep + "]}}"),
              HasSubstr("cluster.ps[0] is a list"));
}

}  // namespace
}  // namespace weir
