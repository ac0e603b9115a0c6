#include "worker/evaluate/auc.h"

#include <algorithm>
#include <span>

namespace weir {
namespace {

// Pairs counted from the lowest score up.
class PairCount {
 public:
  // Samples that share the next higher score.
  void AddTied(double negatives, double positives) {
    ordered_ += positives * (negatives_ + negatives / 2);
    tied_ += positives * negatives;
    negatives_ += negatives;
    positives_ += positives;
  }

  bool has_pairs() const { return negatives_ > 0 && positives_ > 0; }
  double Auc() const { return has_pairs() ? ordered_ / pairs() : 0.5; }
  double TiedShare() const { return has_pairs() ? tied_ / pairs() : 0.0; }

 private:
  double pairs() const { return negatives_ * positives_; }

  double negatives_ = 0;
  double positives_ = 0;
  double ordered_ = 0;
  double tied_ = 0;
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
      positives += is_positive(sorted[end]) ? 1 : 0;
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
              return a.group != b.group ? a.group < b.group : a.score < b.score;
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
    if (pairs.has_pairs()) {
      const auto size = static_cast<double>(end - begin);
      weighted += size * pairs.Auc();
      weights += size;
    }
    begin = end;
  }
  return weights > 0 ? std::optional(weighted / weights) : std::nullopt;
}

void BinnedAuc::Add(double probability, bool positive) {
  const int bin = std::min(static_cast<int>(probability * kBins), kBins - 1);
  ++counts_[bin][positive ? 1 : 0];
}

double BinnedAuc::Value() const {
  PairCount pairs;
  for (const auto& [negatives, positives] : counts_) {
    pairs.AddTied(static_cast<double>(negatives),
                  static_cast<double>(positives));
  }
  return pairs.Auc();
}

double BinnedAuc::ErrorMax() const {
  PairCount pairs;
  for (const auto& [negatives, positives] : counts_) {
    pairs.AddTied(static_cast<double>(negatives),
                  static_cast<double>(positives));
  }
  return pairs.TiedShare() / 2;
}

}  // namespace weir
