// A data set whose every value follows from its place, for tests of batches.
#ifndef TESTS_WORKER_DATA_FAKE_DATASET_H_
#define TESTS_WORKER_DATA_FAKE_DATASET_H_

#include <cstdint>

#include "worker/data/dataset.h"

namespace weir {

// Features (i, i + 0.5), label i.
class FakeDataset : public Dataset {
 public:
  // Reading sample `broken` fails; -1: none does.
  explicit FakeDataset(int64_t size, int64_t broken = -1) : broken_(broken) {
    SetShape(size, {2});
  }

  absl::Status ReadSample(int64_t index, float* features,
                          float* label) const override {
    if (index == broken_) {
      return absl::DataLossError("sample is broken");
    }
    features[0] = static_cast<float>(index);
    features[1] = static_cast<float>(index) + 0.5f;
    *label = static_cast<float>(index);
    return absl::OkStatus();
  }

 private:
  const int64_t broken_;
};

}  // namespace weir

#endif  // TESTS_WORKER_DATA_FAKE_DATASET_H_
