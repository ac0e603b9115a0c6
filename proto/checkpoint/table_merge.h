// Reads the rows of a checkpoint's tables, each once, in an order that depends
// on the ids alone, and neither on the shards that wrote them nor on
// increments.
//
// Place: proto/checkpoint/model_export. Code that fills a hash table does not
// need the order and calls ReadTables.
//
// Threads: compatible.
// Errors: DATA_LOSS  a file is damaged, missing or foreign; the message names
//                    it and says why.
// Cost: Open reads every file once; a visit reads the table's part again and
//   holds some thousand rows of each file.
#ifndef PROTO_CHECKPOINT_TABLE_MERGE_H_
#define PROTO_CHECKPOINT_TABLE_MERGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/files.h"
#include "proto/checkpoint.pb.h"
#include "proto/checkpoint/table_file.h"

namespace weir {

class TableMerge {
 public:
  static absl::StatusOr<std::unique_ptr<TableMerge>> Open(
      ObjectStore* files, const std::string& checkpoint_dir,
      const Manifest& manifest);

  // Calls `take` with each row of the declaration's table number `table`, in
  // the order of the IndexHash of the ids. `values` [dim] is without the
  // optimizer state.
  absl::Status Visit(
      int table,
      const std::function<void(uint64_t id, const float* values)>& take) const;

 private:
  explicit TableMerge(Declaration declaration)
      : declaration_(std::move(declaration)) {}

  const Declaration declaration_;
  std::vector<std::unique_ptr<TableFileReader>> files_;
};

}  // namespace weir

#endif  // PROTO_CHECKPOINT_TABLE_MERGE_H_
