// Two processes that both take themselves for the chief, or for one worker.
// Each task is a real process.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/integration/hand_cluster.h"
#include "tests/integration/harness.h"

namespace weir {
namespace {

std::string Job() {
  return DigitsJob(30000,
                   "checkpoint { every_steps: 200 } update { async {} }");
}

bool Says(const Process& process, const std::string& text) {
  return process.Log().find(text) != std::string::npos;
}

void ExpectSuccess(HandCluster* cluster,
                   const std::vector<std::pair<std::string, int>>& tasks) {
  for (const auto& [role, index] : tasks) {
    EXPECT_EQ(cluster->task(role, index).Wait(120), 0)
        << role << "/" << index << "\n"
        << cluster->task(role, index).Log();
  }
}

const std::vector<std::pair<std::string, int>> kAll = {
    {"chief", 0}, {"worker", 0}, {"worker", 1}, {"ps", 0}, {"ps", 1}};

// A chief sleeps, another one takes its job over elsewhere, the first wakes up.
TEST(FencingTest, ASupersededChiefEndsAloneAndTheJobGoesOn) {
  HandCluster cluster(FreshDir("two_chiefs"), Job(), 2, 2, true);
  cluster.StartAll();
  ASSERT_TRUE(WaitUntil(60, [&] { return cluster.step() >= 100; }))
      << cluster.task("chief", 0).Log();
  Process asleep = cluster.Detach("chief", 0);
  asleep.Signal(SIGSTOP);
  const std::string old_address = cluster.chief_address();
  cluster.SetChiefAddress(FreeAddress());
  // A file system without locks would not hold the first chief's lock either.
  std::filesystem::remove(cluster.dir() + "/checkpoints/.chief");
  cluster.Start("chief", 0);
  cluster.Start("worker", 0);
  cluster.Start("worker", 1);
  const uint64_t before = cluster.step();
  ASSERT_TRUE(WaitUntil(60, [&] { return cluster.step() > before; }))
      << cluster.task("chief", 0).Log() << cluster.task("worker", 0).Log();

  asleep.Signal(SIGCONT);
  Process worker = cluster.Detach("worker", 0);
  const std::string address = cluster.chief_address();
  cluster.SetChiefAddress(old_address);
  cluster.Start("worker", 0);  // registers with the old chief
  Process lost = cluster.Detach("worker", 0);
  cluster.SetChiefAddress(address);
  EXPECT_EQ(asleep.Wait(30), 5) << asleep.Log();
  EXPECT_TRUE(Says(asleep, "another chief has taken over")) << asleep.Log();
  EXPECT_EQ(worker.Wait(120), 0) << worker.Log();
  lost.Signal(SIGKILL);
  ExpectSuccess(&cluster, {{"chief", 0}, {"worker", 1}, {"ps", 0}, {"ps", 1}});
  EXPECT_EQ(cluster.step(), 30000u);
}

// A worker sleeps, is replaced, and wakes up under a chief that was restarted.
TEST(FencingTest, AReplacedWorkerEndsAloneAlsoAfterAChiefsRestart) {
  HandCluster cluster(FreshDir("two_workers"), Job(), 2, 2, true);
  cluster.StartAll();
  ASSERT_TRUE(WaitUntil(60, [&] { return cluster.step() >= 100; }))
      << cluster.task("chief", 0).Log();
  Process asleep = cluster.Detach("worker", 1);
  asleep.Signal(SIGSTOP);
  cluster.Start("worker", 1);
  ASSERT_TRUE(WaitUntil(60, [&] {
    return Says(cluster.task("worker", 1), "generation 2");
  })) << cluster.task("worker", 1).Log();
  cluster.task("chief", 0).Signal(SIGKILL);
  cluster.task("chief", 0).Wait(5);
  cluster.Start("chief", 0);
  const uint64_t before = cluster.step();
  ASSERT_TRUE(WaitUntil(60, [&] {
    return Says(cluster.task("chief", 0), "training from");
  })) << cluster.task("chief", 0).Log();
  asleep.Signal(SIGCONT);
  EXPECT_EQ(asleep.Wait(30), 5) << asleep.Log();
  ASSERT_TRUE(WaitUntil(60, [&] { return cluster.step() > before; }))
      << cluster.task("chief", 0).Log();
  ExpectSuccess(&cluster, kAll);
  EXPECT_EQ(cluster.step(), 30000u);
}

}  // namespace
}  // namespace weir
