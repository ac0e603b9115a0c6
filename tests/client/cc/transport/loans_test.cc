#include "client/cc/transport/loans.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <utility>

namespace weir {
namespace {

using std::chrono::milliseconds;

TEST(LoansTest, WaitsForTheLast) {
  Loans loans;
  EXPECT_TRUE(loans.WaitForNone(milliseconds(0)));
  const auto first = loans.Add();
  const auto second = loans.Add();
  EXPECT_FALSE(loans.WaitForNone(milliseconds(1)));
  first();
  EXPECT_FALSE(loans.WaitForNone(milliseconds(1)));
  std::thread other(second);
  EXPECT_TRUE(loans.WaitForNone(std::chrono::minutes(1)));
  other.join();
}

TEST(LoansTest, MayBeGivenBackWhenTheLoansAreGone) {
  std::optional<Loans> loans(std::in_place);
  const auto back = loans->Add();
  loans.reset();
  back();  // ASan would see it
}

}  // namespace
}  // namespace weir
