#include "tests/integration/exit_oracle.h"

namespace weir {
namespace {

ExitFacts Facts(const std::string& name, std::map<std::string, int> codes,
                bool done) {
  ExitFacts facts;
  facts.codes = std::move(codes);
  facts.workdir = FreshDir(name);
  if (done) {
    WriteFile(facts.workdir + "/DONE", "ckpt-5\n");
  }
  return facts;
}

TEST(ExitOracleTest, ADoneJobEndsEveryTaskWith0) {
  EXPECT_TRUE(ExitsAreRight(
      Facts("all", {{"ps/0", 0}, {"chief/0", 0}, {"worker/0", 0}}, true)));
  for (const int code : {-1, 1, 2, 3, 4, 5, 130, 137, 138, 143}) {
    EXPECT_FALSE(ExitsAreRight(Facts("one", {{"worker/0", code}}, true)))
        << code;
  }
}

TEST(ExitOracleTest, WhoeverTheTestSignalledMayEndByIt) {
  ExitFacts facts = Facts("signal", {{"worker/0", 137}}, true);
  EXPECT_FALSE(ExitsAreRight(facts));
  facts.signalled = {"worker/0"};
  EXPECT_TRUE(ExitsAreRight(facts));
}

TEST(ExitOracleTest, OnlyAReplacedProcessEndsWith5) {
  ExitFacts facts = Facts("replaced", {{"worker/0", 5}}, false);
  EXPECT_FALSE(ExitsAreRight(facts));
  facts.replaced = {"worker/0"};
  EXPECT_TRUE(ExitsAreRight(facts));
}

TEST(ExitOracleTest, WithoutDoneNobodyEndsWith0) {
  EXPECT_TRUE(ExitsAreRight(
      Facts("stopped", {{"ps/0", 138}, {"worker/0", 138}}, false)));
  EXPECT_FALSE(ExitsAreRight(Facts("early", {{"worker/0", 0}}, false)));
  EXPECT_FALSE(ExitsAreRight(Facts("early_ps", {{"ps/0", 0}}, false)));
  // No later start could use what this ps held.
  ExitFacts facts = Facts("mended", {{"ps/0", 0}, {"chief/0", 3}}, false);
  facts.permanent_cause = true;
  EXPECT_TRUE(ExitsAreRight(facts));
}

TEST(ExitOracleTest, APermanentCodeNeedsAPermanentCause) {
  ExitFacts facts = Facts("permanent", {{"chief/0", 3}}, false);
  EXPECT_FALSE(ExitsAreRight(facts));
  facts.permanent_cause = true;
  EXPECT_TRUE(ExitsAreRight(facts));
  EXPECT_FALSE(ExitsAreRight(Facts("unknown", {{"chief/0", 99}}, false)));
}

}  // namespace
}  // namespace weir
