// Reads Criteo's display advertising logs, one sample a line: the label, 13
// integers and 26 categories.
//
// Fields are separated by tabs; lines end with LF or CRLF. Any field but the
// label may be empty: an integer is then 0, and a category an empty bag.
//
// Features: [13], log(1 + max(x, 0)). Categorical features "C1" to "C26"; an id
//   is the FeatureHash of the field's column and text, so CsvDataset finds the
//   same ids in the same file.
//
// Terms
//   bad line   a line with another number of fields, with a label that is not 0
//              or 1, or with an integer field that is not an integer.
//   piece      about piece_bytes of the file, cut behind a line end. Pieces are
//              the same whatever the number of threads.
//
// Invariants
//   I1. Rows are the file's lines in order, without the bad ones.
//   I2. The result, error or warning is the same for any number of threads.
// Threads: safe after Create, which starts `threads` of its own and ends them.
// Errors: see dataset.h; INVALID_ARGUMENT names the first bad line too many.
// Cost: 264 bytes for each row and, while the file is read, a piece of text for
//   each thread. A thread parses 0.9 million rows (220 MB) a second (2026-11,
//   one core of the build machine).
// Source: kaggle.com/c/criteo-display-ad-challenge; the Criteo 1TB click logs
//         have the same form.
#ifndef WORKER_DATA_FORMATS_CRITEO_DATASET_H_
#define WORKER_DATA_FORMATS_CRITEO_DATASET_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/formats/dataset.h"

namespace weir {

class CriteoDataset : public Dataset {
 public:
  static constexpr int kIntegers = 13;
  static constexpr int kCategories = 26;

  struct Options {
    std::string path;  // plain, gzip or zstd
    uint64_t hash_buckets = 0;
    uint64_t max_bad_lines = 0;
    uint64_t max_rows = 0;  // 0: all
    int threads = 0;        // 0: as many as the machine has, up to 16
    int64_t piece_bytes = int64_t{4} << 20;
    std::string field_path;  // "data.train.criteo"
  };

  static absl::StatusOr<std::unique_ptr<Dataset>> Create(
      const Options& options);

  absl::Status ReadSample(int64_t index, float* features,
                          float* label) const override;
  absl::Status ReadSparse(int64_t index, SparseBatch* batch) const override;

  // The rows of one piece.
  struct Rows {
    int64_t begin = 0;               // number of the first
    std::vector<float> integers;     // [rows, kIntegers]
    std::vector<uint64_t> ids;       // [rows, kCategories]; 0 where empty
    std::vector<uint32_t> presence;  // [rows]: bit c: category c is not empty;
                                     // bit kCategories: the label
    int64_t size() const { return static_cast<int64_t>(presence.size()); }
  };

 private:
  CriteoDataset() = default;

  // Returns the rows that hold sample `index`; *row is its place among them.
  const Rows& Find(int64_t index, int64_t* row) const;

  std::deque<Rows> pieces_;  // none is empty
};

}  // namespace weir

#endif  // WORKER_DATA_FORMATS_CRITEO_DATASET_H_
