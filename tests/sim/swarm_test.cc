// The simulator as a program: worlds that hold, worlds of the same bits in any
// process, and planted defects that it finds.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>

namespace weir::sim {
namespace {

constexpr char kSim[] = "sim/weir_sim";

struct Ran {
  int exit_code = -1;
  std::string output;
};

Ran RunSim(const std::string& words) {
  Ran ran;
  FILE* const pipe = popen((words + " 2>&1").c_str(), "r");
  std::array<char, 4096> some = {};
  while (fgets(some.data(), some.size(), pipe) != nullptr) {
    ran.output += some.data();
  }
  const int status = pclose(pipe);
  ran.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return ran;
}

std::string Hash(const Ran& ran) {
  const size_t at = ran.output.find("hash ");
  return at == std::string::npos ? "no hash" : ran.output.substr(at);
}

// Always the same worlds, whatever the machine's speed; `./weir sim` looks at
// others.
TEST(SwarmTest, EveryWorldAddsUp) {
  const Ran ran =
      RunSim(std::string(kSim) + " --first 1000 --worlds 600 --minutes 10");
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_NE(ran.output.find("600 worlds, the last of seed 1599\n"),
            std::string::npos)
      << ran.output;
  // Each kind of event and of fault came about.
  for (const char* none : {" 0 ", "\n0 "}) {
    EXPECT_EQ(ran.output.find(none), std::string::npos) << ran.output;
  }
  std::printf("%s", ran.output.c_str());
}

TEST(SwarmTest, AWorldThatFailsIsMadeSmallerAndCanBeReplayed) {
  const std::string plant = "WEIR_PLANT=order.counts_again ";
  const Ran ran = RunSim(plant + kSim + " --first 1 --minutes 10");
  ASSERT_EQ(ran.exit_code, 1) << ran.output;
  const std::string words = "./weir sim --replay ";
  const size_t at = ran.output.find(words);
  ASSERT_NE(at, std::string::npos) << ran.output;
  const std::string world = ran.output.substr(
      at + words.size(), ran.output.find('\n', at) - at - words.size());
  const size_t broken = ran.output.rfind("BROKEN: ");
  const std::string what =
      ran.output.substr(broken, ran.output.find('\n', broken) - broken);
  const Ran again = RunSim(plant + kSim + " --replay " + world);
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_NE(again.output.find(what), std::string::npos)
      << what << " is not in " << again.output.substr(0, 2000);
  EXPECT_EQ(RunSim(kSim + (" --replay " + world)).exit_code, 0);
  EXPECT_EQ(RunSim(std::string(kSim) + " --replay nothing").exit_code, 2);
}

TEST(SwarmTest, GoesOnFromTheLastSeed) {
  const std::string file = testing::TempDir() + "/next_seed";
  const std::string words = std::string(kSim) + " --worlds 20 --go_on " + file;
  std::remove(file.c_str());
  EXPECT_NE(RunSim(words).output.find("the last of seed 20"),
            std::string::npos);
  EXPECT_NE(RunSim(words).output.find("the last of seed 40"),
            std::string::npos);
}

// Nothing of a world depends on addresses, which differ from process to
// process, nor on the environment, the folder, the number of processors or
// their instructions: oneDNN takes those of an older machine where the
// environment says so.
TEST(SwarmTest, AWorldIsTheSameInEveryProcess) {
  const std::string words = " --first 1 --worlds 200 --minutes 10";
  const Ran here = RunSim(kSim + words);
  const Ran there =
      RunSim("program=$PWD/" + std::string(kSim) +
             "; cd / && LANG=C DNNL_MAX_CPU_ISA=SSE41 taskset -c 0 "
             "$program" +
             words);
  ASSERT_EQ(here.exit_code, 0) << here.output;
  EXPECT_NE(Hash(here), "no hash");
  EXPECT_EQ(Hash(there), Hash(here)) << there.output << here.output;
  // Also the values at the end of each job are in the hash.
  const Ran narrow = RunSim(kSim + words + " --narrow");
  EXPECT_EQ(Hash(narrow), Hash(here)) << narrow.output << here.output;
}

struct Plant {
  std::string name;   // common/base/plant.h
  int first;          // a seed whose world shows it, when this was written
  std::string words;  // of the check that has to find it
};

class PlantedTest : public testing::TestWithParam<Plant> {};

// In the same worlds each time: seeds that are drawn anew, as when the plants
// were measured (docs/simulation.md), might miss a defect by chance. When other
// changes have made other worlds of the seeds the search takes longer.
TEST_P(PlantedTest, IsFoundByItsCheck) {
  const Plant& plant = GetParam();
  const Ran ran =
      RunSim("WEIR_PLANT=" + plant.name + " " + kSim + " --first " +
             std::to_string(plant.first) + " --worlds 4000 --minutes 10");
  ASSERT_EQ(ran.exit_code, 1) << "no world shows it";
  // In the world as the seed draws it; with fewer faults another check may be
  // the first.
  const size_t broken = ran.output.find("BROKEN: ");
  ASSERT_NE(broken, std::string::npos) << ran.output;
  const std::string what =
      ran.output.substr(broken, ran.output.find('\n', broken) - broken);
  EXPECT_NE(what.find(plant.words), std::string::npos) << ran.output;
  std::printf("%s", ran.output.c_str());
}

INSTANTIATE_TEST_SUITE_P(
    Plants, PlantedTest,
    testing::Values(  // Those of HealthChecks: I1, I2, I3, I4, I5, I6.
        Plant{"end.forgets_latecomers", 74, " s without trouble"},
        Plant{"chief.fenced_ends_job", 368,
              "was replaced, and no process has its place"},
        Plant{"end.forgets_latecomers", 198,
              "started when the job was done, and ended with 138"},
        Plant{"worker.keeps_hold", 1466, "has pushed nothing for"},
        Plant{"ps.leaves_at_once", 174, "a stop has saved"},
        Plant{"stop.version_ahead", 654, "a stop has saved"},
        Plant{"roster.replaced_comes_back", 9104, "and was granted"},
        // The others.
        Plant{"checkpoint.drops_bases", 8, "is no checkpoint"},
        Plant{"client.silent_receipt", 1, "a slot has not ended"},
        Plant{"exchange.sends_once", 5, "unreachable for 10 s"},
        Plant{"flow.writes_once", 1, "unreachable for 10 s"},
        Plant{"order.counts_again", 5, " and not "},
        Plant{"order.early_unmarked", 13, "expected sequence number 0"},
        Plant{"resume.sorts_by_text", 30, "a chief restores ckpt-"},
        Plant{"rows.applies_again", 23, " and not "},
        Plant{"rows.increments_chain", 8, "has not the values of"},
        Plant{"snapshot.takes_newer", 1048, "has not the values of"}),
    [](const auto& info) {
      std::string name = info.param.name;
      std::replace(name.begin(), name.end(), '.', '_');
      return name + "_" + std::to_string(info.param.first);
    });

}  // namespace
}  // namespace weir::sim
