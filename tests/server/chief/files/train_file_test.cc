#include "server/chief/files/train_file.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "tests/support/fake_s3_store.h"
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

// Weeks of lines: the newest are all there, and the curve before has points.
TEST(TrainFileTest, ALongFileIsThinnedOut) {
  const std::string path = MakeTempDir() + "/train.jsonl";
  constexpr uint64_t kLines =
      TrainFile::kNewestLines + 5 * TrainFile::kOlderLines;
  std::string text;
  for (uint64_t step = 1; step <= kLines; ++step) {
    absl::StrAppend(&text, "{\"step\":", step, "}\n");
  }
  ASSERT_TRUE(Files::Real()->WriteAtomically(path, text).ok());
  TrainFile file(Files::Real(), path);
  const auto lines = *file.Read();
  ASSERT_GT(lines.size(), TrainFile::kNewestLines);
  const size_t older = lines.size() - TrainFile::kNewestLines;
  EXPECT_LE(older, TrainFile::kOlderLines);
  EXPECT_EQ(lines.front().step, 1u);
  EXPECT_EQ(lines.back().step, kLines);
  for (size_t i = 1; i < lines.size(); ++i) {
    ASSERT_EQ(lines[i].step - lines[i - 1].step, i <= older ? 8u : 1u) << i;
  }
}

TEST(TrainFileTest, LinesThatAStoreDoesNotTakeAreWrittenLater) {
  FakeS3Store fake;
  TrainFile file(fake.store(), "s3://bucket/run/train.jsonl");
  ASSERT_TRUE(file.Append("{\"step\":1}").ok());
  ASSERT_TRUE(file.Append("{\"step\":2}").ok());  // waits for the next write
  fake.s3()->SetFaults(
      [](const HttpRequest&) { return FakeS3::Fault::kSlowDown; });
  EXPECT_FALSE(file.Flush().ok());
  EXPECT_FALSE(file.Append("{\"step\":3}").ok());
  const int64_t requests = fake.s3()->requests();
  EXPECT_TRUE(file.Append("{\"step\":4}").ok());
  EXPECT_EQ(fake.s3()->requests(), requests);
  fake.s3()->SetFaults(nullptr);
  EXPECT_TRUE(file.Flush().ok());
  EXPECT_EQ(file.Read()->size(), 4u);
  EXPECT_EQ(fake.s3()->requests(), requests + 1 + 2);  // a PUT; a list, a GET
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
