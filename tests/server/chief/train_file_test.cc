#include "server/chief/train_file.h"

#include <fstream>

#include "common/faulty_files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

TEST(TrainFileTest, CutsWhatIsBeyondAStepAndWhatIsTorn) {
  const std::string path = MakeTempDir() + "/train.jsonl";
  TrainFile file(Files::Real(), path);
  EXPECT_TRUE(file.Read()->empty());
  ASSERT_TRUE(file.Cut(10).ok());
  EXPECT_FALSE(*Files::Real()->Exists(path));
  for (const char* line :
       {"{\"step\":10,\"seconds\":1.5}", "{\"step\":20}", "{\"step\":30}"}) {
    ASSERT_TRUE(file.Append(line).ok());
  }
  std::ofstream(path, std::ios::app) << "{\"step\":40";  // killed in a write
  EXPECT_EQ(file.Read()->size(), 3u);
  EXPECT_EQ(file.Read()->front().seconds, 1.5);
  ASSERT_TRUE(file.Cut(20).ok());
  ASSERT_TRUE(file.Append("{\"step\":25}").ok());
  EXPECT_EQ(*Files::Real()->ReadAll(path),
            "{\"step\":10,\"seconds\":1.5}\n{\"step\":20}\n{\"step\":25}\n");
}

TEST(TrainFileTest, AFullDiskIsAnErrorOfTheCall) {
  FaultyFiles files(Files::Real());
  TrainFile file(&files, MakeTempDir() + "/train.jsonl");
  files.FailCall(1, absl::ResourceExhaustedError("full"));
  EXPECT_EQ(file.Append("{}").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(file.Append("{\"step\":1}").ok());
  EXPECT_EQ(file.Read()->size(), 1u);
}

}  // namespace
}  // namespace weir
