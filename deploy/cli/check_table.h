// The table of `weir gpu-check`: one line per operation and precision.
#ifndef DEPLOY_CLI_CHECK_TABLE_H_
#define DEPLOY_CLI_CHECK_TABLE_H_

#include <string>
#include <string_view>
#include <vector>

#include "worker/compute/check/operation_checks.h"

namespace weir {

std::string CheckTableHeader();

// Number of shapes, largest error and its bound (of the result that is nearest
// to its own, or farthest beyond), "ok" or "FAILED" with the first shape that
// failed and how to repeat it. Ends with a line break.
// REQUIRES: `results` are one check's, not empty.
std::string CheckTableLine(const std::vector<CheckResult>& results,
                           std::string_view precision, uint64_t seed);

bool AllOk(const std::vector<CheckResult>& results);

}  // namespace weir

#endif  // DEPLOY_CLI_CHECK_TABLE_H_
