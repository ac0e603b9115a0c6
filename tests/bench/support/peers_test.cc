#include "bench/support/peers.h"

#include <string>

#include "common/io/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

using testing::HasSubstr;

// Writes a Python script that prints `line`, at a path with a blank in it.
std::string WriteScript(const std::string& line) {
  const std::string path = MakeTempDir() + "/a script.py";
  EXPECT_TRUE(
      Files::Real()->WriteAtomically(path, "print('" + line + "')\n").ok());
  return path;
}

TEST(PeersTest, ReadsWhatACommandPrints) {
  EXPECT_EQ(JsonOutputOf("echo '{\"a\": 7}'").value("a", 0), 7);
  EXPECT_TRUE(JsonOutputOf("echo nonsense").is_discarded());
  EXPECT_TRUE(JsonOutputOf("false").is_discarded());
}

TEST(PeersTest, TurnsTheSecondsOfTorchIntoGigabytesASecond) {
  const auto rpc = MeasureTorchRpc(
      WriteScript(R"({"pull_seconds": 0.5, "push_seconds": 0.25})"), 1,
      1'000'000'000, "tcp");
  ASSERT_TRUE(rpc.ok()) << rpc.status();
  EXPECT_DOUBLE_EQ(rpc->pull, 2);
  EXPECT_DOUBLE_EQ(rpc->push, 4);
}

TEST(PeersTest, SaysWhatToInstallWhenTorchGivesNothing) {
  for (const std::string line : {"", R"({"pull_seconds": 0.5})"}) {
    const auto rpc = MeasureTorchRpc(WriteScript(line), 1, 1000, "tcp");
    EXPECT_EQ(rpc.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(rpc.status().message()),
                HasSubstr("python3-torch"));
  }
}

TEST(PeersTest, MeasuresThisMachine) {
  constexpr size_t kBytes = 1 << 20;
  EXPECT_GT(MeasureMemcpy(0.01, kBytes), 0);
  EXPECT_GT(MeasureSockets(0.01, kBytes), 0);
}

}  // namespace
}  // namespace weir
