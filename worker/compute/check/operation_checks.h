// Checks of a compute backend: every operation of worker/compute/operations.h
// over odd, single and large sizes, against the naive double reference.
//
// Place: the contract suite of the tests (tests/worker/compute/
// backend_contract.h) and `weir gpu-check` run the same list. It knows no test
// framework and makes no backend.
//
// Terms
//   error   ||out - reference|| / ||reference||, 2-norms. Where a result is a
//           sum that may cancel (gradients of the norms, of softmax), it is
//           divided by the norm of its terms if that is larger. 0 for what must
//           be exact.
//   guard   16 floats of a known pattern on both sides of every buffer.
//
// Invariants
//   I1. Inputs follow from (seed, name of the check) alone; `large` only adds
//       shapes behind the others.
//   I2. Every output is full of NaN before the operation, and so are guards, so
//       a read outside shows. A changed guard or input is a failure.
// Threads: compatible, as the backend is.
// Errors: a check never ends early; what the backend reports is a failed
//   result.
#ifndef WORKER_COMPUTE_CHECK_OPERATION_CHECKS_H_
#define WORKER_COMPUTE_CHECK_OPERATION_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "worker/compute/backend.h"

namespace weir {

class CheckRun;

struct CheckOptions {
  // The precision with which the backend was made. It bounds only products and
  // convolutions, whose error is below 1e-5, 1e-3, 2e-2. The error of all other
  // results stays below 1e-5.
  Precision precision = Precision::kFp32;
  uint64_t seed = 0;
  // Adds shapes for which the reference takes a second and the device up to
  // 128 MiB.
  bool large = false;
};

// One comparison.
struct CheckResult {
  std::string operation;  // name of the check
  std::string shape;
  double error = 0.0;
  double bound = 0.0;  // 0: exact
  // Names what was compared and, where it failed, says how.
  std::string detail;
  bool ok = false;
};

struct OperationCheck {
  std::string name;
  void (*run)(CheckRun* run) = nullptr;
};

// Returns all checks, in the order of operations.h.
const std::vector<OperationCheck>& OperationChecks();

// Runs a check, which gives one result or more.
std::vector<CheckResult> RunCheck(const OperationCheck& check, Backend* backend,
                                  const CheckOptions& options);

}  // namespace weir

#endif  // WORKER_COMPUTE_CHECK_OPERATION_CHECKS_H_
