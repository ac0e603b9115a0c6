// The file of what was timed.
#include "worker/compute/cuda/engine_choices.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace weir::cuda {
namespace {

class EngineChoicesTest : public testing::Test {
 protected:
  std::string Text() const {
    std::ifstream file(path_);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  const std::string folder_ = absl::StrCat(
      testing::TempDir(), "/",
      testing::UnitTest::GetInstance()->current_test_info()->name());
  const std::string path_ = folder_ + "/a/choices.txt";
};

TEST_F(EngineChoicesTest, KeepsWhatWasAddedForTheNextOne) {
  EngineChoices first(path_);
  EXPECT_EQ(first.Find("key"), "");
  first.Add("key", "one, two");
  first.Add("other", "three");
  EXPECT_EQ(first.Find("key"), "one, two");
  EXPECT_EQ(Text(), "key\tone, two\nother\tthree\n");
  EngineChoices second(path_);
  EXPECT_EQ(second.Find("key"), "one, two");
  second.Add("key", "four");
  EXPECT_EQ(EngineChoices(path_).Find("key"), "four");
  EXPECT_EQ(EngineChoices(path_).Find("other"), "three");
}

TEST_F(EngineChoicesTest, PassesOverWhatIsNoLine) {
  std::filesystem::create_directories(folder_ + "/a");
  std::ofstream(path_) << "no tab\n\n\tno key\nkey\tkept\nhalf a li";
  EngineChoices choices(path_);
  EXPECT_EQ(choices.Find("key"), "kept");
  choices.Add("key", "new");
  EXPECT_EQ(EngineChoices(path_).Find("key"), "new");
}

TEST_F(EngineChoicesTest, WorksWithoutAFile) {
  EngineChoices none("");
  none.Add("key", "choice");
  EXPECT_EQ(none.Find("key"), "choice");
  // A file where the folder should be.
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ + "/a") << "x";
  EngineChoices impossible(path_);
  impossible.Add("key", "choice");
  impossible.Add("other", "choice");
  EXPECT_EQ(impossible.Find("key"), "choice");
  EXPECT_EQ(EngineChoices(path_).Find("key"), "");
}

TEST(EngineChoicesPathTest, IsInTheFolderOfTheUsersCaches) {
  setenv("HOME", "/home/somebody", 1);
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(DefaultEngineChoicesPath(),
            "/home/somebody/.cache/weir/convolutions.txt");
  setenv("XDG_CACHE_HOME", "/caches", 1);
  EXPECT_EQ(DefaultEngineChoicesPath(), "/caches/weir/convolutions.txt");
  // The standard says that relative ones count for nothing.
  setenv("XDG_CACHE_HOME", "caches", 1);
  setenv("HOME", "", 1);
  EXPECT_EQ(DefaultEngineChoicesPath(), "");
}

}  // namespace
}  // namespace weir::cuda
