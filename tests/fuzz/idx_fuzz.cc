// Images and labels in IDX files, with headers that say anything.
#include <cstdint>
#include <string>

#include "tests/fuzz/data_file.h"
#include "tests/fuzz/dataset_reading.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const images = new weir::DataFile();
  static auto* const labels = new weir::DataFile();
  weir::FuzzInput input(data, size);
  labels->Put(input.Text());
  images->Put(input.Rest());
  weir::Source source;
  source.mutable_idx()->set_images(images->path());
  source.mutable_idx()->set_labels(labels->path());
  weir::ReadDataset(source);
  return 0;
}
