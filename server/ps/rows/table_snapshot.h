// The tables of a shard in a checkpoint: written while nothing uses them, read
// back on any number of shards.
//
// Place: Shard calls Write on the thread of a snapshot, between Freeze and
//   Release of its TableGroup; proto/checkpoint/table_file.h has the format.
//
// Invariants
//   I1. A file that names a base holds every row that was touched since the
//       base was written. No row was dropped in between for another reason than
//       its age, which a reader can tell from its clock.
// Threads: compatible.
#ifndef SERVER_PS_ROWS_TABLE_SNAPSHOT_H_
#define SERVER_PS_ROWS_TABLE_SNAPSHOT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/files.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "server/ps/rows/table_group.h"

namespace weir {

class TableSnapshots {
 public:
  // Writes the file of this shard into `directory`: the rows touched since
  // checkpoint `base` if that is the last one that this wrote whole, else all
  // rows. Sync: as they were at `version`, which may be the version before the
  // tables' own; such a file is never an increment and never a base.
  absl::StatusOr<TableFile> Write(TableGroup& tables, ObjectStore* files,
                                  const ShardPlan& plan,
                                  const std::string& directory,
                                  const std::string& base,
                                  std::optional<uint64_t> version = {});

 private:
  // A table when a file was written.
  struct Since {
    uint64_t clock = 0;   // the table's clock, which never goes back
    int64_t dropped = 0;  // rows dropped so far for another reason than age
  };

  static std::vector<Since> SinceNow(TableGroup& tables);
  // Whether an increment on full_ could not tell all that has changed (I1).
  bool NeedsAllRows(const std::vector<Since>& now) const;

  // The name of the last checkpoint with all rows; empty: there is none.
  std::string full_;
  std::vector<Since> since_;  // by table
};

// Fills the tables, which are empty, with this shard's rows.
// Errors: INVALID_ARGUMENT    the checkpoint's tables are not the job's; names
//                             the first difference.
//         RESOURCE_EXHAUSTED  they do not fit into plan.row_bytes_max().
absl::Status RestoreTables(TableGroup& tables, ObjectStore* files,
                           const ShardPlan& plan,
                           const CheckpointReader& reader);

}  // namespace weir

#endif  // SERVER_PS_ROWS_TABLE_SNAPSHOT_H_
