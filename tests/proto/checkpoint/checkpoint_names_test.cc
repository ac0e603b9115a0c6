#include "proto/checkpoint/checkpoint_names.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(CheckpointNamesTest, EveryNameIsParsedToWhatItWasMadeOf) {
  const uint64_t largest = std::numeric_limits<uint64_t>::max();
  for (const uint64_t step : {uint64_t{0}, uint64_t{7}, largest}) {
    for (const uint64_t attempt : {uint64_t{1}, uint64_t{2}, largest}) {
      const std::string name = CheckpointName(step, attempt);
      const auto id = ParseCheckpointName(name);
      ASSERT_TRUE(id.has_value()) << name;
      EXPECT_EQ(id->step, step);
      EXPECT_EQ(id->attempt, attempt);
    }
  }
  EXPECT_EQ(CheckpointName(5), "ckpt-5");
  EXPECT_EQ(CheckpointName(5, 2), "ckpt-5-2");
}

// Two names for one checkpoint, or a name that is a path, could be used to read
// files that are not the checkpoint's.
TEST(CheckpointNamesTest, OtherNamesAreRefused) {
  for (const char* name :
       {"", "ckpt", "ckpt-", "ckpt-x", "ckpt-05", "ckpt-+5", "ckpt-5 ",
        "ckpt-5-", "ckpt-5-0", "ckpt-5-1", "ckpt-5-02", "ckpt-5-2-3", "ckpt--2",
        "ckpt-18446744073709551616", "xckpt-5", "../ckpt-5", "ckpt-5/",
        "ckpt-5/../x"}) {
    EXPECT_FALSE(ParseCheckpointName(name).has_value()) << name;
  }
}

TEST(CheckpointNamesTest, ALaterAttemptAtAStepIsNewer) {
  std::vector<CheckpointId> ids = {{6, 1}, {5, 10}, {5, 2}, {5, 1}};
  std::sort(ids.begin(), ids.end());
  std::vector<std::string> names;
  for (const CheckpointId& id : ids) {
    names.push_back(CheckpointName(id.step, id.attempt));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"ckpt-5", "ckpt-5-2", "ckpt-5-10",
                                             "ckpt-6"}));
}

TEST(CheckpointNamesTest, AShardFileSaysItsShardAndHowManyThereAre) {
  EXPECT_EQ(ShardFileName(2, 16), "shard-2-of-16.safetensors");
}

}  // namespace
}  // namespace weir
