#include "tests/fuzz/dataset_reading.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/check.h"
#include "common/base/logging.h"

namespace weir {
namespace {

constexpr int64_t kSamples = 4;            // read at each end
constexpr int64_t kElementsMax = 1 << 20;  // of a sample that is read

void ReadSample(const Dataset& data, int64_t index) {
  std::vector<float> features(static_cast<size_t>(data.feature_elements()));
  float label = NAN;
  WEIR_CHECK(data.ReadSample(index, features.data(), &label).ok());
  WEIR_CHECK(std::isfinite(label));
  WEIR_CHECK(std::all_of(features.begin(), features.end(),
                         [](float value) { return std::isfinite(value); }));
  SparseBatch batch;
  batch.Clear(data.sparse_features().size());
  WEIR_CHECK(data.ReadSparse(index, &batch).ok());
  for (const SparseFeature& feature : batch.features) {
    WEIR_CHECK(feature.offsets.size() == 2 &&
               feature.offsets.back() ==
                   static_cast<int64_t>(feature.ids.size()));
  }
}

}  // namespace

void CheckDataset(const absl::StatusOr<std::unique_ptr<Dataset>>& data) {
  SetLogLevel(LogLevel::kError);  // readers warn of bad lines
  if (!data.ok()) {
    WEIR_CHECK(absl::IsInvalidArgument(data.status()) ||
               absl::IsDataLoss(data.status()) ||
               absl::IsResourceExhausted(data.status()));
    return;
  }
  WEIR_CHECK((*data)->size() >= 1 && (*data)->feature_elements() >= 0);
  if ((*data)->feature_elements() > kElementsMax) {
    return;
  }
  for (int64_t i = 0; i < std::min((*data)->size(), kSamples); ++i) {
    ReadSample(**data, i);
    ReadSample(**data, (*data)->size() - 1 - i);
  }
}

void ReadDataset(const Source& source) {
  CheckDataset(CreateDataset(source, "", /*job_seed=*/0, "data.train"));
}

}  // namespace weir
