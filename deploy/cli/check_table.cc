#include "deploy/cli/check_table.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weir {
namespace {

// How far a result is from its bound; exact ones last, failures first.
double Nearness(const CheckResult& result) {
  if (std::isnan(result.error)) {
    return HUGE_VAL;
  }
  return result.bound > 0.0   ? result.error / result.bound
         : result.error > 0.0 ? HUGE_VAL
                              : -1.0;
}

}  // namespace

std::string CheckTableHeader() {
  return absl::StrFormat("%-38s %-9s %6s %13s %8s\n", "operation", "precision",
                         "shapes", "largest error", "bound");
}

std::string CheckTableLine(const std::vector<CheckResult>& results,
                           std::string_view precision, uint64_t seed) {
  std::set<std::string> shapes;
  const CheckResult* nearest = &results.front();
  const CheckResult* failed = nullptr;
  for (const CheckResult& result : results) {
    shapes.insert(result.shape);
    if (Nearness(result) > Nearness(*nearest)) {
      nearest = &result;
    }
    if (!result.ok && failed == nullptr) {
      failed = &result;
    }
  }
  std::string line = absl::StrFormat(
      "%-38s %-9s %6d %13s %8s  %s", nearest->operation, precision,
      shapes.size(), absl::StrFormat("%.1e", nearest->error),
      nearest->bound > 0.0 ? absl::StrFormat("%.0e", nearest->bound) : "exact",
      failed == nullptr ? "ok" : "FAILED");
  if (failed != nullptr) {
    absl::StrAppend(&line, " at ", failed->shape, ", ", failed->detail,
                    "; repeat with --seed ", seed);
  }
  return line + "\n";
}

bool AllOk(const std::vector<CheckResult>& results) {
  return std::all_of(results.begin(), results.end(),
                     [](const CheckResult& result) { return result.ok; });
}

}  // namespace weir
