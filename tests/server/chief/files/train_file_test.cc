#include "server/chief/files/train_file.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "tests/support/faulty_files.h"

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

TEST(TrainFileTest, LinesWaitForRoomOnTheDisk) {
  const std::string path = MakeTempDir() + "/train.jsonl";
  FaultyFiles files(Files::Real());
  TrainFile file(&files, path);
  ASSERT_TRUE(file.Append("{\"step\":1}").ok());
  // Half a line reaches the file.
  files.FailCall(1, absl::ResourceExhaustedError("full"), /*sticky=*/true);
  const absl::Status full = file.Append("{\"step\":2}");
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), testing::HasSubstr("wait"));
  // The error is returned once.
  EXPECT_TRUE(file.Append("{\"step\":3}").ok());
  EXPECT_FALSE(file.Flush().ok());
  files.FailCall(0, absl::OkStatus());
  EXPECT_EQ(file.Read()->size(), 1u);
  EXPECT_TRUE(file.Flush().ok());
  EXPECT_TRUE(file.Append("{\"step\":4}").ok());
  EXPECT_EQ(*Files::Real()->ReadAll(path),
            "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n");
  EXPECT_TRUE(file.Flush().ok());
}

}  // namespace
}  // namespace weir
