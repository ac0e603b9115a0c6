// What the rules of a JobSpec's parts share: one field against its range.
//
// Errors: INVALID_ARGUMENT "path: value is not ...".
#ifndef PROTO_JOB_FIELD_CHECKS_H_
#define PROTO_JOB_FIELD_CHECKS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weir {

// "path: parts".
template <typename... Parts>
absl::Status Invalid(const std::string& path, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", parts...));
}

// `value` in [low, high].
template <typename T>
absl::Status InRange(const std::string& path, T value, T low, T high) {
  if (value >= low && value <= high) {
    return absl::OkStatus();
  }
  return Invalid(path, value, " is not in [", low, ", ", high, "]");
}

inline absl::Status Positive(const std::string& path, double value) {
  return value > 0 ? absl::OkStatus() : Invalid(path, value, " is not > 0");
}

inline absl::Status NotNegative(const std::string& path, double value) {
  return value >= 0 ? absl::OkStatus() : Invalid(path, value, " is negative");
}

inline absl::Status Given(const std::string& path, const std::string& value) {
  return value.empty() ? Invalid(path, "is not set") : absl::OkStatus();
}

}  // namespace weir

#endif  // PROTO_JOB_FIELD_CHECKS_H_
