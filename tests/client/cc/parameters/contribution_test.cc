#include "client/cc/parameters/contribution.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

Receipt ReceiptOf(Receipt::Outcome outcome, uint64_t staleness = 0,
                  uint32_t bad_variable = 0) {
  Receipt receipt;
  receipt.set_outcome(outcome);
  receipt.set_staleness(staleness);
  receipt.set_bad_variable(bad_variable);
  return receipt;
}

TEST(ContributionTest, SumsReceiptsOverWhatTheySettle) {
  ContributionResult result;
  result.AddReceipt(ReceiptOf(Receipt::ACCEPTED, 2), 3);
  result.AddReceipt(ReceiptOf(Receipt::ACCEPTED, 5));
  result.AddReceipt(ReceiptOf(Receipt::DUPLICATE, 9), 4);
  result.AddReceipt(ReceiptOf(Receipt::DEFERRED, 9));
  EXPECT_EQ(result.staleness_sum, 11u);
  EXPECT_EQ(result.staleness_count, 4u);
  EXPECT_EQ(result.staleness_max, 5u);
  EXPECT_EQ(result.duplicates, 4u);
  EXPECT_FALSE(result.bad);
}

TEST(ContributionTest, AddsTheResultsOfSeveralShards) {
  ContributionResult first;
  first.AddReceipt(ReceiptOf(Receipt::ACCEPTED, 2));
  first.rows_not_admitted = 1;
  ContributionResult second;
  second.AddReceipt(ReceiptOf(Receipt::LEFT_OUT, 0, 7));
  second.bad_name = "w";
  second.rows_not_admitted = 2;
  first.Add(second);
  EXPECT_TRUE(first.bad);
  EXPECT_EQ(first.bad_number, 7u);
  EXPECT_EQ(first.bad_name, "w");
  EXPECT_EQ(first.staleness_sum, 2u);
  EXPECT_EQ(first.rows_not_admitted, 3u);
  // One name is enough: the first stays.
  ContributionResult third;
  third.AddReceipt(ReceiptOf(Receipt::LEFT_OUT, 0, 8));
  first.Add(third);
  EXPECT_EQ(first.bad_number, 7u);
}

}  // namespace
}  // namespace weir
