// Holds the rows of a checkpoint's tables in memory, for evaluation.
//
// Place: CheckpointEvaluation has one beside the parameters. Training does not
// use it: it reads rows from the ps.
//
// Threads: compatible.
// Errors: INVALID_ARGUMENT  the checkpoint's tables are not the model's.
//         DATA_LOSS         a file is damaged; names it.
// Cost: memory for all rows of the tables that the model reads: their values,
//   and about 20 bytes for each row.
#ifndef WORKER_TRAIN_TABLE_VALUES_H_
#define WORKER_TRAIN_TABLE_VALUES_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/io/files.h"
#include "common/job/layout.h"
#include "proto/checkpoint.pb.h"
#include "worker/model/graph.h"

namespace weir {

class TableValues {
 public:
  // Replaces what was there by the rows of `tables`, those that the network
  // reads.
  absl::Status Load(ObjectStore* files, const std::string& checkpoint_dir,
                    const Manifest& manifest,
                    const std::vector<GraphTable>& tables);

  // Fills rows [ids, dim] from the network's table `table`. An id without a row
  // gets its initial values.
  void Lookup(size_t table, std::span<const uint64_t> ids, float* rows) const;

 private:
  struct Table {
    int64_t dim = 0;
    InitSpec init;
    uint64_t key = 0;  // from which initial values are drawn
    absl::flat_hash_map<uint64_t, uint32_t> places;
    std::vector<float> values;
  };
  std::vector<Table> tables_;
};

}  // namespace weir

#endif  // WORKER_TRAIN_TABLE_VALUES_H_
