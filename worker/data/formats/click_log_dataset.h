// Makes click logs with a known best AUC. A sample is a pure function of (job
// seed, stream, index).
//
// Place: a data set that needs no download. Tests and benchmarks compare a
//   model's AUC with that of the true probabilities.
//
// Terms
//   x_j     number j of a sample: normal with mean 0 and variance 1, and
//           independent of the others.
//   k       the rank of an id in its feature: share(k) ~ (k + 1)^-exponent; see
//           zipf.h. A bag has 1 to bag_size ids, each count equally likely.
//   id      f * ids_per_feature + k for feature f = 0, 1, ..., which is called
//           "C1", "C2", ...
//   a_j     the effect of number j.
//   e_f(k)  the effect of id k of feature f.
//   v_f(k)  4 hidden numbers of that id. All three are uniform with mean 0 and
//           variance 1.
//   mean    is over the ids of a bag.
//
//   raw      = sqrt(0.3) sum_j a_j x_j / |a|
//            + sqrt(0.5) sum_f mean e_f / sqrt(features)
//            + sqrt(0.2) sum_p mean v_2p . mean v_2p+1 / sqrt(4 pairs)
//   log odds = bias + scale raw
//   label    = 1 with probability 1 / (1 + exp(-log odds))
// The pairs p are of features (0, 1), (2, 3), ..., at most 4 pairs. scale and
// bias are such that kCalibrationSamples samples of a stream of their own have
// a click rate of kClickRate, and an AUC of the true probability of kTrueAuc.
//
// Invariants
//   I1. All effects, bias and scale depend on the seed and on all fields but
//       count and stream, so every stream has the same truth.
// Threads: safe.
// Cost: nothing is kept. With 13 numbers and 26 ids ReadSample takes 2.2 us,
//   ReadSparse 1.2 us and the constructor 60 ms (2026-11, one core of the build
//   machine).
#ifndef WORKER_DATA_FORMATS_CLICK_LOG_DATASET_H_
#define WORKER_DATA_FORMATS_CLICK_LOG_DATASET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/math/random.h"
#include "proto/job_spec.pb.h"
#include "worker/data/formats/dataset.h"
#include "worker/data/formats/zipf.h"

namespace weir {

class ClickLogDataset : public Dataset {
 public:
  static constexpr double kClickRate = 0.25;
  static constexpr double kTrueAuc = 0.80;
  static constexpr int kCalibrationSamples = 16384;

  // `source` is checked and has its defaults; `seed` is the job's.
  ClickLogDataset(const ClickLogSource& source, uint64_t seed);

  absl::Status ReadSample(int64_t index, float* features,
                          float* label) const override;
  absl::Status ReadSparse(int64_t index, SparseBatch* batch) const override;

  // Returns the true probability that the label is 1. No model can do better.
  double Probability(int64_t index) const;

 private:
  struct Sample {
    double label_unit = 0;          // the label is 1 if it is below Probability
    std::vector<int64_t> bag_ends;  // [categorical], into ranks
    std::vector<uint64_t> ranks;
    std::vector<float> numbers;  // [numeric]
  };

  uint64_t StreamKey(uint64_t stream) const;
  // Draws label_unit and the bags. Returns the stream from which the sample's
  // numbers are drawn next.
  RandomStream DrawBags(uint64_t stream_key, int64_t index,
                        Sample* sample) const;
  void Draw(uint64_t stream_key, int64_t index, Sample* sample) const;
  double RawScore(const Sample& sample) const;
  void Calibrate();

  const ClickLogSource source_;
  const Zipf zipf_;
  const uint64_t key_;         // of everything
  const uint64_t effect_key_;  // of e
  const uint64_t hidden_key_;  // of v
  const uint64_t stream_key_;
  std::vector<double> number_effects_;  // [numeric]: a / |a|
  double scale_ = 1.0;
  double bias_ = 0.0;
};

}  // namespace weir

#endif  // WORKER_DATA_FORMATS_CLICK_LOG_DATASET_H_
