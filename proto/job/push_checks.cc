#include "proto/job/push_checks.h"

#include <cfloat>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "proto/job/field_rules.h"

namespace weir {
namespace {

absl::Status CheckNumber(const std::string& path, double value) {
  // Kernels compute in float. NaN fails every comparison.
  if (!(value >= 0 && value <= FLT_MAX)) {
    return InvalidField(path, value, " is not a finite number >= 0");
  }
  return absl::OkStatus();
}

// The momentum of an optimizer that keeps an array for it. The array is made at
// Declare or never: memory is planned then, and a checkpoint has it or not.
absl::Status CheckKeptMomentum(const std::string& path, const std::string& name,
                               double declared, double value) {
  if (declared == 0) {
    return InvalidField(path, name,
                        " was declared with momentum 0 and keeps none; declare "
                        "it with the largest momentum that will come");
  }
  return CheckNumber(path, value);
}

absl::Status CheckMomentum(const OptimizerSpec& optimizer,
                           const std::string& path, double value) {
  std::string name = "no optimizer";
  if (const auto* const kind =
          optimizer.GetDescriptor()->FindFieldByNumber(optimizer.kind_case())) {
    name = kind->name();
  }
  switch (optimizer.kind_case()) {
    case OptimizerSpec::kSgd:
      return CheckKeptMomentum(path, name, optimizer.sgd().momentum(), value);
    case OptimizerSpec::kRmsprop:
      return CheckKeptMomentum(path, name, optimizer.rmsprop().momentum(),
                               value);
    case OptimizerSpec::kAdam:
    case OptimizerSpec::kAdamw:
      // It is beta1.
      if (!(value >= 0 && value < 1)) {
        return InvalidField(path, value, " is not in [0, 1)");
      }
      return absl::OkStatus();
    default:
      return InvalidField(path, name,
                          " has none; declare sgd or rmsprop with a momentum, "
                          "adam or adamw");
  }
}

}  // namespace

absl::Status CheckWeight(double weight) {
  return CheckNumber("weight", weight);
}

absl::Status CheckHyper(const google::protobuf::RepeatedPtrField<Group>& groups,
                        const Hyper& hyper) {
  std::string path = absl::StrCat("settings of group ", hyper.group());
  if (hyper.group() >= static_cast<uint32_t>(groups.size())) {
    return InvalidField(path, "the job has ", groups.size(), " groups");
  }
  const Group& group = groups[static_cast<int>(hyper.group())];
  if (!group.name().empty()) {
    absl::StrAppend(&path, " '", group.name(), "'");
  }
  WEIR_RETURN_IF_ERROR(
      CheckNumber(path + ".learning_rate", hyper.learning_rate()));
  WEIR_RETURN_IF_ERROR(
      CheckNumber(path + ".weight_decay", hyper.weight_decay()));
  if (!hyper.has_momentum() || group.frozen()) {
    return absl::OkStatus();
  }
  return CheckMomentum(group.optimizer(), path + ".momentum", hyper.momentum());
}

}  // namespace weir
