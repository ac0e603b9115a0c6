// Generated digits as a data set: features [1, 28, 28] in [0, 1], labels 0 to
// 9.
//
// Cost: a sample is drawn when it is first read and kept as bytes, up to
//   kKeptMax samples (100 MB); those beyond are drawn each time.
// Threads: safe.
#ifndef WORKER_DATA_FORMATS_DIGITS_DATASET_H_
#define WORKER_DATA_FORMATS_DIGITS_DATASET_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "worker/data/formats/dataset.h"

namespace weir {

class DigitsDataset : public Dataset {
 public:
  static constexpr int64_t kKeptMax = 128 * 1024;

  // REQUIRES: count >= 1.
  DigitsDataset(uint32_t count, uint32_t stream, uint64_t seed);

  absl::Status ReadSample(int64_t index, float* features,
                          float* label) const override;

 private:
  enum State : uint8_t { kEmpty, kDrawing, kKept };

  const uint64_t seed_;
  const uint32_t stream_;
  const int64_t kept_count_;
  // A thread that moves state from kEmpty to kDrawing owns the sample's pixels
  // until it stores kKept; others only read pixels of kept samples.
  std::unique_ptr<std::atomic<uint8_t>[]> states_;  // [kept_count_]
  std::unique_ptr<uint8_t[]> pixels_;  // [kept_count_, kDigitPixels]
};

}  // namespace weir

#endif  // WORKER_DATA_FORMATS_DIGITS_DATASET_H_
