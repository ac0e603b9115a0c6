// The tables of a shard in a checkpoint: written while nothing uses them, read
// back on any number of shards.
//
// Place: Shard calls Write on the thread of a snapshot, between Freeze and
//   Release of its TableGroup; proto/checkpoint/table_file.h has the format.
//
// Invariants
//   I1. A file that names a base holds every row that was touched since that
//       one was written; and no row was dropped in between but by its age,
//       which its clock tells.
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
  // Writes the file of this shard into `directory`; of the rows touched since
  // checkpoint `base` if that is the last that this wrote whole, else of all.
  // Sync: as of `version`, which may be the one before the tables' own; no
  // increment is written of that, nor later on its base.
  absl::StatusOr<TableFile> Write(TableGroup& tables, Files* files,
                                  const ShardPlan& plan,
                                  const std::string& directory,
                                  const std::string& base,
                                  std::optional<uint64_t> version = {});

 private:
  struct Since {
    uint64_t clock = 0;   // of the table; never goes back
    int64_t dropped = 0;  // but by age
  };
  // Of the last file with all rows.
  std::string full_;
  std::vector<Since> since_;  // by table
};

// Fills the tables, which are empty, with this shard's rows.
// Errors: INVALID_ARGUMENT  the checkpoint's tables are not the job's; names
//                           the first difference.
absl::Status RestoreTables(TableGroup& tables, Files* files,
                           const ShardPlan& plan,
                           const CheckpointReader& reader);

}  // namespace weir

#endif  // SERVER_PS_ROWS_TABLE_SNAPSHOT_H_
