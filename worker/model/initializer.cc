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
    std::string must = "it must be finite";
    if (!may_be_negative) {
      must += " and >= 0";
    }
    return Invalid(field, ": ", name, " is ", value, "; ", must);
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
    // A uniform distribution on [-a, a] has variance a^2 / 3, so its limit is
    // sqrt(3) times the standard deviation of the normal one.
    case Initializer::kGlorotUniform:  // eq. 16 of Glorot and Bengio
      return Uniform(std::sqrt(6.0 / both));
    case Initializer::kGlorotNormal:  // their eq. 12
      return Normal(std::sqrt(2.0 / both));
    case Initializer::kHeUniform:
      return Uniform(std::sqrt(6.0 / in));
    case Initializer::kHeNormal:  // eq. 10 of He et al.
      return Normal(std::sqrt(2.0 / in));
    case Initializer::KIND_NOT_SET:
      break;
  }
  WEIR_CHECK(false);
}

}  // namespace weir
