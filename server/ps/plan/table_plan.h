// Turns a declared table into what it is on one shard.
//
// Place: from Declaration.table to the options of server/ps/table.
//
// Errors: INVALID_ARGUMENT names the table, the field and its range.
#ifndef SERVER_PS_PLAN_TABLE_PLAN_H_
#define SERVER_PS_PLAN_TABLE_PLAN_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/ps.pb.h"
#include "server/ps/table/table_options.h"

namespace weir {

inline constexpr int kTablesMax = 1024;

// Makes and checks the options of one table.
// REQUIRES: shard < declaration.shard_count(); index is a table's.
absl::StatusOr<TableOptions> OptionsOfTable(const Declaration& declaration,
                                            int index, int shard);

// Checks number, options and schedules of all tables. ShardPlan has checked
// their names.
absl::Status CheckTables(const Declaration& declaration, int shard);

}  // namespace weir

#endif  // SERVER_PS_PLAN_TABLE_PLAN_H_
