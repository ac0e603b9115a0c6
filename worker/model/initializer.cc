#include "worker/model/initializer.h"

#include <cmath>

#include "common/base/check.h"
#include "common/base/status.h"

namespace weir {
namespace {

InitSpec Normal(double stddev) {
  return {.kind = InitKind::kNormal, .scale = static_cast<float>(stddev)};
}

InitSpec Uniform(double limit) {
  return {.kind = InitKind::kUniform, .scale = static_cast<float>(limit)};
}

absl::Status CheckScale(const std::string& field, const char* name, float value,
                        bool may_be_negative) {
  if (!std::isfinite(value) || (value < 0.0f && !may_be_negative)) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", name, " is ", value, "; it must be finite",
                     may_be_negative ? "" : " and >= 0"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<InitSpec> ResolveInitializer(const std::string& field,
                                            const Initializer& spec,
                                            Initializer::KindCase otherwise,
                                            int64_t fan_in, int64_t fan_out) {
  Initializer::KindCase kind = spec.kind_case();
  if (kind == Initializer::KIND_NOT_SET) {
    kind = otherwise;
  }
  const auto in = static_cast<double>(fan_in);
  const auto both = static_cast<double>(fan_in + fan_out);
  switch (kind) {
    case Initializer::kZeros:
      return InitSpec{};
    case Initializer::kConstant:
      WEIR_RETURN_IF_ERROR(
          CheckScale(field, "constant", spec.constant(), true));
      return InitSpec{.kind = InitKind::kConstant, .scale = spec.constant()};
    case Initializer::kNormalStddev:
      WEIR_RETURN_IF_ERROR(
          CheckScale(field, "normal_stddev", spec.normal_stddev(), false));
      return Normal(spec.normal_stddev());
    case Initializer::kUniformLimit:
      WEIR_RETURN_IF_ERROR(
          CheckScale(field, "uniform_limit", spec.uniform_limit(), false));
      return Uniform(spec.uniform_limit());
    case Initializer::kGlorotUniform:
      return Uniform(std::sqrt(6.0 / both));
    case Initializer::kGlorotNormal:
      return Normal(std::sqrt(2.0 / both));
    case Initializer::kHeUniform:
      return Uniform(std::sqrt(6.0 / in));
    case Initializer::kHeNormal:
      return Normal(std::sqrt(2.0 / in));
    case Initializer::KIND_NOT_SET:
      break;
  }
  WEIR_CHECK(false);
}

}  // namespace weir
