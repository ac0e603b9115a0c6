// Status plumbing: early return and annotation.
//
// A code is an instruction to the caller (the table is in
// docs/architecture.md); the message names the subject and the offending
// value; each layer adds its subject once, with Annotate.
#ifndef COMMON_BASE_STATUS_H_
#define COMMON_BASE_STATUS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weir {

// Returns `status` with "subject: " before its message; OK stays OK.
inline absl::Status Annotate(const absl::Status& status,
                             absl::string_view subject) {
  if (status.ok()) {
    return status;
  }
  return absl::Status(status.code(),
                      absl::StrCat(subject, ": ", status.message()));
}

// INVALID_ARGUMENT with `parts`, which are joined as absl::StrCat does.
template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace weir

// Returns from the enclosing function when `expr` is not OK.
#define WEIR_RETURN_IF_ERROR(expr)        \
  do {                                    \
    ::absl::Status weir_status_ = (expr); \
    if (!weir_status_.ok()) {             \
      return weir_status_;                \
    }                                     \
  } while (false)

#define WEIR_STATUS_CONCAT_INNER_(a, b) a##b
#define WEIR_STATUS_CONCAT_(a, b) WEIR_STATUS_CONCAT_INNER_(a, b)

// WEIR_ASSIGN_OR_RETURN(auto x, F()): assigns F()'s value or returns its error.
#define WEIR_ASSIGN_OR_RETURN(lhs, expr)                                     \
  WEIR_ASSIGN_OR_RETURN_IMPL_(WEIR_STATUS_CONCAT_(weir_statusor_, __LINE__), \
                              lhs, expr)

#define WEIR_ASSIGN_OR_RETURN_IMPL_(statusor, lhs, expr) \
  auto statusor = (expr);                                \
  if (!statusor.ok()) {                                  \
    return statusor.status();                            \
  }                                                      \
  lhs = std::move(statusor).value()

#endif  // COMMON_BASE_STATUS_H_
