// `weir tables` asks a ps in this process.
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "deploy/cli/command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/deploy/cli/command_line.h"
#include "tests/support/loopback_ps.h"

namespace weir {
namespace {

using testing::HasSubstr;

using Words = std::vector<std::string>;

struct Result {
  absl::StatusOr<int> code = 0;
  std::string out;

  std::string error() const { return std::string(code.status().message()); }
};

// Reads `weir tables FLAGS` and runs it.
Result Tables(Words flags) {
  for (const char* name : {"TF_CONFIG", "WEIR_CLUSTER"}) {
    ::unsetenv(name);
  }
  flags.insert(flags.begin(), "tables");
  const Command command = ReadCommandLine(AddTablesCommand, flags);
  testing::internal::CaptureStdout();
  const absl::StatusOr<int> code = command();
  return {code, testing::internal::GetCapturedStdout()};
}

LoopbackPs::Options WithTable() {
  LoopbackPs::Options options;
  options.table_dim = 4;
  return options;
}

TEST(TablesTest, AsksForThePsWhenNoneIsKnown) {
  const Result result = Tables({"report"});
  EXPECT_EQ(result.code.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(result.error(), HasSubstr("--cluster 'ps=HOST:PORT"));
}

TEST(TablesTest, ReportsEachPsAndTheirSum) {
  const LoopbackPs ps(WithTable());
  const Result result = Tables({"report", "--cluster", "ps=" + ps.address()});
  ASSERT_TRUE(result.code.ok()) << result.error();
  EXPECT_THAT(result.out, HasSubstr("t: dim 4, on 1 ps\n"));
  EXPECT_THAT(result.out, HasSubstr("ps 0 " + ps.address()));
  EXPECT_THAT(result.out, HasSubstr("  all "));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("hot ids")))
      << "no row was updated";
}

TEST(TablesTest, NamesThatAPsTellsDoNotMoveTheCursor) {
  LoopbackPs::Options options = WithTable();
  options.declare = false;
  const LoopbackPs ps(options);
  DeclareRequest request;
  *request.mutable_declaration() = ps.MakeDeclaration();
  request.mutable_declaration()->set_job("evil\x1b[2J");
  const auto reply = ps.link->Declare(request, std::chrono::seconds(20));
  ASSERT_TRUE(reply.ok()) << reply.status();
  SetSlotsRequest slots;
  *slots.mutable_sender() = ps.SenderOf(0);
  slots.mutable_sender()->set_job(request.declaration().job());
  slots.mutable_sender()->set_layout_fingerprint(reply->layout_fingerprint());
  slots.add_slot()->set_generation(1);
  ASSERT_TRUE(ps.link->SetSlots(slots, std::chrono::seconds(20)).ok());
  const Result result =
      Tables({"report", "--cluster", "ps=" + ps.address(), "--table", "other"});
  EXPECT_THAT(result.error(), HasSubstr("job 'evil\\x1b[2J' has no table"));
}

TEST(TablesTest, NamesAJobOrTableThatIsNotThere) {
  const LoopbackPs ps(WithTable());
  const Result other =
      Tables({"report", "--cluster", "ps=" + ps.address(), "--table", "other"});
  EXPECT_EQ(other.code.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(other.error(), HasSubstr("job 'test' has no table 'other'"));

  const LoopbackPs without;
  const Result none =
      Tables({"report", "--cluster", "ps=" + without.address()});
  EXPECT_EQ(none.code.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(none.error(), HasSubstr("has no table"));
}

TEST(TablesTest, APsWithoutAJobHoldsNothingYet) {
  LoopbackPs::Options options;
  options.declare = false;
  const LoopbackPs ps(options);
  const Result result = Tables({"shrink", "--cluster", "ps=" + ps.address()});
  EXPECT_EQ(result.code.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(result.error(), HasSubstr("holds no parameters yet"));
}

TEST(TablesTest, ShrinkSaysWhatEachPsDropped) {
  const LoopbackPs ps(WithTable());
  const Result result =
      Tables({"shrink", "--cluster", "ps=" + ps.address(), "--rows", "0"});
  ASSERT_TRUE(result.code.ok()) << result.error();
  EXPECT_THAT(result.out,
              HasSubstr("ps 0 " + ps.address() + ": 0 rows dropped, "));
}

TEST(TablesTest, RefusesValuesThatCannotBe) {
  const Words cases[] = {{},
                         {"report", "--hot_ids", "1001"},
                         {"report", "--hot_ids", "-1"},
                         {"shrink", "--rows", "-1"},
                         {"shrink", "--hot_ids", "1"}};
  for (const Words& flags : cases) {
    EXPECT_THROW(Tables(flags), WrongUsage) << testing::PrintToString(flags);
  }
}

}  // namespace
}  // namespace weir
