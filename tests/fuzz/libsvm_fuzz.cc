// Sparse rows of text in LibSVM's form.
#include <cstdint>
#include <string>

#include "tests/fuzz/data_file.h"
#include "tests/fuzz/dataset_reading.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const file = new weir::DataFile();
  weir::FuzzInput input(data, size);
  weir::Source source;
  weir::LibsvmSource* const libsvm = source.mutable_libsvm();
  libsvm->set_path(file->path());
  libsvm->set_feature_count(input.Below(256) + 1);
  libsvm->set_base(static_cast<weir::LibsvmSource::Base>(input.Below(3)));
  file->Put(input.Rest());
  weir::ReadDataset(source);
  return 0;
}
