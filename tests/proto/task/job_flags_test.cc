#include "proto/task/job_flags.h"

#include <CLI/CLI.hpp>

#include "common/base/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::ElementsAre;

struct Flags {
  std::string job;
  std::vector<std::string> sets;
  std::string data_dir = ".";
  std::string device = "auto";
  std::string plugin;
};

Flags Parse(const std::string& job, const std::string& arguments) {
  Flags flags;
  CLI::App app;
  AddJobFlags(&app, job, &flags.job, &flags.sets, &flags.data_dir);
  AddDeviceFlags(&app, &flags.device, &flags.plugin);
  app.parse(arguments);
  return flags;
}

TEST(JobFlagsTest, TheJobIsAFlagOrAWord) {
  EXPECT_EQ(Parse("--job", "--job a.textproto").job, "a.textproto");
  EXPECT_EQ(Parse("job", "a.textproto").job, "a.textproto");
  EXPECT_THROW(Parse("job", ""), CLI::ParseError);
}

TEST(JobFlagsTest, TheRestHasDefaults) {
  const Flags none = Parse("job", "a");
  EXPECT_EQ(none.data_dir, ".");
  EXPECT_EQ(none.device, "auto");
  const Flags all = Parse("job",
                          "a --set train.steps=3 --set seed=1 --data_dir d "
                          "--device cuda:1 --device_plugin p");
  EXPECT_THAT(all.sets, ElementsAre("train.steps=3", "seed=1"));
  EXPECT_EQ(all.data_dir, "d");
  EXPECT_EQ(all.device, "cuda:1");
  EXPECT_EQ(all.plugin, "p");
}

TEST(JobFlagsTest, AWrongLogIsFoundBeforeAnythingStarts) {
  const auto parse = [](const std::string& arguments) {
    LogOptions options;
    CLI::App app;
    AddLogFlags(&app, &options);
    app.parse(arguments);
    return options;
  };
  const LogOptions given =
      parse("--log_level info,server/ps=debug --log_format json");
  EXPECT_EQ(given.levels, "info,server/ps=debug");
  EXPECT_EQ(given.format, "json");
  EXPECT_EQ(parse("").levels, "info");
  for (const char* const wrong :
       {"--log_level loud", "--log_level serve=debug", "--log_format xml"}) {
    EXPECT_THROW(parse(wrong), CLI::ValidationError) << wrong;
  }
}

}  // namespace
}  // namespace weir
