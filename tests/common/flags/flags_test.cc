#include "common/flags/flags.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "gtest/gtest.h"

namespace weir {
namespace {

// Parses the words in the order of a command line; "" or what is wrong.
std::string Parse(CLI::App* app, std::vector<std::string> words) {
  try {
    app->parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return "";
}

TEST(FlagsTest, ValuesOfEveryTypeComeFromTheLine) {
  CLI::App app;
  int small = 0;
  int64_t large = 0;
  uint32_t hot = 0;
  uint64_t seed = 0;
  double seconds = 0;
  std::string text;
  std::vector<std::string> words;
  AddOption(&app, "--small", &small, "");
  AddOption(&app, "--large", &large, "");
  AddOption(&app, "--hot", &hot, "");
  AddOption(&app, "--seed", &seed, "");
  AddOption(&app, "--seconds", &seconds, "");
  AddOption(&app, "--text", &text, "");
  AddOption(&app, "words", &words, "");
  std::string taken;
  AddOptionFunction(
      &app, "--taken", [&](const std::string& value) { taken = value; }, "");
  ASSERT_EQ(Parse(&app, {"--small=-3", "--large=5000000000", "--hot=4000000000",
                         "--seed=18446744073709551615", "--seconds=0.5",
                         "--text=a b", "--taken=x", "y", "z"}),
            "");
  EXPECT_EQ(small, -3);
  EXPECT_EQ(large, 5'000'000'000);
  EXPECT_EQ(hot, 4'000'000'000U);
  EXPECT_EQ(seed, 18446744073709551615U);
  EXPECT_EQ(seconds, 0.5);
  EXPECT_EQ(text, "a b");
  EXPECT_EQ(taken, "x");
  EXPECT_EQ(words, (std::vector<std::string>{"y", "z"}));
}

template <typename T>
class OptionalFlagTest : public testing::Test {};
using OptionalTypes = testing::Types<int, uint32_t, uint64_t, double>;
TYPED_TEST_SUITE(OptionalFlagTest, OptionalTypes);

TYPED_TEST(OptionalFlagTest, StaysEmptyWhereNobodyGivesIt) {
  CLI::App app;
  std::optional<TypeParam> given;
  std::optional<TypeParam> missing;
  AddOption(&app, "--given", &given, "");
  AddOption(&app, "--missing", &missing, "");
  ASSERT_EQ(Parse(&app, {"--given=0"}), "");
  EXPECT_EQ(given, TypeParam{0});
  EXPECT_EQ(missing, std::nullopt);
}

TEST(FlagsTest, AFlagThatNobodyGaveLeavesAnOptionalEmpty) {
  for (const auto& [words, expected] :
       std::vector<std::pair<std::vector<std::string>, std::optional<bool>>>{
           {{}, std::nullopt}, {{"--on"}, true}, {{"--off"}, false}}) {
    CLI::App app;
    std::optional<bool> value;
    bool plain = false;
    AddFlag(&app, "--on,!--off", &value, "");
    AddFlag(&app, "--plain", &plain, "");
    ASSERT_EQ(Parse(&app, words), "");
    EXPECT_EQ(value, expected);
    EXPECT_FALSE(plain);
  }
}

TEST(FlagsTest, WhatDoesNotFitIsRefused) {
  const auto refused = [](const std::vector<std::string>& words) {
    CLI::App app;
    int count = 1;
    int64_t large = 0;
    double part = 0;
    std::string kind;
    std::string first;
    std::string second;
    std::string even = "ab";
    std::vector<std::string> list;
    std::vector<std::string> rest;
    AddOption(&app, "--count", &count, "").Range(1, 3);
    AddOption(&app, "--large", &large, "").Range(int64_t{0}, int64_t{1} << 40);
    AddOption(&app, "--part", &part, "").Range(0.25, 0.75);
    AddOption(&app, "--keep", &large, "").NonNegative();
    AddOption(&app, "--kind", &kind, "").OneOf({"a", "b"});
    const Flag one = AddOption(&app, "--first", &first, "");
    AddOption(&app, "--second", &second, "").Excludes(one);
    AddOption(&app, "--even", &even, "").Check([](const std::string& value) {
      return value.size() % 2 == 0 ? "" : "odd";
    });
    AddOption(&app, "--list", &list, "").OneValueEach();
    return !Parse(&app, words).empty();
  };
  EXPECT_FALSE(refused({}));
  EXPECT_FALSE(refused({"--count=1", "--large=1099511627776", "--part=0.75",
                        "--keep=0", "--kind=b", "--first=x", "--even=ab",
                        "--list", "x", "--list", "y"}));
  EXPECT_TRUE(refused({"--count=0"}));
  EXPECT_TRUE(refused({"--count=4"}));
  EXPECT_TRUE(refused({"--large=-1"}));
  EXPECT_TRUE(refused({"--large=1099511627777"}));
  EXPECT_TRUE(refused({"--part=0.8"}));
  EXPECT_TRUE(refused({"--keep=-1"}));
  EXPECT_TRUE(refused({"--kind=c"}));
  EXPECT_TRUE(refused({"--first=x", "--second=y"}));
  EXPECT_TRUE(refused({"--even=abc"}));
  EXPECT_TRUE(refused({"--list", "x", "y"}));
  EXPECT_TRUE(refused({"--unknown"}));
}

TEST(FlagsTest, ARequiredFlagCanBecomeOptionalAgain) {
  for (const bool required : {true, false}) {
    CLI::App app;
    std::string job;
    AddOption(&app, "--job", &job, "").Required();
    FindFlag(&app, "--job").Required(required);
    EXPECT_EQ(Parse(&app, {}).empty(), !required);
  }
  CLI::App app;
  EXPECT_THROW(FindFlag(&app, "--missing"), CLI::OptionNotFound);
}

TEST(FlagsTest, HelpShowsWhatItIsTold) {
  CLI::App app;
  int count = 7;
  int silent = 8;
  std::string secret;
  AddOption(&app, "--count", &count, "how many").ShowDefault();
  AddOption(&app, "--silent", &silent, "first").Describe("second");
  AddOption(&app, "--secret", &secret, "unseen").Hidden();
  EXPECT_EQ(FindFlag(&app, "--silent").help(), "second");
  SetFooter(&app, "the end");
  const std::string help = app.help();
  EXPECT_NE(help.find("=7"), std::string::npos) << help;
  EXPECT_EQ(help.find("=8"), std::string::npos) << help;
  EXPECT_NE(help.find("second"), std::string::npos) << help;
  EXPECT_EQ(help.find("first"), std::string::npos) << help;
  EXPECT_EQ(help.find("unseen"), std::string::npos) << help;
  EXPECT_NE(help.find("the end"), std::string::npos) << help;
}

TEST(FlagsTest, TheChosenSubcommandIsCalled) {
  CLI::App app;
  std::string chosen;
  CLI::App* const group = AddCommandGroup(&app, "look", "");
  AddSubcommand(group, "here", "", [&] { chosen = "here"; });
  AddSubcommand(group, "there", "", [&] { chosen = "there"; });
  EXPECT_NE(Parse(&app, {"look"}), "");
  EXPECT_EQ(chosen, "");
  EXPECT_EQ(Parse(&app, {"look", "there"}), "");
  EXPECT_EQ(chosen, "there");
}

TEST(FlagsTest, TheVersionEndsTheProgram) {
  CLI::App app;
  SetVersionFlag(&app, "--version", "1.2.3", "");
  EXPECT_EQ(Parse(&app, {"--version"}), "1.2.3");
}

}  // namespace
}  // namespace weir
