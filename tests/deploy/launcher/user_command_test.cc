// A user's words: split, found, named.
#include "deploy/launcher/user_command.h"

#include <gtest/gtest.h>

#include "common/io/files.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

using Words = std::vector<std::string>;

TEST(UserCommandTest, SplitsAsAShellDoes) {
  EXPECT_EQ(*SplitWords("  python eval.py\t--n 3 "),
            (Words{"python", "eval.py", "--n", "3"}));
  EXPECT_EQ(*SplitWords(R"(sh -c 'echo "a b"; $X' "it's" a\ b "\"\n")"),
            (Words{"sh", "-c", R"(echo "a b"; $X)", "it's", "a b", R"("\n)"}));
  EXPECT_EQ(*SplitWords("a '' b''c"), (Words{"a", "", "bc"}));
  EXPECT_TRUE(SplitWords(" ")->empty());
}

TEST(UserCommandTest, AnOpenQuoteIsAnError) {
  const auto words = SplitWords("python 'eval.py");
  EXPECT_EQ(words.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(words.status().message().find("not closed"), std::string::npos);
}

TEST(UserCommandTest, FindsAProgramInThePath) {
  EXPECT_EQ(*FindProgram("sh", "/nowhere:/bin"), "/bin/sh");
  EXPECT_EQ(*FindProgram("/bin/sh", ""), "/bin/sh");
  EXPECT_EQ(FindProgram("no_such_program", "/bin").status().message(),
            "command 'no_such_program' is not found in PATH");
  EXPECT_EQ(FindProgram("./no_such", "/bin").status().message(),
            "there is no './no_such' to run");
  EXPECT_FALSE(FindProgram("", "/bin").ok());
  EXPECT_FALSE(FindProgram("/bin", "/bin").ok());
}

TEST(UserCommandTest, SaysWhatAFileLacks) {
  const std::string dir = MakeTempDir();
  const std::string script = dir + "/train.py";
  ASSERT_TRUE(Files::Real()->WriteAtomically(script, "print(1)\n").ok());
  EXPECT_NE(FindProgram(script, "").status().message().find("chmod +x"),
            std::string::npos);
}

TEST(UserCommandTest, NamesARunByItsScript) {
  EXPECT_EQ(RunName({"/usr/bin/python3", "-u", "src/train.py", "x.py"}),
            "train");
  EXPECT_EQ(RunName({"python", "-m", "pkg.fit", "--lr", "1"}), "fit");
  EXPECT_EQ(RunName({"bin/examples/sdk_linear", "1"}), "sdk_linear");
}

}  // namespace
}  // namespace weir
