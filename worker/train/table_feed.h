// Looks up the rows that a contribution needs before its step, and pushes their
// gradients after it.
//
// Place: between the train loop, TableClient and the network's table inputs.
//
// Terms
//   current  the contribution that computes.
//   ahead    the next one, whose rows may be on their way meanwhile.
//
// Invariants
//   I1. Every contribution sends one update to every shard, in the order of
//       contributions.
//   I2. An update names the versions that its own lookup read. Where rows came
//       from the cache, these are the versions of the oldest of them.
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
#include "worker/model/train_step.h"
#include "worker/train/row_cache.h"

namespace weir {

class TableFeed {
 public:
  // `tables` are those that the network reads. `declared` are all tables of the
  // job; the client names a table by its place there. Copies both.
  static absl::StatusOr<std::unique_ptr<TableFeed>> Create(
      const std::vector<GraphTable>& tables,
      const std::vector<EmbeddingTable>& declared, TableClient* client);

  // Starts to look up what the `samples` samples of `batch` need. With 0
  // samples Wait waits for the version alone. REQUIRES: no lookup is under way.
  absl::Status Start(const SparseBatch& batch, int64_t samples,
                     const Sender& sender, const Want& want);
  bool started() const { return started_; }
  // Waits for the lookup, which becomes the current one. The inputs are valid
  // until the next Wait.
  absl::StatusOr<std::span<const TableInput>> Wait();

  // The gradients of the current rows, by table. REQUIRES: Wait was OK.
  std::vector<std::span<float>> Gradients();
  // Starts to send them. REQUIRES: Wait was OK, and the step that computes the
  // gradients has ended.
  absl::Status Push(const ContributionPush& push);

 private:
  struct Table {
    int declared = 0;
    size_t dim = 0;
    std::vector<TableUse> uses;
    std::unique_ptr<RowCache> cache;  // null: the table asks for no cache
  };
  // Rows of a table that its cache does not have.
  struct Missing {
    std::vector<uint64_t> ids;
    std::vector<size_t> places;  // of each id among the batch's ids
    std::vector<float> rows;
  };
  struct BatchRows {
    std::vector<TableBatch> batches;  // by table
    std::vector<std::vector<float>> rows;
    std::vector<std::vector<float>> gradients;
    std::vector<Missing> missing;
    uint64_t sequence = 0;     // number of this lookup
    uint64_t oldest_read = 0;  // number of the lookup of the oldest row
    TableClient::Versions versions;
    bool empty = false;
  };

  TableFeed(std::vector<Table> tables, TableClient* client);

  // Returns the rows that `ahead_` has to ask the shards for; copies the others
  // of table `t` from its cache.
  TableClient::Wanted WantedOf(size_t t);
  // Puts the rows that were missing in their places, and into the cache.
  void FillCached(size_t t, BatchRows* one);

  std::vector<Table> tables_;
  TableClient* const client_;
  BatchRows current_, ahead_;
  bool started_ = false;
  std::vector<TableInput> inputs_;
  uint64_t lookups_ = 0;       // started so far; numbers the next one
  uint64_t lookups_kept_ = 0;  // how far back a cache may reach
  // The number and the versions of the newest lookups, as far back as a cache
  // may reach. Empty where no table has one.
  std::deque<std::pair<uint64_t, TableClient::Versions>> read_;
};

}  // namespace weir

#endif  // WORKER_TRAIN_TABLE_FEED_H_
