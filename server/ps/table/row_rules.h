// The members of the family in row_optimizer.h, each in a file of its own; for
// the factory alone.
//
// REQUIRES, everywhere: the spec's defaults are filled in and its fields are
// checked (proto/job/field_rules.h).
#ifndef SERVER_PS_TABLE_ROW_RULES_H_
#define SERVER_PS_TABLE_ROW_RULES_H_

#include <memory>

#include "server/ps/table/row_optimizer.h"

namespace weir {

// elementwise_rows.cc
std::unique_ptr<RowOptimizer> MakeSgdRows();
std::unique_ptr<RowOptimizer> MakeAdagradRows(const TableAdagrad& spec);
std::unique_ptr<RowOptimizer> MakeFtrlRows(const TableFtrl& spec);
// rowwise_adagrad.cc
std::unique_ptr<RowOptimizer> MakeRowwiseAdagrad(const TableAdagrad& spec);
// row_adam.cc
std::unique_ptr<RowOptimizer> MakeAdamRows(const TableAdam& spec);
// group_ftrl.cc
std::unique_ptr<RowOptimizer> MakeGroupFtrl(const TableFtrl& spec);

}  // namespace weir

#endif  // SERVER_PS_TABLE_ROW_RULES_H_
