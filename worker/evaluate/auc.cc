#include "worker/evaluate/auc.h"

#include <algorithm>
#include <span>
#include <tuple>

namespace weir {
namespace {

// Pairs counted from the lowest score up.
class PairCount {
 public:
  // Adds the samples that share the next higher score. Each positive is above
  // all negatives so far and tied with those that come with it.
  void AddTied(double negatives, double positives) {
    ordered_ += positives * (negatives_ + negatives / 2);
    negatives_ += negatives;
    positives_ += positives;
  }

  bool has_pairs() const { return negatives_ > 0 && positives_ > 0; }
  double Auc() const { return has_pairs() ? ordered_ / pairs() : 0.5; }

 private:
  // In double: 2^32 samples of each class make 2^64 pairs.
  double pairs() const { return negatives_ * positives_; }

  double negatives_ = 0;
  double positives_ = 0;
  double ordered_ = 0;
};

// `sorted` ascends by score; ScoreOf and IsPositive read an element.
template <typename T, typename ScoreOf, typename IsPositive>
PairCount CountSorted(std::span<const T> sorted, const ScoreOf& score_of,
                      const IsPositive& is_positive) {
  PairCount pairs;
  for (size_t begin = 0; begin < sorted.size();) {
    size_t end = begin;
    double positives = 0;
    while (end < sorted.size() &&
           score_of(sorted[end]) == score_of(sorted[begin])) {
      if (is_positive(sorted[end])) {
        ++positives;
      }
      ++end;
    }
    pairs.AddTied(static_cast<double>(end - begin) - positives, positives);
    begin = end;
  }
  return pairs;
}

}  // namespace

double Auc(std::vector<Score> scores) {
  std::sort(scores.begin(), scores.end());
  return CountSorted<Score>(
             scores, [](const Score& s) { return s.first; },
             [](const Score& s) { return s.second; })
      .Auc();
}

std::optional<double> GroupAuc(std::vector<GroupedScore> scores) {
  std::sort(scores.begin(), scores.end(),
            [](const GroupedScore& a, const GroupedScore& b) {
              return std::tie(a.group, a.score) < std::tie(b.group, b.score);
            });
  double weighted = 0;
  double weights = 0;
  for (size_t begin = 0; begin < scores.size();) {
    size_t end = begin;
    while (end < scores.size() && scores[end].group == scores[begin].group) {
      ++end;
    }
    const PairCount pairs = CountSorted<GroupedScore>(
        std::span(scores).subspan(begin, end - begin),
        [](const GroupedScore& s) { return s.score; },
        [](const GroupedScore& s) { return s.positive; });
    // A group of one class alone says nothing about order; 0.5 for it would
    // pull the mean towards chance.
    if (pairs.has_pairs()) {
      const auto size = static_cast<double>(end - begin);
      weighted += size * pairs.Auc();
      weights += size;
    }
    begin = end;
  }
  if (weights == 0) {
    return std::nullopt;
  }
  return weighted / weights;
}

void BinnedAuc::Add(double probability, bool positive) {
  // A probability of 1 belongs to the last bin.
  const int bin = std::min(static_cast<int>(probability * kBins), kBins - 1);
  ++counts_[bin][static_cast<size_t>(positive)];
}

// Every bin counts as one score, so its pairs count one half, as ties do.
double BinnedAuc::Value() const {
  PairCount pairs;
  for (const auto& [negatives, positives] : counts_) {
    pairs.AddTied(static_cast<double>(negatives),
                  static_cast<double>(positives));
  }
  return pairs.Auc();
}

}  // namespace weir
