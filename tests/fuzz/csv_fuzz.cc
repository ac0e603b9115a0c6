// CSV files, with columns that are numbers, buckets, words and bags of words.
#include <cstdint>
#include <string>

#include "tests/fuzz/data_file.h"
#include "tests/fuzz/dataset_reading.h"
#include "tests/fuzz/fuzz_input.h"

namespace weir {
namespace {

void AddColumn(FuzzInput* input, CsvSource* csv) {
  CsvColumn* const column = csv->add_column();
  const uint8_t how = input->Byte();
  if ((how & 1) != 0) {
    column->set_index(input->Below(8));
  } else {
    column->set_name(input->Bytes(1));
  }
  if ((how & 2) != 0) {
    NumericColumn* const numeric = column->mutable_numeric();
    numeric->set_log((how & 4) != 0);
    numeric->set_mean(input->Below(256));
    for (int i = 0; i < ((how >> 3) & 3); ++i) {
      numeric->add_boundary(i * input->Below(256));
    }
  } else {
    CategoricalColumn* const words = column->mutable_categorical();
    words->set_integer((how & 4) != 0);
    words->set_value_separator((how & 8) != 0 ? ";" : "");
    words->set_hash_buckets(input->Below(256));
  }
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const file = new weir::DataFile();
  weir::FuzzInput input(data, size);
  weir::Source source;
  weir::CsvSource* const csv = source.mutable_csv();
  csv->set_path(file->path());
  const uint8_t how = input.Byte();
  csv->set_header((how & 1) != 0);
  csv->set_separator((how & 2) != 0 ? "\t" : ",");
  csv->set_max_bad_lines((how >> 2) & 3);
  csv->set_label_column((how >> 4) & 3);
  for (int i = 0; i < how >> 6; ++i) {
    weir::AddColumn(&input, csv);
  }
  file->Put(input.Rest());
  weir::ReadDataset(source);
  return 0;
}
