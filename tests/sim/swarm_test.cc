// The simulator as a program: worlds that hold, worlds of the same bits in any
// process, and planted defects that it finds.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <memory>
#include <random>
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

TEST(SwarmTest, EveryWorldAddsUp) {
  std::random_device random;
  const Ran ran = RunSim(std::string(kSim) + " --minutes 0.3 --first " +
                         std::to_string(random() | 1u));
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  std::printf("%s", ran.output.c_str());
}

// Nothing of a world depends on addresses, which differ from process to
// process, nor on the environment, the folder or the number of processors.
TEST(SwarmTest, AWorldIsTheSameInEveryProcess) {
  const std::string words = " --first 1 --worlds 200 --minutes 10";
  const Ran here = RunSim(kSim + words);
  const Ran there = RunSim("program=$PWD/" + std::string(kSim) +
                           "; cd / && LANG=C WEIR_NOTHING=1 taskset -c 0 "
                           "$program" +
                           words);
  ASSERT_EQ(here.exit_code, 0) << here.output;
  EXPECT_NE(Hash(here), "no hash");
  EXPECT_EQ(Hash(there), Hash(here)) << there.output << here.output;
}

class PlantedTest : public testing::TestWithParam<const char*> {};

TEST_P(PlantedTest, IsFound) {
  std::random_device random;
  const std::string first = std::to_string(random() | 1u);
  const Ran ran = RunSim(std::string("WEIR_PLANT=") + GetParam() + " " + kSim +
                         " --minutes 1 --first " + first);
  EXPECT_EQ(ran.exit_code, 1) << "not found from seed " << first << " on";
  EXPECT_NE(ran.output.find("BROKEN: "), std::string::npos) << ran.output;
  std::printf("%s", ran.output.c_str());
}

INSTANTIATE_TEST_SUITE_P(
    Plants, PlantedTest,
    testing::Values("client.silent_receipt", "end.forgets_lost_ps",
                    "exchange.sends_once", "flow.writes_once",
                    "order.counts_again", "order.early_unmarked"));

}  // namespace
}  // namespace weir::sim
