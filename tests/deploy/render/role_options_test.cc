#include "deploy/render/role_options.h"

#include "gtest/gtest.h"
#include "tests/common/expect_error.h"

namespace weir {
namespace {

TEST(RoleOptionsTest, ReadsTolerations) {
  const auto read = ParseTolerations(
      {"worker:spot=true:NoSchedule", "worker:nvidia.com/gpu", "ps:a=b"});
  ASSERT_TRUE(read.ok()) << read.status();
  const auto& worker = read->at(TaskRole::kWorker);
  ASSERT_EQ(worker.size(), 2u);
  EXPECT_EQ(worker[0].key, "spot");
  EXPECT_EQ(worker[0].value, "true");
  EXPECT_EQ(worker[0].effect, "NoSchedule");
  EXPECT_EQ(worker[1].key, "nvidia.com/gpu");
  EXPECT_EQ(worker[1].value, "");
  EXPECT_EQ(worker[1].effect, "");
  EXPECT_EQ(read->at(TaskRole::kPs)[0].value, "b");
}

TEST(RoleOptionsTest, SaysWhatIsWrongWithATolerance) {
  ExpectInvalid(ParseTolerations({"worker"}).status(),
                "--tolerate worker: write ROLE:KEY[=VALUE][:EFFECT]");
  ExpectInvalid(ParseTolerations({"server:a"}).status(),
                "'server' is no role; there are ps, chief, worker, evaluator");
  ExpectInvalid(ParseTolerations({"ps:a:Never"}).status(),
                "'Never' is not NoSchedule, PreferNoSchedule or NoExecute");
  for (const char* text : {"ps:", "ps:=b", "ps:a:NoSchedule:c", "ps:a b"}) {
    ExpectInvalid(ParseTolerations({text}).status(), text);
  }
}

TEST(RoleOptionsTest, ReadsNodeSelectors) {
  const auto read = ParseNodeSelectors({"worker:pool=gpu", "worker:zone=a"});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->at(TaskRole::kWorker).at("pool"), "gpu");
  EXPECT_EQ(read->at(TaskRole::kWorker).at("zone"), "a");
  for (const char* text : {"worker:pool", "worker:=gpu", "worker:a=b c"}) {
    ExpectInvalid(ParseNodeSelectors({text}).status(), text);
  }
}

TEST(RoleOptionsTest, ReadsAmounts) {
  EXPECT_EQ(ParseCpus({"ps=2", "ps=3"})->at(TaskRole::kPs), 3000);
  EXPECT_EQ(ParseMemories({"worker=1Gi"})->at(TaskRole::kWorker), 1 << 30);
  ExpectInvalid(ParseCpus({"ps"}).status(), "--cpu ps: write ROLE=CPUS");
  ExpectInvalid(ParseCpus({"ps=x"}).status(), "--cpu ps=x: 'x' is not");
  ExpectInvalid(ParseMemories({"ps=4 GB"}).status(), "'4 GB' is not");
}

}  // namespace
}  // namespace weir
