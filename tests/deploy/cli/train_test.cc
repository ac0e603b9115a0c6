// How the command line of `weir train` is read; nothing is started here.
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/exit_code.h"
#include "deploy/cli/command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "tests/deploy/cli/command_line.h"

namespace weir {
namespace {

using testing::HasSubstr;

using Words = std::vector<std::string>;

// Reads `weir train FLAGS` and runs it.
absl::StatusOr<int> Train(Words flags) {
  flags.insert(flags.begin(), "train");
  const Command command = ReadCommandLine(AddTrainCommand, flags);
  return command();
}

TEST(TrainCommandLineTest, AMistakeIsFoundBeforeADirectoryIsMade) {
  const std::string workdir = MakeTempDir() + "/run";
  const auto device =
      Train({"/absent.textproto", "--device", "tpu", "--workdir", workdir});
  EXPECT_EQ(ExitCodeFor(device.status()), kExitUsage);
  EXPECT_THAT(std::string(device.status().message()),
              HasSubstr("device is 'tpu'"));
  const auto job = Train({"/absent.textproto", "--workdir", workdir});
  EXPECT_EQ(ExitCodeFor(job.status()), kExitUsage);
  EXPECT_THAT(std::string(job.status().message()),
              HasSubstr("/absent.textproto"));
  EXPECT_FALSE(std::filesystem::exists(workdir));
}

TEST(TrainCommandLineTest, RefusesValuesThatCannotBe) {
  const Words cases[] = {{},
                         {"job", "--ps", "0"},
                         {"job", "--ps", "65"},
                         {"job", "--workers", "0"},
                         {"job", "--transport", "tcp"},
                         {"job", "--channels_per_peer", "17"},
                         {"job", "--no_such_flag"}};
  for (const Words& flags : cases) {
    EXPECT_THROW(Train(flags).IgnoreError(), WrongUsage)
        << testing::PrintToString(flags);
  }
}

}  // namespace
}  // namespace weir
