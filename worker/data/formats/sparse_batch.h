// Bags of ids: the categorical features of some samples.
//
// Place: data sets fill it (dataset.h). TableBatch makes of it what a model
//   needs of each table.
#ifndef WORKER_DATA_FORMATS_SPARSE_BATCH_H_
#define WORKER_DATA_FORMATS_SPARSE_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weir {

// One feature: a bag of ids for each sample. A bag may be empty, and may have
// an id twice.
struct SparseFeature {
  std::vector<int64_t> offsets = {0};  // [samples + 1], into `ids`
  std::vector<uint64_t> ids;
  std::vector<float> weights;  // by id; empty: every one is 1

  // Makes a bag of the ids that were added since the bag before.
  void EndBag() { offsets.push_back(static_cast<int64_t>(ids.size())); }
};

struct SparseBatch {
  std::vector<SparseFeature> features;  // in the order of the data set

  // Leaves `feature_count` features without samples. Their vectors keep their
  // memory.
  void Clear(size_t feature_count) {
    features.resize(feature_count);
    for (SparseFeature& feature : features) {
      feature.offsets.assign(1, 0);
      feature.ids.clear();
      feature.weights.clear();
    }
  }
};

}  // namespace weir

#endif  // WORKER_DATA_FORMATS_SPARSE_BATCH_H_
