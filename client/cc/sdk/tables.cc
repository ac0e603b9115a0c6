#include "client/cc/sdk/tables.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace weir::sdk {

UniqueIds Unique(std::span<const uint64_t> ids) {
  UniqueIds unique;
  unique.place.resize(ids.size());
  std::iota(unique.place.begin(), unique.place.end(), 0);
  // The common case of sorted ids needs no second array.
  if (std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) ==
      ids.end()) {
    unique.ids.assign(ids.begin(), ids.end());
    return unique;
  }
  std::vector<uint32_t> order = unique.place;
  std::sort(order.begin(), order.end(),
            [ids](uint32_t a, uint32_t b) { return ids[a] < ids[b]; });
  for (const uint32_t i : order) {
    if (unique.ids.empty() || unique.ids.back() != ids[i]) {
      unique.ids.push_back(ids[i]);
    }
    unique.place[i] = static_cast<uint32_t>(unique.ids.size() - 1);
  }
  return unique;
}

absl::StatusOr<int> SessionTables::Find(const std::string& table) const {
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (tables_[t].name() == table) {
      return static_cast<int>(t);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no table is named '", table, "'"));
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

absl::Status SessionTables::StartLookup(const Want& want, bool train,
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
    asked.ids = Unique(rows.ids);
    // I1: the servers' answers go here.
    asked.rows = std::make_unique_for_overwrite<float[]>(asked.ids.ids.size() *
                                                         dim(asked.table));
    asked.out = rows.rows;
    all.push_back(std::move(asked));
  }
  std::vector<TableClient::Wanted> lists;
  for (const Asked& asked : all) {
    lists.push_back({asked.table, asked.ids.ids, asked.rows.get()});
  }
  // Moving keeps the memory that `lists` points to.
  asked_ = std::move(all);
  WEIR_RETURN_IF_ERROR(client_->StartLookup(want, train, lists));
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
    for (size_t i = 0; !asked.out.empty() && i < asked.ids.place.size(); ++i) {
      std::memcpy(asked.out.data() + i * width,
                  asked.rows.get() + asked.ids.place[i] * width,
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
  for (const RowGradients& rows : gradients) {
    WEIR_ASSIGN_OR_RETURN(const int table, Find(rows.table));
    WEIR_RETURN_IF_ERROR(
        CheckSize(table, "gradients", rows.gradients.size(), rows.ids.size()));
  }
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
  std::vector<uint64_t> ids;
  std::vector<float> values;
  for (const RowGradients& rows : gradients) {
    if (rows.table == tables_[static_cast<size_t>(table)].name()) {
      ids.insert(ids.end(), rows.ids.begin(), rows.ids.end());
      values.insert(values.end(), rows.gradients.begin(), rows.gradients.end());
    }
  }
  UniqueIds unique = Unique(ids);
  sums.ids = std::move(unique.ids);
  // Nothing to sum or to reorder.
  if (sums.ids.size() == ids.size() && sums.ids == ids) {
    sums.gradients = std::move(values);
    return sums;
  }
  const size_t width = dim(table);
  // In float64, in the order given, and rounded once (weir_tables.h promises
  // it).
  std::vector<double> totals(sums.ids.size() * width);
  for (size_t i = 0; i < ids.size(); ++i) {
    double* const total = totals.data() + unique.place[i] * width;
    for (size_t k = 0; k < width; ++k) {
      total[k] += static_cast<double>(values[i * width + k]);
    }
  }
  sums.gradients.assign(totals.begin(), totals.end());
  return sums;
}

}  // namespace weir::sdk
