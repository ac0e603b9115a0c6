#include "server/ps/rows/row_uses.h"

#include <functional>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace weir {
namespace {

class RowUsesTest : public testing::Test {
 protected:
  void Ask(const std::string& work, bool first = false) {
    uses_.Ask([this, work] { began_ += work; }, first, due_);
    Run();
  }
  void End() {
    uses_.End(due_);
    Run();
  }
  void EndExclusive() {
    uses_.EndExclusive(due_);
    Run();
  }
  void Run() {
    for (const std::function<void()>& run : std::exchange(due_, {})) {
      run();
    }
  }

  RowUses uses_;
  DueList due_;
  std::string began_;
};

TEST_F(RowUsesTest, ExclusiveWorkBeginsWhenTheLastUseHasEnded) {
  uses_.Begin();
  uses_.Begin();
  Ask("a");
  EXPECT_FALSE(uses_.MayBegin());  // new uses cannot keep it waiting
  End();
  EXPECT_EQ(began_, "");
  EXPECT_FALSE(uses_.exclusive());
  End();
  EXPECT_EQ(began_, "a");
  EXPECT_TRUE(uses_.exclusive());
  EXPECT_FALSE(uses_.MayBegin());
  EndExclusive();
  EXPECT_TRUE(uses_.MayBegin());
}

TEST_F(RowUsesTest, OneExclusiveWorkAtATimeInTheirOrder) {
  Ask("a");
  Ask("b");
  Ask("c", /*first=*/true);
  EXPECT_EQ(began_, "a");
  EndExclusive();
  EXPECT_EQ(began_, "ac");
  EXPECT_FALSE(uses_.MayBegin());
  EndExclusive();
  EXPECT_EQ(began_, "acb");
  EndExclusive();
  EXPECT_TRUE(uses_.MayBegin());
}

}  // namespace
}  // namespace weir
