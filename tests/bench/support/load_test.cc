#include "bench/support/load.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(LoadTest, CountsStepsThatEndInTheMeasurement) {
  const ClientResult result = ResultOf({100.5, 101.5, 102, 103}, 100, 2);
  EXPECT_THAT(result.step_s, ElementsAre(0.5, 1, 0.5));
  EXPECT_DOUBLE_EQ(result.steps_per_s, 1.5);
}

TEST(LoadTest, CountsThePartOfTheStepThatIsUnderWayAtTheEnd) {
  // A quarter of the second step lies within.
  const ClientResult result = ResultOf({101, 105}, 100, 2);
  EXPECT_THAT(result.step_s, ElementsAre(1));
  EXPECT_DOUBLE_EQ(result.steps_per_s, 1.25 / 2);
}

TEST(LoadTest, AStepLongerThanTheMeasurementIsAPartOnly) {
  const ClientResult result = ResultOf({110}, 100, 1);
  EXPECT_THAT(result.step_s, IsEmpty());
  EXPECT_DOUBLE_EQ(result.steps_per_s, 0.1);
}

TEST(LoadTest, AClientReadsTheFlagsThatStartIt) {
  CLI::App app;
  LoadOptions options;
  int client = -1;
  std::string directory;
  AddLoadClientFlags(&app, &options, &client, &directory);
  std::vector<std::string> flags = {"--push_only", "7", "--bytes", "a:1,b:2",
                                    "--addresses", "3", "--client"};
  app.parse(flags);  // last first, as CLI11 wants them
  EXPECT_EQ(client, 3);
  EXPECT_THAT(options.addresses, ElementsAre("a:1", "b:2"));
  EXPECT_EQ(options.bytes, 7);
  EXPECT_FALSE(options.pull);
}

TEST(LoadTest, AnotherProcessIsNoClient) {
  CLI::App app;
  LoadOptions options;
  int client = -1;
  std::string directory;
  AddLoadClientFlags(&app, &options, &client, &directory);
  std::vector<std::string> flags;
  app.parse(flags);
  EXPECT_EQ(client, -1);
  EXPECT_TRUE(options.pull);
}

}  // namespace
}  // namespace weir
