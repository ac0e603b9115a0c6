#include "server/ps/optimizer/hyper_parameters.h"

#include <cfloat>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

absl::Status Check(bool good, const std::string& path, const std::string& field,
                   double value, const std::string& range) {
  if (good) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ".", field, ": ", value, " is not ", range));
}

// Kernels compute in float: what overflows it would be infinite there. NaN
// fails every comparison below.
constexpr double kMax = FLT_MAX;

}  // namespace

absl::Status CheckNonNegative(const std::string& path, const std::string& field,
                              double value) {
  return Check(value >= 0 && value <= kMax, path, field, value,
               "a finite number >= 0");
}

absl::Status CheckPositive(const std::string& path, const std::string& field,
                           double value) {
  return Check(value > 0 && value <= kMax, path, field, value,
               "a finite number > 0");
}

absl::Status CheckUnitClosed(const std::string& path, const std::string& field,
                             double value) {
  return Check(value >= 0 && value <= 1, path, field, value, "in [0, 1]");
}

absl::Status CheckUnitOpen(const std::string& path, const std::string& field,
                           double value) {
  return Check(value >= 0 && value < 1, path, field, value, "in [0, 1)");
}

absl::Status CheckBufferedMomentum(const std::string& path,
                                   const std::string& optimizer,
                                   double declared, double value) {
  // The buffer is made at Declare or never: memory is planned then, and a
  // checkpoint has the array or not.
  if (declared == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ".momentum: ", optimizer,
                     " was declared with momentum 0 and keeps none; ",
                     "declare it with the largest momentum that will come"));
  }
  return CheckNonNegative(path, "momentum", value);
}

}  // namespace weir
