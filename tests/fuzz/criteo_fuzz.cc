// Criteo's click logs: several threads that parse small pieces read the same
// rows, or give the same error, as one thread with the whole file.
#include <cstdint>
#include <string>
#include <vector>

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

void Compare(CriteoDataset::Options options) {
  options.threads = 1;
  const auto whole = CriteoDataset::Create(options);
  options.threads = 2;
  options.piece_bytes = 64;
  const auto pieces = CriteoDataset::Create(options);
  WEIR_CHECK(whole.status() == pieces.status());
  CheckDataset(whole);
  CheckDataset(pieces);
  if (whole.ok()) {
    WEIR_CHECK((*whole)->size() == (*pieces)->size());
    for (int64_t i = 0; i < (*whole)->size(); ++i) {
      WEIR_CHECK(Sample(**whole, i) == Sample(**pieces, i));
    }
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
  file->Put(input.Rest());
  weir::Compare(options);
  return 0;
}
