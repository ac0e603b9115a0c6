#include "proto/checkpoint/evaluated.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(EvaluatedTest, EveryWholeLineNamesACheckpoint) {
  const std::string dir = MakeTempDir();
  EXPECT_THAT(EvaluatedCheckpoints(Files::Real(), dir), IsEmpty());
  std::ofstream(dir + "/eval.jsonl")
      << "{\"checkpoint\": \"ckpt-5\"}\n{\"checkpoint\": 7}\n[]\n"
         "{\"checkpoint\": \"ckpt-6\"}\n{\"checkpoint\": \"ck";
  EXPECT_THAT(EvaluatedCheckpoints(Files::Real(), dir),
              ElementsAre("ckpt-5", "ckpt-6"));
}

}  // namespace
}  // namespace weir
