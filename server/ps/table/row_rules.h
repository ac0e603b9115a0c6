// The members of the family in row_optimizer.h, each in a file of its own; for
// the factory alone.
#ifndef SERVER_PS_TABLE_ROW_RULES_H_
#define SERVER_PS_TABLE_ROW_RULES_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/ps/table/row_optimizer.h"

namespace weir {

using RowOptimizerOr = absl::StatusOr<std::unique_ptr<RowOptimizer>>;

// elementwise_rows.cc
RowOptimizerOr CreateRowSgd(const RowSgd& spec, const std::string& path);
RowOptimizerOr CreateRowAdagrad(const RowAdagrad& spec,
                                const std::string& path);
RowOptimizerOr CreateRowFtrl(const RowFtrl& spec, const std::string& path);
// rowwise_adagrad.cc
RowOptimizerOr CreateRowwiseAdagrad(const RowwiseAdagrad& spec,
                                    const std::string& path);
// row_adam.cc
RowOptimizerOr CreateRowAdam(const RowAdam& spec, const std::string& path);
// group_ftrl.cc
RowOptimizerOr CreateRowGroupFtrl(const RowGroupFtrl& spec,
                                  const std::string& path);

// Checks the fields that both FTRLs have.
absl::Status CheckFtrl(const RowFtrl& spec, const std::string& path);

}  // namespace weir

#endif  // SERVER_PS_TABLE_ROW_RULES_H_
