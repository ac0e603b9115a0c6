// The area under the ROC curve: the share of (positive, negative) pairs whose
// positive has the higher score, ties counted one half.
//
// Place: Metrics, tools and benchmarks.
//
// Threads: compatible.
// Source: Fawcett, "An introduction to ROC analysis", 2006, section 7; as the
//         Mann-Whitney statistic. Groups: Zhu et al., "Optimized Cost per Click
//         in Taobao Display Advertising", KDD 2017, section 4.3.
#ifndef WORKER_EVALUATE_AUC_H_
#define WORKER_EVALUATE_AUC_H_

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace weir {

using Score = std::pair<float, bool>;  // (score, positive)

// Exact; 0.5 where there is no pair. Takes the vector to sort it.
// REQUIRES: no score is NaN. Cost: O(n log n).
double Auc(std::vector<Score> scores);

// The mean of the AUCs of groups (users, queries), weighted by their samples;
// groups without a pair are left out, none where all are. Such a mean does not
// count what the group alone tells.
// REQUIRES: no score is NaN. Cost: O(n log n).
struct GroupedScore {
  uint64_t group = 0;
  float score = 0.0f;
  bool positive = false;
};
std::optional<double> GroupAuc(std::vector<GroupedScore> scores);

// Of any number of samples, in 1 MiB: counts in bins of the probability.
//
// Pairs within a bin count one half, so the value is off by at most half their
// share of all pairs: 1 / (2 kBins) where one class has even scores, more where
// both crowd in few bins.
class BinnedAuc {
 public:
  static constexpr int kBins = 1 << 16;

  // REQUIRES: 0 <= probability <= 1.
  void Add(double probability, bool positive);
  // 0.5 where there is no pair.
  double Value() const;
  // Value() is off by no more than this, rounding aside.
  double ErrorMax() const;

 private:
  std::vector<std::array<uint64_t, 2>> counts_ =
      std::vector<std::array<uint64_t, 2>>(kBins);  // negatives, positives
};

}  // namespace weir

#endif  // WORKER_EVALUATE_AUC_H_
