// The contract that every consistency mode keeps
// (server/ps/consistency/consistency_mode.h).
//
// A member's test instantiates it:
//   INSTANTIATE_TEST_SUITE_P(Async, ConsistencyContract,
//                            testing::Values("async {}"));
// The parameter is an Update in text form. With one slot, and in sync one
// contribution per step, every mode does the same: sequence number i makes
// version i + 1.
#ifndef TESTS_SERVER_PS_CONSISTENCY_CONSISTENCY_CONTRACT_H_
#define TESTS_SERVER_PS_CONSISTENCY_CONSISTENCY_CONTRACT_H_

#include <string>

#include "gtest/gtest.h"

namespace weir {

class ConsistencyContract : public testing::TestWithParam<const char*> {};

}  // namespace weir

#endif  // TESTS_SERVER_PS_CONSISTENCY_CONSISTENCY_CONTRACT_H_
