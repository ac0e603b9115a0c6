// Data in an object store: it is read by ranges, or copied once.
#include "worker/data/input/data_cache.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "tests/support/fake_s3_store.h"

namespace weir {
namespace {

constexpr char kUrl[] = "s3://bucket/data/train.csv";

// What OpenData gives, read whole.
std::string Read(FakeS3Store* fake, const std::string& directory,
                 const std::string& path = kUrl) {
  const auto file = OpenData(fake->store(), Files::Real(), directory, path);
  if (!file.ok()) {
    return file.status().ToString();
  }
  std::string text(static_cast<size_t>((*file)->size()), '\0');
  const absl::Status status = (*file)->ReadAt(0, text.data(), text.size());
  return status.ok() ? text : status.ToString();
}

size_t FilesIn(const std::string& directory) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(directory)) {
    ++count;
  }
  return count;
}

TEST(DataCacheTest, WithoutADirectoryItIsReadByRanges) {
  FakeS3Store fake;
  fake.s3()->PutObject("data/train.csv", "1,2,3");
  EXPECT_EQ(Read(&fake, ""), "1,2,3");
}

TEST(DataCacheTest, AnObjectIsCopiedOnceAndAgainWhenItWasReplaced) {
  const std::string directory = MakeTempDir() + "/cache";
  FakeS3Store fake;
  fake.s3()->PutObject("data/train.csv", "1,2,3");
  EXPECT_EQ(Read(&fake, directory), "1,2,3");
  const int64_t before = fake.s3()->requests();
  EXPECT_EQ(Read(&fake, directory), "1,2,3");
  EXPECT_EQ(fake.s3()->requests(), before + 1);  // for its version
  fake.s3()->PutObject("data/train.csv", "4,5,6");
  EXPECT_EQ(Read(&fake, directory), "4,5,6");
  EXPECT_EQ(FilesIn(directory), 2U);
  // One that was cut by somebody is not taken for whole.
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::filesystem::resize_file(entry.path(), 2);
  }
  EXPECT_EQ(Read(&fake, directory), "4,5,6");
}

TEST(DataCacheTest, WhereNothingCanBeKeptItIsReadByRanges) {
  FakeS3Store fake;
  fake.s3()->PutObject("data/train.csv", "1,2,3");
  const std::string file = MakeTempDir() + "/file";
  std::ofstream(file) << "no directory";
  EXPECT_EQ(Read(&fake, file + "/cache"), "1,2,3");
}

TEST(DataCacheTest, NamesTheObjectThatIsNotThere) {
  FakeS3Store fake;
  EXPECT_NE(Read(&fake, "").find(kUrl), std::string::npos);
}

}  // namespace
}  // namespace weir
