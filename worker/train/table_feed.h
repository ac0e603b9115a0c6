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
//   I1. Every contribution sends one update to every shard, in the order of
//       contributions.
//   I2. An update names the versions that its own lookup read: with rows of the
//       cache, those of the oldest.
// Threads: compatible.
// Owns/borrows: borrows the client; owns rows and gradients.
// Errors: those of TableClient and TableBatch.
#ifndef WORKER_TRAIN_TABLE_FEED_H_
#define WORKER_TRAIN_TABLE_FEED_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/parameters/table_client.h"
#include "worker/data/formats/sparse_batch.h"
#include "worker/model/graph.h"
#include "worker/model/table_batch.h"
#include "worker/model/trainee.h"
#include "worker/train/row_cache.h"

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

  // The current one's gradients, by table. REQUIRES: Wait.
  std::vector<std::span<float>> Gradients();
  // Sends them. REQUIRES: Wait; the step has ended.
  absl::Status Push(uint64_t sequence, uint32_t contribution, float weight);
  absl::StatusOr<TableClient::ContributionResult> WaitPushed() {
    return client_->WaitUpdate();
  }

  TableClient::Counters counters() const { return client_->counters(); }

 private:
  struct Table {
    int declared = 0;
    size_t dim = 0;
    std::vector<TableUse> uses;
    std::unique_ptr<RowCache> cache;  // null: none
  };
  // Rows of a table that its cache does not have.
  struct Missing {
    std::vector<uint64_t> ids;
    std::vector<size_t> places;  // among the batch's
    std::vector<float> rows;
  };
  struct BatchRows {
    std::vector<TableBatch> batches;  // by table
    std::vector<std::vector<float>> rows;
    std::vector<std::vector<float>> gradients;
    std::vector<Missing> missing;
    uint64_t sequence = 0;     // this lookup
    uint64_t oldest_read = 0;  // lookup that read the oldest of the rows
    TableClient::Versions versions;
    bool empty = false;
  };

  TableFeed(std::vector<Table> tables, TableClient* client);

  // The part of `ahead_` that table `t` has to ask for; the rest comes from its
  // cache.
  TableClient::Wanted WantedOf(size_t t);
  // Takes what was missing, and keeps it.
  void FillCached(size_t t, BatchRows* one);

  std::vector<Table> tables_;
  TableClient* const client_;
  BatchRows current_, ahead_;
  bool started_ = false;
  std::vector<TableInput> inputs_;
  uint64_t contributions_ = 0;       // lookups started
  uint64_t contributions_kept_ = 0;  // that a cache may reach back
  // Of the newest lookups, by number; as far back as caches go.
  std::deque<std::pair<uint64_t, TableClient::Versions>> read_;
};

}  // namespace weir

#endif  // WORKER_TRAIN_TABLE_FEED_H_
