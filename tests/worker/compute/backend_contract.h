// The contract suite of compute backends: every operation, over odd, single
// and larger sizes, against the naive double reference.
//
// A backend's test links this and registers its maker once:
//   INSTANTIATE_TEST_SUITE_P(Cpu, BackendContract, testing::Values(&MakeCpu));
#ifndef TESTS_WORKER_COMPUTE_BACKEND_CONTRACT_H_
#define TESTS_WORKER_COMPUTE_BACKEND_CONTRACT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/compute/reference.h"
#include "worker/compute/backend.h"

namespace weir {

using BackendMaker = std::unique_ptr<Backend> (*)();

class BackendContract : public testing::TestWithParam<BackendMaker> {
 protected:
  BackendContract() : backend_(GetParam()()) {}

  // Device memory with random values, and the same in double for the oracle.
  struct Input {
    float* device = nullptr;
    reference::Values values;
  };
  Input Random(uint64_t seed, int64_t count, float low = -1.0f,
               float high = 1.0f);
  Input Exactly(const std::vector<float>& values);
  // Device memory full of NaN.
  float* Output(int64_t count);
  std::vector<float> Read(const float* device, int64_t count);
  // Relative 2-norm error below 1e-5: float32 sums of up to some thousand
  // terms, in any order.
  void ExpectNear(const float* device, const reference::Values& expected,
                  const char* what);

  std::unique_ptr<Backend> backend_;
  // Host sides of copies that may still be under way.
  std::vector<std::unique_ptr<std::vector<float>>> hosts_;
};

}  // namespace weir

#endif  // TESTS_WORKER_COMPUTE_BACKEND_CONTRACT_H_
