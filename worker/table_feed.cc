#include "worker/table_feed.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace weir {

absl::StatusOr<std::unique_ptr<TableFeed>> TableFeed::Create(
    const std::vector<GraphTable>& tables,
    const std::vector<EmbeddingTable>& declared, TableClient* client) {
  std::vector<Table> known;
  for (const GraphTable& table : tables) {
    size_t d = 0;
    while (d < declared.size() && declared[d].name() != table.name) {
      ++d;
    }
    if (d == declared.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the model reads table '", table.name,
                       "', which the job does not have"));
    }
    known.push_back(
        {static_cast<int>(d), static_cast<size_t>(table.dim), table.uses});
  }
  return std::unique_ptr<TableFeed>(new TableFeed(std::move(known), client));
}

TableFeed::TableFeed(std::vector<Table> tables, TableClient* client)
    : tables_(std::move(tables)), client_(client) {
  for (Contribution* one : {&current_, &ahead_}) {
    one->batches.resize(tables_.size());
    one->rows.resize(tables_.size());
    one->gradients.resize(tables_.size());
  }
}

absl::Status TableFeed::Start(const SparseBatch& batch, int64_t samples,
                              const Want& want) {
  ahead_.empty = samples == 0;
  std::vector<TableClient::Wanted> wanted;
  for (size_t t = 0; t < tables_.size() && !ahead_.empty; ++t) {
    WEIR_RETURN_IF_ERROR(
        ahead_.batches[t].Fill(tables_[t].uses, batch, samples));
    const std::vector<uint64_t>& ids = ahead_.batches[t].ids();
    ahead_.rows[t].resize(ids.size() * tables_[t].dim);
    ahead_.gradients[t].resize(ahead_.rows[t].size());
    wanted.push_back({tables_[t].declared, ids, ahead_.rows[t].data()});
  }
  WEIR_RETURN_IF_ERROR(client_->StartLookup(want, /*train=*/true, wanted));
  started_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::span<const TableInput>> TableFeed::Wait() {
  started_ = false;
  WEIR_ASSIGN_OR_RETURN(ahead_.versions, client_->WaitLookup());
  std::swap(current_, ahead_);
  inputs_.clear();
  for (size_t t = 0; t < tables_.size() && !current_.empty; ++t) {
    inputs_.push_back({&current_.batches[t], current_.rows[t].data(),
                       current_.gradients[t].data()});
  }
  return std::span<const TableInput>(inputs_);
}

absl::Status TableFeed::Push(uint64_t item, uint32_t contribution,
                             float weight) {
  TableClient::ItemPush push;
  push.item = item;
  push.contribution = contribution;
  push.weight = weight;
  push.versions = current_.versions;
  std::vector<TableClient::Gradients> gradients;
  for (size_t t = 0; t < tables_.size() && !current_.empty; ++t) {
    gradients.push_back({tables_[t].declared, current_.batches[t].ids(),
                         current_.gradients[t].data()});
  }
  return client_->StartUpdate(push, gradients);
}

}  // namespace weir
