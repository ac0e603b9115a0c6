#include "deploy/cli/check_table.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weir {
namespace {

// Returns the error as a share of its bound, to compare results whose bounds
// differ.
double Nearness(const CheckResult& result) {
  if (std::isnan(result.error)) {
    return HUGE_VAL;  // a comparison with NaN would hide it behind any error
  }
  if (result.bound > 0.0) {
    return result.error / result.bound;
  }
  // Exact bits are asked for, so any error at all is beyond the bound.
  if (result.error > 0.0) {
    return HUGE_VAL;
  }
  return -1.0;  // behind results that have a bound to be near to
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
  std::string bound = "exact";
  if (nearest->bound > 0.0) {
    bound = absl::StrFormat("%.0e", nearest->bound);
  }
  std::string line = absl::StrFormat(
      "%-38s %-9s %6d %13s %8s  %s", nearest->operation, precision,
      shapes.size(), absl::StrFormat("%.1e", nearest->error), bound,
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
