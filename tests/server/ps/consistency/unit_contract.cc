#include "tests/server/ps/consistency/unit_contract.h"

#include <cmath>
#include <vector>

#include "absl/strings/match.h"

namespace weir {
namespace {

using absl::StatusCode;

std::vector<float> All(float value) {
  return std::vector<float>(UnitTester::kValues, value);
}

// Sequence number `sequence` of slot 0, made from the version that it meets.
UnitTester::Contribution Nth(uint64_t sequence) {
  return {0, sequence, sequence};
}

TEST_P(UnitContract, CountsEachContributionOnceInOrder) {
  for (uint64_t i = 0; i < 5; ++i) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      EXPECT_EQ(unit_.Outcome(Nth(i), 1.0f),
                repeat == 0 ? Receipt::ACCEPTED : Receipt::DUPLICATE);
    }
    EXPECT_EQ(unit_.version(), i + 1);
    EXPECT_EQ(unit_.mark(0), i + 1);
    EXPECT_EQ(unit_.values(), All(-0.125f * static_cast<float>(i + 1)));
    EXPECT_EQ(unit_.bytes_waiting(), 0u);
  }
}

TEST_P(UnitContract, NamesTheExpectedContributionWhenOneIsSkipped) {
  ASSERT_EQ(unit_.Outcome(Nth(0), 1.0f), Receipt::ACCEPTED);
  const auto skipped = unit_.Push(Nth(3), 1.0f);
  EXPECT_EQ(skipped.status().code(), StatusCode::kOutOfRange);
  EXPECT_TRUE(absl::StartsWith(skipped.status().message(), "slot 0 "));
  EXPECT_TRUE(absl::EndsWith(skipped.status().message(),
                             ": expected sequence number 1, got 3"))
      << skipped.status();
  EXPECT_EQ(unit_.values(), All(-0.125f));
  EXPECT_EQ(unit_.bytes_waiting(), 0u);
  EXPECT_EQ(unit_.Outcome(Nth(1), 1.0f), Receipt::ACCEPTED);
}

TEST_P(UnitContract, LeavesOutWhatHasNanAndCountsIt) {
  ASSERT_EQ(unit_.Outcome(Nth(0), 1.0f), Receipt::ACCEPTED);
  std::vector<float> gradient = All(1.0f);
  gradient[63] = std::nanf("");
  for (const Receipt::Outcome outcome :
       {Receipt::LEFT_OUT, Receipt::DUPLICATE}) {
    const auto receipt = unit_.Push(Nth(1), gradient);
    ASSERT_TRUE(receipt.ok()) << receipt.status();
    EXPECT_EQ(receipt->outcome(), outcome);
  }
  EXPECT_EQ(unit_.values(), All(-0.125f));
  EXPECT_EQ(unit_.mark(0), 2u);
  EXPECT_EQ(unit_.bytes_waiting(), 0u);
  ASSERT_EQ(unit_.Outcome({0, 2, unit_.version()}, 1.0f), Receipt::ACCEPTED);
  EXPECT_EQ(unit_.values(), All(-0.25f));
}

TEST_P(UnitContract, WeightZeroMovesTheMarkAlone) {
  EXPECT_EQ(unit_.Outcome({0, 0, 0, 0, 1, 0.0f}, 1.0f), Receipt::ACCEPTED);
  EXPECT_EQ(unit_.values(), All(0.0f));
  EXPECT_EQ(unit_.mark(0), 1u);
  EXPECT_EQ(unit_.bytes_waiting(), 0u);
}

TEST_P(UnitContract, RefusesAVersionToCome) {
  const auto receipt = unit_.Push({0, 0, 1}, 1.0f);
  EXPECT_EQ(receipt.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(unit_.mark(0), 0u);
  EXPECT_EQ(unit_.version(), 0u);
  EXPECT_EQ(unit_.bytes_waiting(), 0u);
  EXPECT_EQ(unit_.Outcome(Nth(0), 1.0f), Receipt::ACCEPTED);
}

TEST_P(UnitContract, RefusesAReplacedProcess) {
  ASSERT_TRUE(unit_.ps->SetSlot(0, 3, false).ok());
  EXPECT_EQ(unit_.Push({0, 0, 0, 0, 2}, 1.0f).status().code(),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(unit_.mark(0), 0u);
  EXPECT_EQ(unit_.Outcome({0, 0, 0, 0, 3}, 1.0f), Receipt::ACCEPTED);
}

}  // namespace
}  // namespace weir
