#include "worker/model/table_batch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace weir {
namespace {

constexpr int64_t kCountMax = UniqueIds::kEntriesMax;  // bags are int32, too

absl::Status CheckFeature(const SparseFeature& feature, int64_t samples) {
  if (static_cast<int64_t>(feature.offsets.size()) != samples + 1) {
    return Invalid("has ", feature.offsets.size() - 1, " bags of ", samples,
                   " samples");
  }
  const auto ids = static_cast<int64_t>(feature.ids.size());
  if (feature.offsets.front() != 0 || feature.offsets.back() != ids ||
      !std::is_sorted(feature.offsets.begin(), feature.offsets.end())) {
    return Invalid("its bags are not its ", ids, " ids in order");
  }
  if (!feature.weights.empty() &&
      feature.weights.size() != feature.ids.size()) {
    return Invalid("has ", feature.weights.size(), " weights for ", ids,
                   " ids");
  }
  return absl::OkStatus();
}

// I2 for a mean: divides the weights of every bag by their sum. Weights that
// add up to 0 become 0, not NaN.
void DivideBySums(TableBatch::Lists* bags) {
  for (int64_t b = 0; b < bags->count(); ++b) {
    double sum = 0.0;
    for (int32_t e = bags->offsets[b]; e < bags->offsets[b + 1]; ++e) {
      sum += bags->weights[e];
    }
    for (int32_t e = bags->offsets[b]; e < bags->offsets[b + 1]; ++e) {
      float part = 0.0f;
      if (sum != 0.0) {
        part = static_cast<float>(bags->weights[e] / sum);
      }
      bags->weights[e] = part;
    }
  }
}

}  // namespace

absl::Status TableBatch::Fill(std::span<const TableUse> uses,
                              const SparseBatch& batch, int64_t samples) {
  unique_.Clear();
  samples_ = 0;
  const absl::Status status = Check(uses, batch, samples);
  if (!status.ok()) {
    uses_.clear();
    return status;
  }
  samples_ = samples;
  Collect(uses, batch);
  unique_.Rank();  // I1
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
        return Invalid("categorical feature ", f, " is not one of the batch's ",
                       batch.features.size());
      }
      ids += static_cast<int64_t>(batch.features[f].ids.size());
    }
    const int64_t bags = samples * static_cast<int64_t>(use.features.size());
    if (ids > kCountMax || bags > kCountMax) {
      return Invalid("a batch has ", ids, " ids of one table and ", bags,
                     " bags of one layer; at most ", kCountMax,
                     " of each are possible, so take a smaller one");
    }
  }
  for (const TableUse& use : uses) {
    for (const int f : use.features) {
      WEIR_RETURN_IF_ERROR(Annotate(CheckFeature(batch.features[f], samples),
                                    absl::StrCat("categorical feature ", f)));
    }
  }
  return absl::OkStatus();
}

void TableBatch::Collect(std::span<const TableUse> uses,
                         const SparseBatch& batch) {
  begins_.assign(batch.features.size(), -1);
  for (const TableUse& use : uses) {
    for (const int f : use.features) {
      if (begins_[f] >= 0) {  // another use of the table has the feature, too
        continue;
      }
      begins_[f] = static_cast<int64_t>(unique_.entries());
      unique_.Append(batch.features[f].ids);
    }
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
      const int32_t* ranks = unique_.ranks().data() + begins_[use.features[i]];
      const int32_t begin = end;
      for (int64_t k = feature.offsets[s]; k < feature.offsets[s + 1]; ++k) {
        bags->index[end++] = ranks[k];
      }
      bags->offsets[s * features + i + 1] = end;
      longest = std::max(longest, end - begin);
    }
  }
  // Without weights every entry counts 1, which is what a sum without weights
  // and a mean over bags of at most one id need; the kernels are faster then.
  const bool mean = use.pooling == Pooling::kMean;
  if (use.pooling == Pooling::kMax || !(weighted || (mean && longest > 1))) {
    return;
  }
  for (int64_t s = 0; s < samples_; ++s) {
    for (const int f : use.features) {
      const SparseFeature& feature = batch.features[f];
      for (int64_t k = feature.offsets[s]; k < feature.offsets[s + 1]; ++k) {
        // One feature of the use may have weights and another not.
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
  // A counting sort of the entries by row. offsets[r + 2] counts row r's bags.
  // Summed up, offsets[r + 1] is where its list begins; it moves on with every
  // bag that is put there, so in the end it is where the list ends, and the
  // next one begins.
  rows->offsets.assign(ids().size() + 2, 0);
  last_bag_.clear();
  if (once) {
    last_bag_.assign(ids().size(), -1);
  }
  // I3: a bag with an id twice has it once as a maximum, which one of the two
  // took; else its gradient would be counted twice.
  const auto repeated = [&](int32_t row, int64_t bag) {
    return once && std::exchange(last_bag_[row], static_cast<int32_t>(bag)) ==
                       static_cast<int32_t>(bag);
  };
  for (int64_t b = 0; b < bags.count(); ++b) {
    for (int32_t e = bags.offsets[b]; e < bags.offsets[b + 1]; ++e) {
      if (!repeated(bags.index[e], b)) {
        ++rows->offsets[bags.index[e] + 2];
      }
    }
  }
  for (size_t i = 2; i < rows->offsets.size(); ++i) {
    rows->offsets[i] += rows->offsets[i - 1];
  }
  rows->index.resize(rows->offsets.back());
  if (bags.weights.empty()) {
    rows->weights.clear();
  } else {
    rows->weights.resize(rows->index.size());
  }
  // I3: bags are gone through in order, so the list of every row ascends.
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
