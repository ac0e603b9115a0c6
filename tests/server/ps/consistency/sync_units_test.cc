// Sync steps of every unit, a block or the tables of a shard.
#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/ps/consistency/contribution_order.h"
#include "tests/server/ps/consistency/unit_tester.h"

namespace weir {
namespace {

using absl::StatusCode;

// One slot per contribution.
class SyncUnitTest : public testing::TestWithParam<UnitKind> {
 protected:
  static UnitTester Unit(UnitKind kind, int contributions,
                         const std::string& more = "") {
    return UnitTester(
        kind, absl::StrCat("sync { contributions: ", contributions, " }"),
        contributions, more);
  }
  UnitTester Unit(int contributions, const std::string& more = "") {
    return Unit(GetParam(), contributions, more);
  }
};
INSTANTIATE_TEST_SUITE_P(Units, SyncUnitTest, AllUnits());

// Contribution m of step t, by slot m.
UnitTester::Contribution Of(int m, uint64_t step, float weight = 1.0f) {
  return {m, step, step, static_cast<uint32_t>(m), 1, weight};
}

std::vector<float> RandomGradient(std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> gradient(UnitTester::kValues);
  for (float& g : gradient) {
    g = normal(random);
  }
  return gradient;
}

// The definition, in index order, one float operation at a time.
void NaiveStep(const std::vector<std::vector<float>>& gradients,
               const std::vector<float>& weights, std::vector<float>* values) {
  for (size_t i = 0; i < values->size(); ++i) {
    float sum = weights[0] * gradients[0][i];
    double total = weights[0];
    for (size_t m = 1; m < gradients.size(); ++m) {
      const float term = weights[m] * gradients[m][i];
      sum = sum + term;
      total += weights[m];
    }
    const float mean = sum / static_cast<float>(total);
    const float step = -0.125f * mean;
    (*values)[i] = (*values)[i] + step;
  }
}

TEST_P(SyncUnitTest, HasTheSameBitsForAnyArrivalOrder) {
  std::mt19937 random(1);
  for (int n = 1; n <= 8; ++n) {
    for (int round = 0; round < 20; ++round) {
      // Room for one early payload only, so that some are deferred.
      UnitTester unit = Unit(n, "out_of_order_bytes: 300");
      std::vector<float> expected(UnitTester::kValues, 0.0f);
      for (uint64_t step = 0; step < 3; ++step) {
        std::vector<std::vector<float>> gradients;
        std::vector<float> weights;
        for (int m = 0; m < n; ++m) {
          gradients.push_back(RandomGradient(random));
          weights.push_back(float(1 + random() % 7));
        }
        NaiveStep(gradients, weights, &expected);
        std::vector<int> order;
        for (int m = 0; m < n; ++m) {
          order.insert(order.end(), 1 + random() % 3, m);  // duplicates
        }
        for (int pass = 0; unit.version() == step; ++pass) {
          ASSERT_LT(pass, 20) << "the step does not go on";
          std::shuffle(order.begin(), order.end(), random);
          for (const int m : order) {
            ASSERT_TRUE(unit.Push(Of(m, step, weights[m]), gradients[m]).ok());
          }
        }
        ASSERT_EQ(unit.version(), step + 1);
      }
      ASSERT_EQ(unit.values(), expected) << n;
      EXPECT_EQ(unit.bytes_waiting(), 0u);
    }
  }
}

TEST_P(SyncUnitTest, DefersOverTheBoundButNeverTheAwaitedOne) {
  UnitTester unit = Unit(4, "out_of_order_bytes: 256");
  const auto push = [&](int m) { return unit.Outcome(Of(m, 0), float(m)); };
  EXPECT_EQ(push(3), Receipt::ACCEPTED);
  EXPECT_EQ(unit.bytes_waiting(), unit.bytes());
  EXPECT_EQ(push(2), Receipt::DEFERRED);
  EXPECT_EQ(push(3), Receipt::DUPLICATE);
  EXPECT_EQ(unit.bytes_waiting(), unit.bytes());
  EXPECT_EQ(unit.mark(2), 0u);
  // Without a payload there is nothing to keep.
  EXPECT_EQ(unit.Push(Of(1, 0), std::vector<float>())->outcome(),
            Receipt::ACCEPTED);
  EXPECT_EQ(push(0), Receipt::ACCEPTED);
  EXPECT_EQ(unit.version(), 0u);
  EXPECT_EQ(push(2), Receipt::ACCEPTED);
  EXPECT_EQ(unit.version(), 1u);
  EXPECT_EQ(unit.bytes_waiting(), 0u);
  EXPECT_EQ(push(3), Receipt::DUPLICATE);
  EXPECT_EQ(unit.bytes_waiting(), 0u);
}

TEST_P(SyncUnitTest, NobodyIsTakenBeforeItsTurn) {
  UnitTester unit = Unit(3);
  EXPECT_EQ(unit.Outcome(Of(1, 0), 2.0f), Receipt::ACCEPTED);
  EXPECT_EQ(unit.Outcome(Of(2, 0), 4.0f), Receipt::ACCEPTED);
  EXPECT_EQ(unit.version(), 0u);
  EXPECT_EQ(unit.bytes_waiting(), 2 * unit.bytes());
  EXPECT_EQ(unit.Outcome(Of(0, 0), 6.0f), Receipt::ACCEPTED);
  EXPECT_EQ(unit.version(), 1u);
  EXPECT_EQ(unit.values()[0], -0.125f * 4);
  EXPECT_EQ(unit.bytes_waiting(), 0u);
}

TEST_P(SyncUnitTest, TheFirstResultOfAContributionWins) {
  UnitTester unit = Unit(2);
  EXPECT_EQ(unit.Outcome(Of(0, 0), 1.0f), Receipt::ACCEPTED);
  // Slot 1 computed contribution 0, too: its push counts as done.
  EXPECT_EQ(unit.Outcome({1, 0, 0, 0}, 9.0f), Receipt::DUPLICATE);
  EXPECT_EQ(unit.Outcome({1, 1, 0, 1}, 3.0f), Receipt::ACCEPTED);
  EXPECT_EQ(unit.values()[0], -0.25f);
  EXPECT_EQ(unit.bytes_waiting(), 0u);
}

TEST_P(SyncUnitTest, AResultThatComesAfterItsStepIsADuplicate) {
  UnitTester unit = Unit(2);
  // Slot 0 brings both contributions of the first step.
  EXPECT_EQ(unit.Outcome({0, 0, 0, 0}, 1.0f), Receipt::ACCEPTED);
  EXPECT_EQ(unit.Outcome({0, 1, 0, 1}, 3.0f), Receipt::ACCEPTED);
  ASSERT_EQ(unit.version(), 1u);
  EXPECT_EQ(unit.Outcome({1, 0, 0, 1}, 3.0f), Receipt::DUPLICATE);
  EXPECT_EQ(unit.values()[0], -0.25f);
  EXPECT_EQ(unit.mark(1), 1u);
  EXPECT_EQ(unit.bytes_waiting(), 0u);
  // Slot 1 goes on with its next contribution.
  EXPECT_EQ(unit.Outcome({0, 2, 1, 0}, 1.0f), Receipt::ACCEPTED);
  EXPECT_EQ(unit.Outcome({1, 1, 1, 1}, 3.0f), Receipt::ACCEPTED);
  EXPECT_EQ(unit.version(), 2u);
}

// Its sender cannot go on before it hears that.
TEST_P(SyncUnitTest, ADuplicateNeedsNoRoom) {
  UnitTester unit = Unit(2, "out_of_order_bytes: 256");
  EXPECT_EQ(unit.Outcome({0, 0, 0, 0}, 1.0f), Receipt::ACCEPTED);
  EXPECT_EQ(unit.Outcome({0, 1, 0, 1}, 3.0f), Receipt::ACCEPTED);
  EXPECT_EQ(unit.Outcome({0, 2, 1, 1}, 3.0f), Receipt::ACCEPTED);  // early
  ASSERT_EQ(unit.bytes_waiting(), unit.bytes());
  EXPECT_EQ(unit.Outcome({1, 0, 0, 1}, 3.0f), Receipt::DUPLICATE);  // its step
  EXPECT_EQ(unit.Outcome({1, 1, 1, 1}, 3.0f), Receipt::DUPLICATE);  // slot 0's
  EXPECT_EQ(unit.Outcome({1, 0, 0, 1}, 3.0f), Receipt::DUPLICATE);  // again
  EXPECT_EQ(unit.Outcome({1, 2, 1, 0}, 1.0f), Receipt::ACCEPTED);
  EXPECT_EQ(unit.version(), 2u);
  EXPECT_EQ(unit.bytes_waiting(), 0u);
}

TEST_P(SyncUnitTest, RefusesAnotherVersionAndAnIndexThatCannotBe) {
  UnitTester unit = Unit(1);
  ASSERT_EQ(unit.Outcome(Of(0, 0), 1.0f), Receipt::ACCEPTED);
  const auto ahead = unit.Push({0, 1, 2}, 1.0f);
  EXPECT_EQ(ahead.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::EndsWith(ahead.status().message(),
                             "is for version 2, the newest is 1"))
      << ahead.status();
  EXPECT_EQ(unit.Outcome(Of(0, 0), 1.0f), Receipt::DUPLICATE);
  const auto index = unit.Push({0, 1, 1, 1}, 1.0f);
  EXPECT_EQ(index.status().message(), "contribution 1 of a step of 1");
  EXPECT_EQ(unit.bytes_waiting(), 0u);
}

TEST_P(SyncUnitTest, AVersionToComeIsParkedUntilItIsPublished) {
  UnitTester unit = Unit(2);
  const auto wanted = unit.Pull(VersionWant(1));
  const auto in_vain = unit.Pull(VersionWant(9, /*timeout_ms=*/50));
  EXPECT_EQ(unit.ps->store->GetStatus().waits_parked(), 2u);
  EXPECT_EQ(unit.Outcome(Of(1, 0), 1.0f), Receipt::ACCEPTED);
  EXPECT_FALSE(wanted->done);
  EXPECT_EQ(unit.Outcome(Of(0, 0), 1.0f), Receipt::ACCEPTED);
  ASSERT_TRUE(wanted->done);
  EXPECT_EQ(wanted->version, 1u);
  EXPECT_EQ(wanted->values[0], -0.125f);
  EXPECT_FALSE(in_vain->done);
  unit.ps->clock.Advance(std::chrono::milliseconds(49));
  unit.ps->store->ExpireWaits();
  EXPECT_FALSE(in_vain->done);
  unit.ps->clock.Advance(std::chrono::milliseconds(1));
  unit.ps->store->ExpireWaits();
  ASSERT_TRUE(in_vain->done);
  EXPECT_TRUE(in_vain->not_yet);
  EXPECT_EQ(unit.ps->store->GetStatus().waits_parked(), 0u);
}

TEST_P(SyncUnitTest, AVersionIsReadUntilItIsGone) {
  UnitTester unit = Unit(1);
  ASSERT_EQ(unit.Outcome(Of(0, 0), 1.0f), Receipt::ACCEPTED);
  EXPECT_EQ(unit.Pull(VersionWant(0))->values[0], 0.0f);
  EXPECT_EQ(unit.Pull(VersionWant(1))->values[0], -0.125f);
  ASSERT_EQ(unit.Outcome(Of(0, 1), 1.0f), Receipt::ACCEPTED);
  EXPECT_EQ(unit.Pull(VersionWant(0))->error.code(), StatusCode::kAborted);
  EXPECT_EQ(unit.Pull(VersionWant(1))->values[0], -0.125f);
}

// ------------------------------------------- one budget for both kinds of unit

UnitKind Other(UnitKind kind) {
  return kind == UnitKind::kBlock ? UnitKind::kTables : UnitKind::kBlock;
}

// out_of_order_budget.h, I1.
TEST_P(SyncUnitTest, TheAwaitedOneIsTakenWhileTheOtherUnitHoldsTheBudget) {
  UnitTester holder = Unit(3, "out_of_order_bytes: 256");
  UnitTester unit(Other(GetParam()), holder);
  EXPECT_EQ(holder.Outcome(Of(2, 0), 2.0f), Receipt::ACCEPTED);
  EXPECT_EQ(unit.bytes_waiting(), holder.bytes());  // the sum of both
  for (int m = 2; m > 0; --m) {
    EXPECT_EQ(unit.Outcome(Of(m, 0), 2.0f), Receipt::DEFERRED);
  }
  for (int m = 0; m < 3; ++m) {
    EXPECT_EQ(unit.Outcome(Of(m, 0), 2.0f), Receipt::ACCEPTED) << m;
  }
  EXPECT_EQ(unit.version(), 1u);
  EXPECT_EQ(unit.values()[0], -0.25f);
  // What the holder keeps is all that is kept.
  EXPECT_EQ(unit.bytes_waiting(), holder.bytes());
  EXPECT_EQ(holder.Outcome(Of(0, 0), 2.0f), Receipt::ACCEPTED);
  EXPECT_EQ(holder.Outcome(Of(1, 0), 2.0f), Receipt::ACCEPTED);
  EXPECT_EQ(holder.version(), 1u);
  EXPECT_EQ(unit.bytes_waiting(), 0u);
}

// Rows that are awaited may take the budget over its bound, while they come in.
TEST_P(SyncUnitTest, NobodyIsStoppedByABudgetThatIsOverItsBound) {
  UnitTester unit = Unit(3, "out_of_order_bytes: 1");
  UnitTester other(Other(GetParam()), unit);
  for (const int m : {0, 1, 2}) {
    EXPECT_EQ(unit.Outcome(Of(m, 0), 1.0f), Receipt::ACCEPTED);
    EXPECT_EQ(other.Outcome(Of(m, 0), 1.0f), Receipt::ACCEPTED);
  }
  EXPECT_EQ(unit.version(), 1u);
  EXPECT_EQ(other.version(), 1u);
  EXPECT_EQ(unit.bytes_waiting(), 0u);
}

}  // namespace
}  // namespace weir
