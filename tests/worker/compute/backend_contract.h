// The contract suite of compute backends: every check of
// worker/compute/check/operation_checks.h, one test each.
//
// A backend's test links this and registers its makers once:
//   INSTANTIATE_TEST_SUITE_P(Cpu, BackendContract,
//                            EveryCheck({{"OneThread", &OneThread}}),
//                            BackendContract::Name);
// Inputs are redrawn each run; WEIR_CHECK_SEED in the environment repeats the
// seed that a failure names.
#ifndef TESTS_WORKER_COMPUTE_BACKEND_CONTRACT_H_
#define TESTS_WORKER_COMPUTE_BACKEND_CONTRACT_H_

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "worker/compute/backend.h"
#include "worker/compute/check/operation_checks.h"

namespace weir {

struct BackendMaker {
  std::string name;
  // Null where this machine has no such device: its tests skip.
  std::unique_ptr<Backend> (*make)() = nullptr;
  Precision precision = Precision::kFp32;  // what `make` makes
};

class BackendContract
    : public testing::TestWithParam<std::tuple<BackendMaker, OperationCheck>> {
 public:
  // Makes names such as OneThread_max_pool.
  static std::string Name(const testing::TestParamInfo<ParamType>& info);
};

inline auto EveryCheck(const std::vector<BackendMaker>& makers) {
  return testing::Combine(testing::ValuesIn(makers),
                          testing::ValuesIn(OperationChecks()));
}

}  // namespace weir

#endif  // TESTS_WORKER_COMPUTE_BACKEND_CONTRACT_H_
