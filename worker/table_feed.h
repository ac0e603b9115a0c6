// The rows that contributions need of their tables: looked up before a step,
// their gradients pushed after it.
//
// Place: between the train loop, TableClient and the network's table inputs.
//
// Terms
//   current  the contribution that computes.
//   ahead    the next one, whose rows are on their way meanwhile.
//
// Invariants
//   I1. Every item sends one update to every shard, in the order of items.
//   I2. An update names the versions that its own lookup read.
// Threads: compatible.
// Owns/borrows: borrows the client; owns rows and gradients.
// Errors: those of TableClient and TableBatch.
#ifndef WORKER_TABLE_FEED_H_
#define WORKER_TABLE_FEED_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/table_client.h"
#include "worker/data/sparse_batch.h"
#include "worker/model/graph.h"
#include "worker/model/table_batch.h"
#include "worker/model/trainee.h"

namespace weir {

class TableFeed {
 public:
  // `tables`: the network's; all but `client` are copied. `declared`: the
  // job's, which the client speaks of by number.
  static absl::StatusOr<std::unique_ptr<TableFeed>> Create(
      const std::vector<GraphTable>& tables,
      const std::vector<EmbeddingTable>& declared, TableClient* client);

  // Starts to look up what `samples` samples of `batch` need; none: only the
  // version is waited for. REQUIRES: nothing is on its way.
  absl::Status Start(const SparseBatch& batch, int64_t samples,
                     const Want& want);
  bool started() const { return started_; }
  // Waits for it: it becomes current. The inputs hold until the next call.
  absl::StatusOr<std::span<const TableInput>> Wait();

  // Sends the current one's gradients. REQUIRES: Wait; the step has ended.
  absl::Status Push(uint64_t item, uint32_t contribution, float weight);
  absl::StatusOr<TableClient::ItemResult> WaitPushed() {
    return client_->WaitUpdate();
  }

  TableClient::Counters counters() const { return client_->counters(); }

 private:
  struct Table {
    int declared = 0;
    size_t dim = 0;
    std::vector<TableUse> uses;
  };
  struct Contribution {
    std::vector<TableBatch> batches;  // by table
    std::vector<std::vector<float>> rows;
    std::vector<std::vector<float>> gradients;
    TableClient::Versions versions;
    bool empty = false;
  };

  TableFeed(std::vector<Table> tables, TableClient* client);

  const std::vector<Table> tables_;
  TableClient* const client_;
  Contribution current_, ahead_;
  bool started_ = false;
  std::vector<TableInput> inputs_;
};

}  // namespace weir

#endif  // WORKER_TABLE_FEED_H_
