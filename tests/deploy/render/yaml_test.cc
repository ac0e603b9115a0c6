#include "deploy/render/yaml.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

std::string Written(const std::string& text) {
  const std::string yaml = ToYaml(Tree{{"k", text}});
  return yaml.substr(2, yaml.size() - 3);
}

// I1. What a reader of YAML takes for a number, a truth, a date, nothing, an
// alias, a comment or a map is in quotes.
TEST(YamlTest, QuotesWhatIsNoTextWithoutQuotes) {
  for (const std::string text :
       {"true", "No",   "OFF",  "null", "y",     "",           "~",
        "1",    "-1",   "0x1F", "1e5",  "12:30", "2026-11-25", ".inf",
        "=",    "<<",   "-",    "- a",  "--",    "---",        "a ",
        " a",   "a: b", "a:",   "a #b", "#b",    "&a",         "*a",
        "!a",   "|",    ">",    "%a",   "@a",    "`a",         "[a]",
        "{a}",  "a,b",  "?",    "a\tb", "'a'",   "--1",        "--"}) {
    EXPECT_EQ(Written(text)[1], '"') << text;
  }
}

TEST(YamlTest, LeavesOrdinaryWordsAlone) {
  for (const std::string text :
       {"weir", "/run/weir", "--job=/etc/weir/job.textproto", "my/image:1.2",
        "batch/v1", "ps=ps-0:2222;worker=worker-0:2222", "None", "_a"}) {
    EXPECT_EQ(Written(text), " " + text);
  }
}

TEST(YamlTest, WritesWhatCannotBeSeenAsEscapes) {
  EXPECT_EQ(Written("a\"b\\c"), " \"a\\\"b\\\\c\"");
  EXPECT_EQ(Written("a\nb"), " \"a\\nb\"");
  EXPECT_EQ(Written("\x01\x7F\r"), " \"\\x01\\x7F\\x0D\"");
  // Line breaks of YAML 1.1, and a mark of byte order.
  EXPECT_EQ(Written("\xC2\x85\xE2\x80\xA8\xE2\x80\xA9\xEF\xBB\xBF"),
            " \"\\N\\L\\P\\uFEFF\"");
  EXPECT_EQ(Written("\xC3\xA9"), " \"\xC3\xA9\"");
}

TEST(YamlTest, WritesTextsOfLinesAsBlocks) {
  EXPECT_EQ(ToYaml(Tree{{"a", {{"b", "one\n\n  two: 2 # x\n"}}}}),
            "a:\n  b: |\n    one\n\n      two: 2 # x\n");
  // A block could not give these back.
  for (const std::string text :
       {"one\n", " one\ntwo\n", "one\ntwo", "one\ntwo\n\n", "\none\n",
        "one\r\ntwo\n", "\tone\ntwo\n"}) {
    EXPECT_EQ(Written(text)[1], '"') << text;
  }
}

TEST(YamlTest, KeepsTheOrderOfKeysAndNests) {
  const Tree tree = {{"z", 1},
                     {"a",
                      {{"list", Tree::array({{{"x", 1}, {"b", "on"}}})},
                       {"empty", Tree::object()},
                       {"none", Tree::array()}}}};
  EXPECT_EQ(ToYaml(tree),
            "z: 1\n"
            "a:\n"
            "  list:\n"
            "    - x: 1\n"
            "      b: \"on\"\n"
            "  empty: {}\n"
            "  none: []\n");
}

TEST(YamlTest, WritesListsInOneLineWhereTheyFit) {
  EXPECT_EQ(ToYaml(Tree{{"a", {1, 2, 3}}}), "a: [1, 2, 3]\n");
  EXPECT_EQ(ToYaml(Tree{{"a", {"weir", "1"}}}), "a: [weir, \"1\"]\n");
  const std::string word(50, 'w');
  EXPECT_EQ(ToYaml(Tree{{"a", {word, word}}}),
            "a:\n  - " + word + "\n  - " + word + "\n");
  // Numbers go on in the next line.
  Tree numbers = Tree::array();
  for (int i = 100; i < 120; ++i) {
    numbers.push_back(i);
  }
  EXPECT_EQ(ToYaml(Tree{{"a", numbers}}),
            "a: [100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, "
            "112, 113, 114,\n    115, 116, 117, 118, 119]\n");
}

TEST(YamlTest, PutsCommentsBeforeTheirDocuments) {
  const std::vector<Document> documents = {{{"one", "", "two"}, {{"a", 1}}},
                                           {{}, {{"b", 2}}}};
  EXPECT_EQ(ToYaml(documents), "# one\n#\n# two\na: 1\n---\nb: 2\n");
}

TEST(YamlTest, CutsSentencesAtBlanks) {
  EXPECT_THAT(WrappedLines("aa bb cc dddddddd e", 5),
              testing::ElementsAre("aa bb", "cc", "dddddddd", "e"));
}

}  // namespace
}  // namespace weir
