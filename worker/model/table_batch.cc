#include "worker/model/table_batch.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace weir {
namespace {

constexpr int64_t kCountMax = std::numeric_limits<int32_t>::max();

// Digits of the radix sort: their counts stay in L1.
constexpr int kDigitBits = 11;
constexpr int kDigits = (64 + kDigitBits - 1) / kDigitBits;
constexpr uint64_t kBuckets = uint64_t{1} << kDigitBits;

uint64_t Digit(uint64_t id, int digit) {
  return (id >> (digit * kDigitBits)) & (kBuckets - 1);
}

absl::Status CheckFeature(const SparseFeature& feature, int64_t samples) {
  if (static_cast<int64_t>(feature.offsets.size()) != samples + 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has ", feature.offsets.size() - 1, " bags of ", samples, " samples"));
  }
  const auto ids = static_cast<int64_t>(feature.ids.size());
  if (feature.offsets.front() != 0 || feature.offsets.back() != ids ||
      !std::is_sorted(feature.offsets.begin(), feature.offsets.end())) {
    return absl::InvalidArgumentError(
        absl::StrCat("its bags are not its ", ids, " ids in order"));
  }
  if (!feature.weights.empty() &&
      feature.weights.size() != feature.ids.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has ", feature.weights.size(), " weights for ", ids, " ids"));
  }
  return absl::OkStatus();
}

// Divides the weights of every bag by their sum.
void DivideBySums(TableBatch::Lists* bags) {
  for (int64_t b = 0; b < bags->count(); ++b) {
    double sum = 0.0;
    for (int32_t e = bags->offsets[b]; e < bags->offsets[b + 1]; ++e) {
      sum += bags->weights[e];
    }
    for (int32_t e = bags->offsets[b]; e < bags->offsets[b + 1]; ++e) {
      bags->weights[e] =
          sum == 0.0 ? 0.0f : static_cast<float>(bags->weights[e] / sum);
    }
  }
}

}  // namespace

absl::Status TableBatch::Fill(std::span<const TableUse> uses,
                              const SparseBatch& batch, int64_t samples) {
  ids_.clear();
  samples_ = 0;
  const absl::Status status = Check(uses, batch, samples);
  if (!status.ok()) {
    uses_.clear();
    return status;
  }
  samples_ = samples;
  Collect(uses, batch);
  Sort();
  Rank();
  uses_.resize(uses.size());
  for (size_t u = 0; u < uses.size(); ++u) {
    FillBags(uses[u], batch, &uses_[u].bags);
    FillRows(uses_[u].bags, uses[u].pooling == Pooling::kMax, &uses_[u].rows);
  }
  return absl::OkStatus();
}

absl::Status TableBatch::Check(std::span<const TableUse> uses,
                               const SparseBatch& batch,
                               int64_t samples) const {
  int64_t ids = 0;
  for (const TableUse& use : uses) {
    for (const int f : use.features) {
      if (f < 0 || f >= static_cast<int>(batch.features.size())) {
        return absl::InvalidArgumentError(
            absl::StrCat("categorical feature ", f,
                         " is not one of the batch's ", batch.features.size()));
      }
      WEIR_RETURN_IF_ERROR(Annotate(CheckFeature(batch.features[f], samples),
                                    absl::StrCat("categorical feature ", f)));
      ids += static_cast<int64_t>(batch.features[f].ids.size());
    }
    const int64_t bags = samples * static_cast<int64_t>(use.features.size());
    if (ids > kCountMax || bags > kCountMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("a batch has ", ids, " ids of one table and ", bags,
                       " bags of one layer; at most ", kCountMax,
                       " of each are possible, so take a smaller one"));
    }
  }
  return absl::OkStatus();
}

void TableBatch::Collect(std::span<const TableUse> uses,
                         const SparseBatch& batch) {
  entries_.clear();
  begins_.assign(batch.features.size(), -1);
  for (const TableUse& use : uses) {
    for (const int f : use.features) {
      if (begins_[f] >= 0) {
        continue;
      }
      begins_[f] = static_cast<int64_t>(entries_.size());
      for (const uint64_t id : batch.features[f].ids) {
        entries_.push_back({id, static_cast<uint32_t>(entries_.size())});
      }
    }
  }
}

void TableBatch::Sort() {
  std::array<std::array<uint32_t, kBuckets>, kDigits> counts = {};
  for (const Entry& entry : entries_) {
    for (int d = 0; d < kDigits; ++d) {
      ++counts[d][Digit(entry.id, d)];
    }
  }
  sorted_.resize(entries_.size());
  for (int d = 0; d < kDigits; ++d) {
    // Small ids have the same high digits.
    if (entries_.empty() ||
        counts[d][Digit(entries_[0].id, d)] == entries_.size()) {
      continue;
    }
    uint32_t begin = 0;
    for (uint32_t& count : counts[d]) {
      begin += std::exchange(count, begin);
    }
    for (const Entry& entry : entries_) {
      sorted_[counts[d][Digit(entry.id, d)]++] = entry;
    }
    entries_.swap(sorted_);
  }
}

void TableBatch::Rank() {
  ranks_.resize(entries_.size());
  for (const Entry& entry : entries_) {
    if (ids_.empty() || ids_.back() != entry.id) {
      ids_.push_back(entry.id);
    }
    ranks_[entry.position] = static_cast<int32_t>(ids_.size()) - 1;
  }
}

void TableBatch::FillBags(const TableUse& use, const SparseBatch& batch,
                          Lists* bags) {
  const auto features = static_cast<int64_t>(use.features.size());
  size_t ids = 0;
  bool weighted = false;
  for (const int f : use.features) {
    ids += batch.features[f].ids.size();
    weighted |= !batch.features[f].weights.empty();
  }
  bags->offsets.resize(samples_ * features + 1);
  bags->index.resize(ids);
  bags->weights.clear();
  int32_t end = 0;
  int32_t longest = 0;
  for (int64_t s = 0; s < samples_; ++s) {
    for (int64_t i = 0; i < features; ++i) {
      const SparseFeature& feature = batch.features[use.features[i]];
      const int32_t* ranks = ranks_.data() + begins_[use.features[i]];
      const int32_t begin = end;
      for (int64_t k = feature.offsets[s]; k < feature.offsets[s + 1]; ++k) {
        bags->index[end++] = ranks[k];
      }
      bags->offsets[s * features + i + 1] = end;
      longest = std::max(longest, end - begin);
    }
  }
  const bool mean = use.pooling == Pooling::kMean;
  if (use.pooling == Pooling::kMax || !(weighted || (mean && longest > 1))) {
    return;
  }
  for (int64_t s = 0; s < samples_; ++s) {
    for (const int f : use.features) {
      const SparseFeature& feature = batch.features[f];
      for (int64_t k = feature.offsets[s]; k < feature.offsets[s + 1]; ++k) {
        bags->weights.push_back(feature.weights.empty() ? 1.0f
                                                        : feature.weights[k]);
      }
    }
  }
  if (mean) {
    DivideBySums(bags);
  }
}

void TableBatch::FillRows(const Lists& bags, bool once, Lists* rows) {
  // offsets[r + 2] counts, then offsets[r + 1] is where row r's next bag goes,
  // which in the end is where its list ends.
  rows->offsets.assign(ids_.size() + 2, 0);
  last_bag_.assign(once ? ids_.size() : 0, -1);
  const auto repeated = [&](int32_t row, int64_t bag) {
    return once && std::exchange(last_bag_[row], static_cast<int32_t>(bag)) ==
                       static_cast<int32_t>(bag);
  };
  for (int64_t b = 0; b < bags.count(); ++b) {
    for (int32_t e = bags.offsets[b]; e < bags.offsets[b + 1]; ++e) {
      rows->offsets[bags.index[e] + 2] += repeated(bags.index[e], b) ? 0 : 1;
    }
  }
  for (size_t i = 2; i < rows->offsets.size(); ++i) {
    rows->offsets[i] += rows->offsets[i - 1];
  }
  rows->index.resize(rows->offsets.back());
  rows->weights.resize(bags.weights.empty() ? 0 : rows->index.size());
  std::fill(last_bag_.begin(), last_bag_.end(), -1);
  for (int64_t b = 0; b < bags.count(); ++b) {
    for (int32_t e = bags.offsets[b]; e < bags.offsets[b + 1]; ++e) {
      if (repeated(bags.index[e], b)) {
        continue;
      }
      const int32_t place = rows->offsets[bags.index[e] + 1]++;
      rows->index[place] = static_cast<int32_t>(b);
      if (!bags.weights.empty()) {
        rows->weights[place] = bags.weights[e];
      }
    }
  }
  rows->offsets.pop_back();
}

}  // namespace weir
