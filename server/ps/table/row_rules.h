// The members of the family in row_rule.h, each in a file of its own; for the
// factory alone.
#ifndef SERVER_PS_TABLE_ROW_RULES_H_
#define SERVER_PS_TABLE_ROW_RULES_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/ps/table/row_rule.h"

namespace weir {

using RowRuleOr = absl::StatusOr<std::unique_ptr<RowRule>>;

// elementwise_rows.cc
RowRuleOr CreateRowSgd(const RowSgd& spec, const std::string& path);
RowRuleOr CreateRowAdagrad(const RowAdagrad& spec, const std::string& path);
RowRuleOr CreateRowFtrl(const RowFtrl& spec, const std::string& path);
// rowwise_adagrad.cc
RowRuleOr CreateRowwiseAdagrad(const RowwiseAdagrad& spec,
                               const std::string& path);
// row_adam.cc
RowRuleOr CreateRowAdam(const RowAdam& spec, const std::string& path);
// group_ftrl.cc
RowRuleOr CreateRowGroupFtrl(const RowGroupFtrl& spec, const std::string& path);

// Of both FTRLs.
absl::Status CheckFtrl(const RowFtrl& spec, const std::string& path);

}  // namespace weir

#endif  // SERVER_PS_TABLE_ROW_RULES_H_
