// The contract of a data set: samples by number.
//
// Place: batches.h draws contributions from it, and the evaluator reads it in
//   order. A reader loads its file whole at the start (images stay bytes,
//   sparse rows stay sparse), so that reading a sample cannot fail later.
//
// What every data set promises
//   ReadSample(i) and ReadSparse(i) give the same values and bags every time
//   and on every machine, so a contribution that is computed again is the same.
//   Every value is finite.
// Threads: safe after Create.
// Errors: the message begins with the JobSpec's field ("data.train.idx.images")
//   and names the file, and in text files the line.
//         INVALID_ARGUMENT  a field is missing or wrong; a text file breaks its
//                           format; images and labels do not belong together.
//         NOT_FOUND         no such file.
//         DATA_LOSS         a binary file is truncated or damaged.
#ifndef WORKER_DATA_FORMATS_DATASET_H_
#define WORKER_DATA_FORMATS_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/formats/sparse_batch.h"

namespace weir {

class Source;  // proto/job_spec.proto

class Dataset {
 public:
  virtual ~Dataset() = default;

  // The number of samples; at least 1.
  int64_t size() const { return size_; }
  // The shape of one sample, without the batch: {1, 28, 28} or {126}; {0} where
  // the data set has categorical features alone.
  const std::vector<int64_t>& feature_shape() const { return feature_shape_; }
  // The product of feature_shape().
  int64_t feature_elements() const { return feature_elements_; }
  // Names of the categorical features; unique, empty where there is none.
  const std::vector<std::string>& sparse_features() const {
    return sparse_features_;
  }

  // Fills features[feature_elements()] and *label.
  // REQUIRES: 0 <= index < size().
  virtual absl::Status ReadSample(int64_t index, float* features,
                                  float* label) const = 0;
  // Null, or 256 floats: then every feature is a byte that stands for one of
  // these, and ReadBytes gives the bytes.
  virtual const float* value_of_byte() const { return nullptr; }
  // Fills bytes[feature_elements()] and *label.
  // REQUIRES: value_of_byte() is not null; 0 <= index < size().
  virtual void ReadBytes(int64_t /*index*/, uint8_t* /*bytes*/,
                         float* /*label*/) const {}
  // Appends the sample's bag to every feature of *batch.
  // REQUIRES: 0 <= index < size(); as many features as sparse_features().
  virtual absl::Status ReadSparse(int64_t /*index*/,
                                  SparseBatch* /*batch*/) const {
    return absl::OkStatus();
  }

 protected:
  Dataset() = default;
  void SetShape(int64_t size, std::vector<int64_t> feature_shape) {
    size_ = size;
    feature_shape_ = std::move(feature_shape);
    feature_elements_ = 1;
    for (const int64_t dimension : feature_shape_) {
      feature_elements_ *= dimension;
    }
  }
  void set_sparse_features(std::vector<std::string> names) {
    sparse_features_ = std::move(names);
  }

 private:
  int64_t size_ = 0;
  std::vector<int64_t> feature_shape_;
  int64_t feature_elements_ = 0;
  std::vector<std::string> sparse_features_;
};

// Opens the data set that `source` names. Relative paths are under `data_dir`.
// `field_path` is the place of `source` in the JobSpec: "data.train".
absl::StatusOr<std::unique_ptr<Dataset>> CreateDataset(
    const Source& source, const std::string& data_dir, uint64_t job_seed,
    const std::string& field_path);

}  // namespace weir

#endif  // WORKER_DATA_FORMATS_DATASET_H_
