// Computes the area under the ROC curve: the share of (positive, negative)
// pairs whose positive has the higher score. A tie counts one half.
//
// Place: Metrics calls it; tools and benchmarks do, too.
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

// Returns the exact value; 0.5 without a pair. Takes the vector to sort it.
// REQUIRES: no score is NaN. Cost: O(n log n).
double Auc(std::vector<Score> scores);

// One sample of GroupAuc.
struct GroupedScore {
  uint64_t group = 0;
  float score = 0.0f;
  bool positive = false;
};
// Returns the mean of the AUCs of groups (users, queries), weighted by their
// numbers of samples. Groups without a pair are left out; nullopt where all
// are. Such a mean gives a model no credit for telling groups apart.
// REQUIRES: no score is NaN. Cost: O(n log n).
std::optional<double> GroupAuc(std::vector<GroupedScore> scores);

// The AUC of any number of samples in 1 MiB: counts them in bins of their
// probability.
//
// Pairs within a bin count one half, so the value is off by at most half their
// share of all pairs. That is 1 / (2 kBins) where the scores of one class are
// spread evenly, and more where both classes crowd in few bins.
class BinnedAuc {
 public:
  static constexpr int kBins = 1 << 16;

  // REQUIRES: 0 <= probability <= 1.
  void Add(double probability, bool positive);
  // 0.5 where there is no pair.
  double Value() const;

 private:
  std::vector<std::array<uint64_t, 2>> counts_ =
      std::vector<std::array<uint64_t, 2>>(kBins);  // negatives, positives
};

}  // namespace weir

#endif  // WORKER_EVALUATE_AUC_H_
