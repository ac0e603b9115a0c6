// What every consistency mode does for every unit, a block or the tables of a
// shard (server/ps/consistency/contribution_order.h).
//
// A member's test instantiates it:
//   INSTANTIATE_TEST_SUITE_P(Async, UnitContract, OverUnits("async {}"));
// With one slot, and in sync one contribution per step, every mode does the
// same: sequence number i makes version i + 1.
#ifndef TESTS_SERVER_PS_CONSISTENCY_UNIT_CONTRACT_H_
#define TESTS_SERVER_PS_CONSISTENCY_UNIT_CONTRACT_H_

#include <tuple>

#include "gtest/gtest.h"
#include "tests/server/ps/consistency/unit_tester.h"

namespace weir {

// `update` is an Update in text form.
inline auto OverUnits(const char* update) {
  return testing::Combine(AllUnits(), testing::Values(update));
}

class UnitContract
    : public testing::TestWithParam<std::tuple<UnitKind, const char*>> {
 protected:
  UnitTester unit_{std::get<0>(GetParam()), std::get<1>(GetParam())};
};

}  // namespace weir

#endif  // TESTS_SERVER_PS_CONSISTENCY_UNIT_CONTRACT_H_
