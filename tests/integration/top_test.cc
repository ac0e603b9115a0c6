// weir top: asks a running job what it does and what holds it back.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "tests/integration/hand_cluster.h"
#include "tests/integration/harness.h"

namespace weir {
namespace {

// The report of the job, by the JSON of `weir top`; null when it gives none.
nlohmann::json Report(const HandCluster& cluster) {
  const CommandResult top =
      RunWeir({"top", "--chief", cluster.chief_address(), "--output", "json"},
              {SecurityVariable(PeerRole::kAdmin)});
  return top.exit_code == 0
             ? nlohmann::json::parse(top.output, nullptr, /*exceptions=*/false)
             : nlohmann::json();
}

bool WaitForCause(const HandCluster& cluster, const std::string& kind,
                  const std::string& task, nlohmann::json* last) {
  return WaitUntil(90, [&] {
    *last = Report(cluster);
    return last->is_object() && (*last)["cause"]["kind"] == kind &&
           (*last)["cause"]["task"] == task;
  });
}

TEST(TopTest, NamesTheWorkerThatHoldsASyncJobUp) {
  HandCluster cluster(FreshDir("top_worker"),
                      DigitsJob(1'000'000, "update { sync {} }"), 2, 2, true);
  cluster.Start("ps", 0);
  cluster.Start("ps", 1);
  cluster.Start("chief", 0);
  cluster.Start("worker", 0);
  // Between its batch and its first gradient.
  cluster.Start("worker", 1, {}, {"WEIR_FAILPOINT=worker.before_push:40ms"});
  nlohmann::json report;
  EXPECT_TRUE(WaitForCause(cluster, "slow_worker", "worker/1", &report))
      << report.dump(2);
  // How a process fares is told less often.
  ASSERT_TRUE(WaitUntil(30, [&] {
    report = Report(cluster);
    return report.is_object() && report["worker"][0].contains("host_load") &&
           report["shard"][1]["host_load"]["cpu_seconds_per_second"] > 0.0;
  })) << report.dump(2);
  ASSERT_EQ(report["worker"].size(), 2u);
  EXPECT_EQ(report["phase"], "training");
  EXPECT_EQ(report["mode"], "sync");
  EXPECT_GT(report["worker"][1]["last_share"], 0.6);
  EXPECT_GT(report["worker"][1]["step_seconds"], 0.02);
  EXPECT_GT(report["worker"][0]["host_load"]["processors"], 0.0);
  ASSERT_EQ(report["shard"].size(), 2u);
  for (const nlohmann::json& shard : report["shard"]) {
    EXPECT_EQ(shard["state"], "active");
    EXPECT_GT(shard["updates_per_second"], 0.0);
    EXPECT_GT(shard["apply_seconds"], 0.0);
    EXPECT_GT(shard["bytes_received_per_second"], 0.0);
    EXPECT_GT(shard["host_load"]["cpu_seconds_per_second"], 0.0);
  }
  EXPECT_FALSE(report["event"].empty());
}

TEST(TopTest, NamesThePsThatHoldsAnAsyncJobUp) {
  HandCluster cluster(FreshDir("top_ps"),
                      DigitsJob(1'000'000, "update { async {} }"), 2, 2, true);
  cluster.Start("ps", 0, {}, {"WEIR_FAILPOINT=ps.before_apply:20ms"});
  cluster.Start("ps", 1);
  cluster.Start("chief", 0);
  cluster.Start("worker", 0);
  cluster.Start("worker", 1);
  nlohmann::json report;
  EXPECT_TRUE(WaitForCause(cluster, "slow_ps", "ps/0", &report))
      << report.dump(2);
}

TEST(TopTest, ARunOfThisHostIsFoundByItsDirectory) {
  const std::string dir = FreshDir("top_run");
  const std::string job = FreshDir("top_job") + "/job.textproto";
  WriteFile(job, DigitsJob(1'000'000, "update { async {} }"));
  Process train = StartTrain(dir, {job, "--ps", "1", "--workers", "1"});
  CommandResult top;
  EXPECT_TRUE(WaitUntil(60, [&] {
    top = RunWeir({"top", dir, "--once"});
    return top.exit_code == 0 &&
           top.output.find("  training  async  step ") != std::string::npos;
  })) << top.output;
  EXPECT_NE(top.output.find("\nworker "), std::string::npos) << top.output;
  train.Signal(SIGTERM);
  EXPECT_EQ(train.Wait(60), 143);
  const CommandResult over = RunWeir({"top", dir});
  EXPECT_EQ(over.exit_code, 2) << over.output;
  EXPECT_NE(over.output.find("is over"), std::string::npos) << over.output;
}

TEST(TopTest, AWrongSecretIsRefused) {
  HandCluster cluster(FreshDir("top_secret"),
                      DigitsJob(1'000'000, "update { async {} }"), 1, 1, true);
  cluster.StartAll();
  nlohmann::json report;
  ASSERT_TRUE(WaitUntil(60, [&] { return Report(cluster).is_object(); }));
  const CommandResult top =
      RunWeir({"top", "--chief", cluster.chief_address(), "--once"},
              {"WEIR_SECRET=another secret that is long enough to be one"});
  EXPECT_NE(top.exit_code, 0);
  EXPECT_EQ(top.output.find("worker "), std::string::npos) << top.output;
}

TEST(TopTest, WithoutAJobItSaysWhatToGive) {
  const CommandResult top = RunWeir({"top", "--once", "--insecure"});
  EXPECT_EQ(top.exit_code, 2) << top.output;
  EXPECT_NE(top.output.find("--chief"), std::string::npos) << top.output;
}

}  // namespace
}  // namespace weir
