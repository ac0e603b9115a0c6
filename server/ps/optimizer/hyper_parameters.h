// Checks of hyper-parameters: every message names the field, the value and the
// range: "optimizer.adam.beta1: 1.5 is not in [0, 1)".
//
// Errors: INVALID_ARGUMENT  as above; NaN and what overflows float fail all.
#ifndef SERVER_PS_OPTIMIZER_HYPER_PARAMETERS_H_
#define SERVER_PS_OPTIMIZER_HYPER_PARAMETERS_H_

#include <string>

#include "absl/status/status.h"

namespace weir {

// The value of an optional field: `value` when it is set, else `otherwise`.
inline double ValueOr(bool is_set, double value, double otherwise) {
  if (is_set) {
    return value;
  }
  return otherwise;
}

// `path` is the message's path, `field` the field's name in it.
absl::Status CheckNonNegative(const std::string& path, const std::string& field,
                              double value);
absl::Status CheckPositive(const std::string& path, const std::string& field,
                           double value);
absl::Status CheckUnitClosed(const std::string& path, const std::string& field,
                             double value);  // [0, 1]
absl::Status CheckUnitOpen(const std::string& path, const std::string& field,
                           double value);  // [0, 1)

// StepContext::momentum for an optimizer that keeps a momentum only when it is
// declared > 0.
absl::Status CheckBufferedMomentum(const std::string& path,
                                   const std::string& optimizer,
                                   double declared, double value);

}  // namespace weir

#endif  // SERVER_PS_OPTIMIZER_HYPER_PARAMETERS_H_
