// A data set for tests of batches: every value follows from its place.
#ifndef TESTS_WORKER_DATA_FAKE_DATASET_H_
#define TESTS_WORKER_DATA_FAKE_DATASET_H_

#include <cstdint>

#include "worker/data/formats/dataset.h"

namespace weir {

// Features (i, i + 0.5), label i; `even` has the bag {i, 2 i} for even i and an
// empty one for odd i, `own` the bag {i}.
class FakeDataset : public Dataset {
 public:
  // Reading sample `broken` fails; with -1 every sample can be read.
  explicit FakeDataset(int64_t size, int64_t broken = -1) : broken_(broken) {
    SetShape(size, {2});
    set_sparse_features({"even", "own"});
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

  // Bytes i mod 256 and 255 - i mod 256 of a table of zeros.
  const float* value_of_byte() const override { return zeros_; }
  void ReadBytes(int64_t index, uint8_t* bytes, float* label) const override {
    bytes[0] = static_cast<uint8_t>(index);
    bytes[1] = static_cast<uint8_t>(255 - index);
    *label = static_cast<float>(index);
  }

  absl::Status ReadSparse(int64_t index, SparseBatch* batch) const override {
    const auto id = static_cast<uint64_t>(index);
    if (index % 2 == 0) {
      batch->features[0].ids.insert(batch->features[0].ids.end(), {id, 2 * id});
    }
    batch->features[0].EndBag();
    batch->features[1].ids.push_back(id);
    batch->features[1].EndBag();
    return absl::OkStatus();
  }

 private:
  const int64_t broken_;
  const float zeros_[256] = {};
};

}  // namespace weir

#endif  // TESTS_WORKER_DATA_FAKE_DATASET_H_
