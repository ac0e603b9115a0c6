#include "client/cc/sdk/tables.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace weir::sdk {

absl::StatusOr<int> SessionTables::Find(const std::string& table) const {
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (tables_[t].name() == table) {
      return static_cast<int>(t);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no table is named '", table, "'"));
}

absl::Status SessionTables::CheckCount(size_t ids) {
  if (ids > UniqueIds::kEntriesMax) {
    return Invalid(ids, " ids in one call; at most ", UniqueIds::kEntriesMax,
                   " are possible");
  }
  return absl::OkStatus();
}

absl::Status SessionTables::CheckSize(int table, const char* what,
                                      size_t floats, size_t ids) const {
  if (floats != ids * dim(table)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table '", tables_[static_cast<size_t>(table)].name(), "': ", floats,
        " floats of ", what, " for ", ids, " ids of dim ", dim(table)));
  }
  return absl::OkStatus();
}

// ----------------------------------------------------------------- lookups

absl::Status SessionTables::StartLookup(const Sender& sender, const Want& want,
                                        bool train,
                                        std::span<const RowsWanted> wanted) {
  // I1: the caller of the old lookup may have freed its memory, so nothing is
  // written there.
  if (looking_up_ && given_up_) {
    for (Asked& asked : asked_) {
      asked.out = {};
    }
    WEIR_RETURN_IF_ERROR(WaitLookup());
  }
  if (looking_up_) {
    return absl::FailedPreconditionError(
        "a lookup is under way: call WaitLookup first");
  }
  std::vector<Asked> all;
  for (const RowsWanted& rows : wanted) {
    Asked asked;
    WEIR_ASSIGN_OR_RETURN(asked.table, Find(rows.table));
    WEIR_RETURN_IF_ERROR(
        CheckSize(asked.table, "rows", rows.rows.size(), rows.ids.size()));
    WEIR_RETURN_IF_ERROR(CheckCount(rows.ids.size()));
    asked.ids.Append(rows.ids);
    asked.ids.Rank();
    // I1: the servers' answers go here.
    asked.rows = std::make_unique_for_overwrite<float[]>(
        asked.ids.ids().size() * dim(asked.table));
    asked.out = rows.rows;
    all.push_back(std::move(asked));
  }
  std::vector<TableClient::Wanted> lists;
  for (const Asked& asked : all) {
    lists.push_back({asked.table, asked.ids.ids(), asked.rows.get()});
  }
  // Moving keeps the memory that `lists` points to.
  asked_ = std::move(all);
  WEIR_RETURN_IF_ERROR(client_->StartLookup(sender, want, train, lists));
  looking_up_ = true;
  given_up_ = false;
  train_ = train;
  return absl::OkStatus();
}

absl::Status SessionTables::WaitLookup() {
  if (!looking_up_) {
    return absl::FailedPreconditionError(
        "no lookup is under way: call StartLookup");
  }
  WEIR_ASSIGN_OR_RETURN(newest_, client_->WaitLookup());
  looking_up_ = false;
  if (train_ && oldest_.empty()) {
    oldest_ = newest_;
  }
  // I3: rows that are only read do not become gradients, so they do not count.
  for (size_t s = 0; train_ && s < oldest_.size(); ++s) {
    oldest_[s] = std::min(oldest_[s], newest_[s]);
  }
  for (const Asked& asked : asked_) {
    const size_t width = dim(asked.table);
    const std::vector<int32_t>& ranks = asked.ids.ranks();
    for (size_t i = 0; !asked.out.empty() && i < ranks.size(); ++i) {
      std::memcpy(asked.out.data() + i * width,
                  asked.rows.get() + static_cast<size_t>(ranks[i]) * width,
                  width * sizeof(float));
    }
  }
  asked_.clear();
  return absl::OkStatus();
}

// ----------------------------------------------------------------- updates

absl::StatusOr<std::vector<TableRate>> SessionTables::Rates(
    const std::vector<TableSettings>& settings) const {
  std::vector<TableRate> rates;
  for (const TableSettings& from : settings) {
    TableRate rate;
    WEIR_ASSIGN_OR_RETURN(const int table, Find(from.table));
    if (!(from.learning_rate >= 0.0 && from.learning_rate < 1e30)) {
      return absl::InvalidArgumentError(
          absl::StrCat("table '", from.table, "': learning rate ",
                       from.learning_rate, " is not a number >= 0"));
    }
    rate.set_table(static_cast<uint32_t>(table));
    rate.set_learning_rate(from.learning_rate);
    rates.push_back(rate);
  }
  return rates;
}

absl::Status SessionTables::Check(std::span<const RowGradients> gradients,
                                  std::optional<uint64_t> version) const {
  size_t ids = 0;
  for (const RowGradients& rows : gradients) {
    WEIR_ASSIGN_OR_RETURN(const int table, Find(rows.table));
    WEIR_RETURN_IF_ERROR(
        CheckSize(table, "gradients", rows.gradients.size(), rows.ids.size()));
    ids += rows.ids.size();
  }
  WEIR_RETURN_IF_ERROR(CheckCount(ids));
  // In sync, a step's gradients are computed from that step's rows. The ps
  // could not see the mistake, since the update names the step's version.
  for (size_t s = 0;
       version.has_value() && !gradients.empty() && s < oldest_.size(); ++s) {
    if (oldest_[s] != *version) {
      return absl::InvalidArgumentError(
          absl::StrCat("sync: these gradients are for step ", *version,
                       ", their rows were looked up in step ", oldest_[s],
                       "; start a lookup after the push of the step before"));
    }
  }
  return absl::OkStatus();
}

void SessionTables::Begin(ContributionPush push,
                          std::optional<uint64_t> version) {
  push_ = std::move(push);
  version_ = version;
  pushed_ = false;
}

absl::Status SessionTables::Push(std::span<const RowGradients> gradients) {
  if (pushed_) {
    return absl::FailedPreconditionError(
        "the rows of this push were given already: bring all at once");
  }
  WEIR_RETURN_IF_ERROR(Check(gradients, version_));
  sums_.clear();
  std::vector<TableClient::Gradients> lists;
  for (int t = 0; t < static_cast<int>(tables_.size()); ++t) {
    Sums sums = Sum(t, gradients);
    if (!sums.ids.empty()) {
      sums_.push_back(std::move(sums));
    }
  }
  for (const Sums& sums : sums_) {
    lists.push_back({sums.table, sums.ids, sums.gradients.data()});
  }
  // I3. Without a lookup to train since the update before, the newest version
  // that was read must do.
  TableClient::Versions versions = oldest_.empty() ? newest_ : oldest_;
  if (version_.has_value()) {
    versions.assign(newest_.size(), *version_);
  }
  oldest_.clear();
  pushed_ = true;
  return client_->StartUpdate(push_, versions, lists);
}

absl::Status SessionTables::End() {
  if (pushed_) {
    return absl::OkStatus();
  }
  return Push({});  // I2: the shards' marks and steps move on
}

SessionTables::Sums SessionTables::Sum(
    int table, std::span<const RowGradients> gradients) const {
  Sums sums;
  sums.table = table;
  UniqueIds unique;
  std::vector<float> values;
  for (const RowGradients& rows : gradients) {
    if (rows.table == tables_[static_cast<size_t>(table)].name()) {
      unique.Append(rows.ids);
      values.insert(values.end(), rows.gradients.begin(), rows.gradients.end());
    }
  }
  unique.Rank();
  sums.ids = unique.ids();
  const std::vector<int32_t>& ranks = unique.ranks();
  // Nothing to sum or to reorder.
  if (sums.ids.size() == ranks.size() &&
      std::is_sorted(ranks.begin(), ranks.end())) {
    sums.gradients = std::move(values);
    return sums;
  }
  const size_t width = dim(table);
  // In float64, in the order given, and rounded once (weir_tables.h promises
  // it).
  std::vector<double> totals(sums.ids.size() * width);
  for (size_t i = 0; i < ranks.size(); ++i) {
    double* const total = totals.data() + static_cast<size_t>(ranks[i]) * width;
    for (size_t k = 0; k < width; ++k) {
      total[k] += static_cast<double>(values[i * width + k]);
    }
  }
  sums.gradients.assign(totals.begin(), totals.end());
  return sums;
}

}  // namespace weir::sdk
