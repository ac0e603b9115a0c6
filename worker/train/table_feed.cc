#include "worker/train/table_feed.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"

namespace weir {

absl::StatusOr<std::unique_ptr<TableFeed>> TableFeed::Create(
    const std::vector<GraphTable>& tables,
    const std::vector<EmbeddingTable>& declared, TableClient* client) {
  std::vector<Table> known;
  uint64_t lookups_kept = 0;
  for (const GraphTable& table : tables) {
    size_t d = 0;
    while (d < declared.size() && declared[d].name() != table.name) {
      ++d;
    }
    if (d == declared.size()) {
      return Invalid("the model reads table '", table.name,
                     "', which the job does not have");
    }
    known.push_back({static_cast<int>(d), static_cast<size_t>(table.dim),
                     table.uses, nullptr});
    const EmbeddingTable& spec = declared[d];
    if (spec.cache_rows() > 0 && spec.cache_contributions() > 0) {
      known.back().cache = std::make_unique<RowCache>(
          known.back().dim, spec.cache_rows(), spec.cache_contributions());
      lookups_kept =
          std::max<uint64_t>(lookups_kept, spec.cache_contributions());
    }
  }
  std::unique_ptr<TableFeed> feed(new TableFeed(std::move(known), client));
  feed->lookups_kept_ = lookups_kept;
  return feed;
}

TableFeed::TableFeed(std::vector<Table> tables, TableClient* client)
    : tables_(std::move(tables)), client_(client) {
  for (BatchRows* one : {&current_, &ahead_}) {
    one->batches.resize(tables_.size());
    one->rows.resize(tables_.size());
    one->gradients.resize(tables_.size());
    one->missing.resize(tables_.size());
  }
}

absl::Status TableFeed::Start(const SparseBatch& batch, int64_t samples,
                              const Sender& sender, const Want& want) {
  // Only ahead_ is filled here: current_ belongs to the step that computes.
  ahead_.empty = samples == 0;
  // Without a row of the cache the oldest row is one of this lookup.
  ahead_.sequence = ahead_.oldest_read = lookups_++;
  std::vector<TableClient::Wanted> wanted;
  for (size_t t = 0; t < tables_.size() && !ahead_.empty; ++t) {
    WEIR_RETURN_IF_ERROR(
        ahead_.batches[t].Fill(tables_[t].uses, batch, samples));
    const std::vector<uint64_t>& ids = ahead_.batches[t].ids();
    ahead_.rows[t].resize(ids.size() * tables_[t].dim);
    ahead_.gradients[t].resize(ahead_.rows[t].size());
    wanted.push_back(WantedOf(t));
  }
  // Also without samples, and where the cache has every row: a sync or clocked
  // want must be waited for, and the push names the versions of this lookup.
  WEIR_RETURN_IF_ERROR(
      client_->StartLookup(sender, want, /*train=*/true, wanted));
  started_ = true;
  return absl::OkStatus();
}

TableClient::Wanted TableFeed::WantedOf(size_t t) {
  const Table& table = tables_[t];
  const std::vector<uint64_t>& ids = ahead_.batches[t].ids();
  float* const rows = ahead_.rows[t].data();
  // Without a cache the client writes the rows where the network reads them.
  if (table.cache == nullptr) {
    return {table.declared, ids, rows};
  }
  // First, so that rows which are too old make room for those that Wait puts.
  table.cache->Expire(ahead_.sequence);
  Missing& missing = ahead_.missing[t];
  missing.ids.clear();
  missing.places.clear();
  for (size_t i = 0; i < ids.size(); ++i) {
    uint64_t read_at = 0;
    const float* const row =
        table.cache->Find(ids[i], ahead_.sequence, &read_at);
    if (row == nullptr) {
      missing.ids.push_back(ids[i]);
      missing.places.push_back(i);
    } else {
      std::copy_n(row, table.dim, rows + i * table.dim);
      ahead_.oldest_read = std::min(ahead_.oldest_read, read_at);
    }
  }
  // The client writes to rows that lie side by side, but the missing ones lie
  // among cached ones in the batch; FillCached moves them.
  missing.rows.resize(missing.ids.size() * table.dim);
  return {table.declared, missing.ids, missing.rows.data()};
}

void TableFeed::FillCached(size_t t, BatchRows* one) {
  const Table& table = tables_[t];
  if (table.cache == nullptr) {
    return;
  }
  const Missing& missing = one->missing[t];
  for (size_t i = 0; i < missing.ids.size(); ++i) {
    const float* const row = missing.rows.data() + i * table.dim;
    std::copy_n(row, table.dim,
                one->rows[t].data() + missing.places[i] * table.dim);
    table.cache->Put(missing.ids[i], one->sequence, row);
  }
}

absl::StatusOr<std::span<const TableInput>> TableFeed::Wait() {
  // On failure too: no lookup is under way then either.
  started_ = false;
  WEIR_ASSIGN_OR_RETURN(ahead_.versions, client_->WaitLookup());
  if (lookups_kept_ > 0) {
    read_.emplace_back(ahead_.sequence, ahead_.versions);
    // As far back as RowCache gives rows out (its I1), so that the lookup of
    // every cached row is found below.
    while (read_.front().first + lookups_kept_ < ahead_.sequence) {
      read_.pop_front();
    }
    for (size_t t = 0; t < tables_.size() && !ahead_.empty; ++t) {
      FillCached(t, &ahead_);
    }
    // I2: one update has one list of versions. Those of the oldest row never
    // understate the staleness.
    for (const auto& [sequence, versions] : read_) {
      if (sequence == ahead_.oldest_read) {
        ahead_.versions = versions;
      }
    }
  }
  // The memory of the contribution before becomes that of the next one: its
  // step has ended, and its push was acknowledged before this contribution.
  std::swap(current_, ahead_);
  inputs_.clear();
  for (size_t t = 0; t < tables_.size() && !current_.empty; ++t) {
    inputs_.push_back({&current_.batches[t], current_.rows[t].data(),
                       current_.gradients[t].data()});
  }
  return std::span<const TableInput>(inputs_);
}

std::vector<std::span<float>> TableFeed::Gradients() {
  std::vector<std::span<float>> gradients;
  for (size_t t = 0; t < tables_.size() && !current_.empty; ++t) {
    gradients.emplace_back(current_.gradients[t].data(),
                           current_.batches[t].ids().size() * tables_[t].dim);
  }
  return gradients;
}

absl::Status TableFeed::Push(const ContributionPush& push) {
  std::vector<TableClient::Gradients> gradients;
  // I1: with no gradients too, since the mark of every shard counts on it.
  for (size_t t = 0; t < tables_.size() && !current_.empty; ++t) {
    gradients.push_back({tables_[t].declared, current_.batches[t].ids(),
                         current_.gradients[t].data()});
  }
  return client_->StartUpdate(push, current_.versions, gradients);
}

}  // namespace weir
