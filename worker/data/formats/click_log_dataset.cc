#include "worker/data/formats/click_log_dataset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

constexpr uint64_t kDomain = 0x636c69636b73ULL;  // "clicks"
// I1: the calibration has a stream that no job can name, since theirs have 32
// bits.
constexpr uint64_t kCalibrationStream = uint64_t{1} << 32;
constexpr int64_t kPairsMax = 4;
constexpr int kHidden = 4;
constexpr double kNumberShare = 0.3;  // of the raw score's variance
constexpr double kIdShare = 0.5;
constexpr double kPairShare = 0.2;

// Uniform with mean 0 and variance 1.
double Effect(uint32_t word) {
  constexpr double kSqrt3 = 1.7320508075688772;
  return kSqrt3 * (2.0 * static_cast<double>(UnitFloat(word)) - 1.0);
}

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// Finds the bias with which `scale raw + bias` has a mean probability of
// `rate`. The mean ascends with the bias, so there is one.
double SolveBias(const std::vector<double>& raw, double scale, double rate) {
  double low = -100.0;
  double high = 100.0;
  double bias = 0.0;
  for (int step = 0; step < 12; ++step) {
    // Newton's step where it stays between the bounds, else the middle. Always
    // 12 steps: the result must not depend on when a test stops them.
    double mean = 0.0;
    double slope = 0.0;
    for (const double r : raw) {
      const double p = Sigmoid(scale * r + bias);
      mean += p;
      slope += p * (1.0 - p);
    }
    const double excess = mean - rate * static_cast<double>(raw.size());
    if (excess > 0) {
      high = bias;
    } else {
      low = bias;
    }
    const double next = bias - excess / slope;
    if (next > low && next < high) {
      bias = next;
    } else {
      bias = (low + high) / 2;
    }
  }
  return bias;
}

// Returns the expected AUC of labels that are drawn with probability
// sigmoid(scale raw + bias): the expected number of pairs in order, divided by
// that of all pairs. `raw` ascends.
double ExpectedAuc(const std::vector<double>& raw, double scale, double bias) {
  double positives = 0.0;
  double negatives = 0.0;
  double ordered = 0.0;
  double self = 0.0;
  for (const double r : raw) {
    const double p = Sigmoid(scale * r + bias);
    ordered += p * negatives;
    positives += p;
    negatives += 1.0 - p;
    self += p * (1.0 - p);  // a sample makes no pair with itself
  }
  return ordered / (positives * negatives - self);
}

}  // namespace

ClickLogDataset::ClickLogDataset(const ClickLogSource& source, uint64_t seed)
    : source_(source),
      zipf_(source.ids_per_feature(), source.exponent()),
      key_(MixKey(seed, kDomain)),
      // I1: no key but stream_key_ has the stream in it. Numbers from 2^33 on
      // are not streams.
      effect_key_(MixKey(key_, uint64_t{1} << 33)),
      hidden_key_(MixKey(key_, uint64_t{2} << 33)),
      stream_key_(StreamKey(source.stream())) {
  RandomStream random(MixKey(key_, uint64_t{3} << 33));
  double squares = 0.0;
  for (int64_t j = 0; j < source.numeric(); ++j) {
    number_effects_.push_back(Effect(random.Next32()));
    squares += number_effects_.back() * number_effects_.back();
  }
  // By |a|, so that the numbers' part of the raw score has variance 1.
  for (double& effect : number_effects_) {
    effect /= std::sqrt(squares);
  }
  SetShape(static_cast<int64_t>(source.count()), {source.numeric()});
  std::vector<std::string> names;
  for (int64_t f = 1; f <= source.categorical(); ++f) {
    names.push_back(absl::StrCat("C", f));
  }
  set_sparse_features(std::move(names));
  Calibrate();
}

uint64_t ClickLogDataset::StreamKey(uint64_t stream) const {
  return MixKey(key_, stream);
}

RandomStream ClickLogDataset::DrawBags(uint64_t stream_key, int64_t index,
                                       Sample* sample) const {
  RandomStream random(MixKey(stream_key, static_cast<uint64_t>(index)));
  sample->label_unit =
      static_cast<double>(random.Next64() >> 11) * 0x1.0p-53;  // [0, 1)
  // Bags before numbers: ReadSparse draws no more than it needs.
  sample->ranks.clear();
  sample->bag_ends.clear();
  for (int64_t f = 0; f < source_.categorical(); ++f) {
    int64_t count = 1;
    if (source_.bag_size() > 1) {
      count += random.NextBelow(source_.bag_size());
    }
    for (int64_t i = 0; i < count; ++i) {
      sample->ranks.push_back(zipf_.Draw(&random));
    }
    sample->bag_ends.push_back(std::ssize(sample->ranks));
  }
  return random;
}

void ClickLogDataset::Draw(uint64_t stream_key, int64_t index,
                           Sample* sample) const {
  RandomStream random = DrawBags(stream_key, index, sample);
  sample->numbers.resize(source_.numeric());
  for (float& number : sample->numbers) {
    number = random.NextNormal();
  }
}

double ClickLogDataset::RawScore(const Sample& sample) const {
  double numbers = 0.0;
  for (int64_t j = 0; j < source_.numeric(); ++j) {
    numbers += number_effects_[j] * static_cast<double>(sample.numbers[j]);
  }
  const int64_t pairs = std::min(kPairsMax, int64_t{source_.categorical()} / 2);
  double ids = 0.0;
  double interactions = 0.0;
  std::array<double, kHidden> before = {};  // mean v of the feature before
  int64_t begin = 0;
  for (int64_t f = 0; f < source_.categorical(); ++f) {
    const int64_t end = sample.bag_ends[f];
    const auto count = static_cast<double>(end - begin);
    std::array<double, kHidden> hidden = {};
    for (; begin < end; ++begin) {
      const uint64_t rank = sample.ranks[begin];
      const auto feature = static_cast<uint64_t>(f);
      ids += Effect(Philox(effect_key_, feature, rank)[0]) / count;
      if (f < 2 * pairs) {
        const auto words = Philox(hidden_key_, feature, rank);
        for (int d = 0; d < kHidden; ++d) {
          hidden[d] += Effect(words[d]) / count;
        }
      }
    }
    // Pair (f - 1, f). Beyond the last pair hidden is 0 and adds nothing.
    if (f % 2 == 1) {
      for (int d = 0; d < kHidden; ++d) {
        interactions += before[d] * hidden[d];
      }
    }
    before = hidden;
  }
  double raw = std::sqrt(kNumberShare) * numbers +
               std::sqrt(kIdShare) * ids /
                   std::sqrt(static_cast<double>(source_.categorical()));
  if (pairs > 0) {
    raw += std::sqrt(kPairShare) * interactions /
           std::sqrt(static_cast<double>(kHidden * pairs));
  }
  return raw;
}

void ClickLogDataset::Calibrate() {
  const uint64_t stream_key = StreamKey(kCalibrationStream);
  std::vector<double> raw(kCalibrationSamples);
  Sample sample;
  for (int i = 0; i < kCalibrationSamples; ++i) {
    Draw(stream_key, i, &sample);
    raw[i] = RawScore(sample);
  }
  std::sort(raw.begin(), raw.end());
  // The AUC ascends with the scale: bisection, in its logarithm.
  double low = 0.01;
  double high = 100.0;
  for (int step = 0; step < 30; ++step) {
    scale_ = std::sqrt(low * high);
    bias_ = SolveBias(raw, scale_, kClickRate);
    if (ExpectedAuc(raw, scale_, bias_) < kTrueAuc) {
      low = scale_;
    } else {
      high = scale_;
    }
  }
}

double ClickLogDataset::Probability(int64_t index) const {
  Sample sample;
  Draw(stream_key_, index, &sample);
  return Sigmoid(scale_ * RawScore(sample) + bias_);
}

absl::Status ClickLogDataset::ReadSample(int64_t index, float* features,
                                         float* label) const {
  Sample sample;
  Draw(stream_key_, index, &sample);
  std::copy(sample.numbers.begin(), sample.numbers.end(), features);
  const double probability = Sigmoid(scale_ * RawScore(sample) + bias_);
  *label = sample.label_unit < probability ? 1.0f : 0.0f;
  return absl::OkStatus();
}

absl::Status ClickLogDataset::ReadSparse(int64_t index,
                                         SparseBatch* batch) const {
  Sample sample;
  DrawBags(stream_key_, index, &sample);
  int64_t begin = 0;
  for (int64_t f = 0; f < source_.categorical(); ++f) {
    SparseFeature& feature = batch->features[f];
    for (; begin < sample.bag_ends[f]; ++begin) {
      feature.ids.push_back(static_cast<uint64_t>(f) *
                                source_.ids_per_feature() +
                            sample.ranks[begin]);
    }
    feature.EndBag();
  }
  return absl::OkStatus();
}

}  // namespace weir
