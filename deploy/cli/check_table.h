// The table of `weir gpu-check`: one line for each operation and precision.
#ifndef DEPLOY_CLI_CHECK_TABLE_H_
#define DEPLOY_CLI_CHECK_TABLE_H_

#include <string>
#include <string_view>
#include <vector>

#include "worker/compute/check/operation_checks.h"

namespace weir {

// Returns the names of the columns, with a line break.
std::string CheckTableHeader();

// Returns one line, with a line break: the operation, the precision, the number
// of shapes, one error and its bound, and "ok" or "FAILED". The error is that
// of the result that is nearest to its bound or farthest beyond it. A failure
// names the first shape that failed and how to repeat it.
// REQUIRES: `results` are those of one check, and not empty.
std::string CheckTableLine(const std::vector<CheckResult>& results,
                           std::string_view precision, uint64_t seed);

// Returns whether every result is within its bound.
bool AllOk(const std::vector<CheckResult>& results);

}  // namespace weir

#endif  // DEPLOY_CLI_CHECK_TABLE_H_
