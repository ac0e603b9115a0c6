#include <typeinfo>

#include "gtest/gtest.h"
#include "server/ps/consistency/async.h"
#include "server/ps/consistency/bounded_staleness.h"
#include "server/ps/consistency/consistency_mode.h"
#include "server/ps/consistency/lock_free.h"
#include "server/ps/consistency/sync.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

// The very type, not a base: bounded staleness is an AsyncMode, too.
template <class Mode>
void ExpectMode(const std::string& update) {
  const auto plan = *ShardPlan::Create(
      ParseDeclaration("variable { name: 'a' shape: 8 }"
                       "group { optimizer { sgd {} }"
                       "        schedule { learning_rate: 1 } }"
                       "update { " +
                       update + " }"),
      0, int64_t{1} << 30);
  ShardContext context(plan, Arena::Heap());
  const std::unique_ptr<ConsistencyMode> mode = CreateConsistencyMode(&context);
  ASSERT_NE(mode, nullptr) << update;
  const ConsistencyMode& made = *mode;
  EXPECT_TRUE(typeid(made) == typeid(Mode)) << update;
}

TEST(ConsistencyFactoryTest, MakesTheModeThatTheJobAsksFor) {
  ExpectMode<AsyncMode>("async {}");
  ExpectMode<LockFreeMode>("async { lock_free: true }");
  ExpectMode<SyncMode>("sync { contributions: 2 }");
  ExpectMode<BoundedStalenessMode>("bounded_staleness { bound: 3 }");
}

}  // namespace
}  // namespace weir
