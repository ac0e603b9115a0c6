// Checks one field of a JobSpec against its range.
//
// Place: job_spec_checks.h and source_checks.h, which walk through the spec.
//
// Errors: INVALID_ARGUMENT "path: value is not ...".
#ifndef PROTO_JOB_FIELD_CHECKS_H_
#define PROTO_JOB_FIELD_CHECKS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weir {

// The error "path: parts".
template <typename... Parts>
absl::Status Invalid(const std::string& path, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", parts...));
}

// OK if `value` is in [low, high]. A NaN is not.
template <typename T>
absl::Status InRange(const std::string& path, T value, T low, T high) {
  if (value >= low && value <= high) {
    return absl::OkStatus();
  }
  return Invalid(path, value, " is not in [", low, ", ", high, "]");
}

// OK if `value` is above 0.
inline absl::Status Positive(const std::string& path, double value) {
  return value > 0 ? absl::OkStatus() : Invalid(path, value, " is not > 0");
}

// OK if `value` is 0 or above.
inline absl::Status NotNegative(const std::string& path, double value) {
  return value >= 0 ? absl::OkStatus() : Invalid(path, value, " is negative");
}

// OK if `value` is not empty.
inline absl::Status Given(const std::string& path, const std::string& value) {
  return value.empty() ? Invalid(path, "is not set") : absl::OkStatus();
}

}  // namespace weir

#endif  // PROTO_JOB_FIELD_CHECKS_H_
