#include "deploy/render/role_options.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "deploy/render/quantity.h"

namespace weir {
namespace {

// Splits "worker:rest" or "worker=rest" at the first `separator`.
absl::StatusOr<std::pair<TaskRole, std::string>> SplitRole(
    absl::string_view option, const std::string& text, char separator,
    absl::string_view form) {
  const size_t at = text.find(separator);
  if (at == std::string::npos || at + 1 == text.size()) {
    return Invalid(option, " ", text, ": write ", form);
  }
  const std::string name = text.substr(0, at);
  const std::optional<TaskRole> role = ParseRole(name);
  if (!role.has_value()) {
    return Invalid(option, " ", text, ": '", name,
                   "' is no role; there are ps, chief, worker, evaluator");
  }
  return std::pair(*role, text.substr(at + 1));
}

// A label or a taint: letters, digits, '.', '_', '-', and one '/' in keys.
bool IsLabel(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-' ||
           c == '/';
  });
}

template <typename Value, typename Parse>
absl::StatusOr<ByRole<Value>> ParseAmounts(
    absl::string_view option, absl::string_view form, const Parse& parse,
    const std::vector<std::string>& values) {
  ByRole<Value> amounts;
  for (const std::string& text : values) {
    WEIR_ASSIGN_OR_RETURN(const auto split, SplitRole(option, text, '=', form));
    const absl::StatusOr<Value> amount = parse(split.second);
    if (!amount.ok()) {
      return Annotate(amount.status(), absl::StrCat(option, " ", text));
    }
    amounts[split.first] = *amount;
  }
  return amounts;
}

}  // namespace

absl::StatusOr<ByRole<std::vector<Toleration>>> ParseTolerations(
    const std::vector<std::string>& values) {
  constexpr absl::string_view kForm =
      "ROLE:KEY[=VALUE][:EFFECT], such as worker:spot=true:NoSchedule";
  ByRole<std::vector<Toleration>> tolerations;
  for (const std::string& text : values) {
    WEIR_ASSIGN_OR_RETURN(const auto split,
                          SplitRole("--tolerate", text, ':', kForm));
    const std::vector<std::string> parts = absl::StrSplit(split.second, ':');
    const std::pair<std::string, std::string> taint =
        absl::StrSplit(parts[0], absl::MaxSplits('=', 1));
    Toleration toleration;
    toleration.key = taint.first;
    toleration.value = taint.second;
    if (parts.size() > 1) {
      toleration.effect = parts[1];
    }
    const bool known_effect = toleration.effect.empty() ||
                              toleration.effect == "NoSchedule" ||
                              toleration.effect == "PreferNoSchedule" ||
                              toleration.effect == "NoExecute";
    if (!known_effect) {
      return Invalid("--tolerate ", text, ": '", toleration.effect,
                     "' is not NoSchedule, PreferNoSchedule or NoExecute");
    }
    if (parts.size() > 2 || toleration.key.empty() ||
        !IsLabel(toleration.key) || !IsLabel(toleration.value)) {
      return Invalid("--tolerate ", text, ": write ", kForm);
    }
    tolerations[split.first].push_back(toleration);
  }
  return tolerations;
}

absl::StatusOr<ByRole<std::map<std::string, std::string>>> ParseNodeSelectors(
    const std::vector<std::string>& values) {
  constexpr absl::string_view kForm =
      "ROLE:LABEL=VALUE, such as worker:pool=gpu";
  ByRole<std::map<std::string, std::string>> selectors;
  for (const std::string& text : values) {
    WEIR_ASSIGN_OR_RETURN(const auto split,
                          SplitRole("--node", text, ':', kForm));
    const std::pair<std::string, std::string> label =
        absl::StrSplit(split.second, absl::MaxSplits('=', 1));
    if (label.first.empty() || !absl::StrContains(split.second, "=") ||
        !IsLabel(label.first) || !IsLabel(label.second)) {
      return Invalid("--node ", text, ": write ", kForm);
    }
    selectors[split.first][label.first] = label.second;
  }
  return selectors;
}

absl::StatusOr<ByRole<int>> ParseCpus(const std::vector<std::string>& values) {
  return ParseAmounts<int>("--cpu", "ROLE=CPUS, such as ps=2", ParseCpu,
                           values);
}

absl::StatusOr<ByRole<int64_t>> ParseMemories(
    const std::vector<std::string>& values) {
  return ParseAmounts<int64_t>("--memory", "ROLE=AMOUNT, such as ps=4Gi",
                               ParseMemory, values);
}

}  // namespace weir
