// Bags of ids: the categorical features of some samples.
//
// Place: data sets fill it (dataset.h); the model turns it into what it needs
// of
//   each table.
#ifndef WORKER_DATA_SPARSE_BATCH_H_
#define WORKER_DATA_SPARSE_BATCH_H_

#include <cstdint>
#include <vector>

namespace weir {

// One feature: a bag of ids for each sample, any of which may be empty. An id
// may come twice.
struct SparseFeature {
  std::vector<int64_t> offsets = {0};  // [samples + 1], into `ids`
  std::vector<uint64_t> ids;
  std::vector<float> weights;  // by id; empty: every one is 1
};

struct SparseBatch {
  std::vector<SparseFeature> features;  // in the order of the data set
};

}  // namespace weir

#endif  // WORKER_DATA_SPARSE_BATCH_H_
