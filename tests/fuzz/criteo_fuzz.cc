// Criteo's click logs: two threads read the same rows, or give the same error,
// as one, and so do small pieces as the whole file. Only in a packed file that
// is damaged do large pieces meet the damage before bad lines in front of it.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "common/base/check.h"
#include "tests/fuzz/data_file.h"
#include "tests/fuzz/dataset_reading.h"
#include "tests/fuzz/fuzz_input.h"
#include "worker/data/formats/criteo_dataset.h"

namespace weir {
namespace {

std::vector<float> Sample(const Dataset& data, int64_t index) {
  std::vector<float> sample(static_cast<size_t>(data.feature_elements()) + 1);
  WEIR_CHECK(data.ReadSample(index, sample.data() + 1, sample.data()).ok());
  return sample;
}

using Read = absl::StatusOr<std::unique_ptr<Dataset>>;

void CheckSame(const Read& one, const Read& other) {
  WEIR_CHECK(one.status() == other.status());
  if (one.ok()) {
    WEIR_CHECK((*one)->size() == (*other)->size());
    for (int64_t i = 0; i < (*one)->size(); ++i) {
      WEIR_CHECK(Sample(**one, i) == Sample(**other, i));
    }
  }
}

void Compare(CriteoDataset::Options options, bool packed) {
  options.threads = 1;
  const Read whole = CriteoDataset::Create(options);
  options.piece_bytes = 64;
  const Read one_thread = CriteoDataset::Create(options);
  options.threads = 2;
  const Read two_threads = CriteoDataset::Create(options);
  CheckDataset(whole);
  CheckDataset(two_threads);
  CheckSame(one_thread, two_threads);
  if (!packed) {
    CheckSame(whole, two_threads);
  }
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const file = new weir::DataFile();
  weir::FuzzInput input(data, size);
  weir::CriteoDataset::Options options;
  options.path = file->path();
  options.field_path = "data.train.criteo";
  options.piece_bytes = 1 << 16;
  options.max_bad_lines = input.Below(4);
  options.hash_buckets = input.Below(256);
  options.max_rows = input.Below(256);
  const auto text = input.Rest();
  file->Put(text);
  const bool packed = absl::StartsWith(text, "\x1f\x8b") ||
                      absl::StartsWith(text, "\x28\xb5\x2f\xfd");
  weir::Compare(options, packed);
  return 0;
}
