// Reads the first and the last samples of a data set, and holds what
// worker/data/formats/dataset.h promises of them.
#ifndef TESTS_FUZZ_DATASET_READING_H_
#define TESTS_FUZZ_DATASET_READING_H_

#include <memory>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/data/formats/dataset.h"

namespace weir {

// Reads of what was opened. An error must be one of those that the contract
// names.
void CheckDataset(const absl::StatusOr<std::unique_ptr<Dataset>>& data);

// Opens the data set that `source` names, and checks it.
void ReadDataset(const Source& source);

}  // namespace weir

#endif  // TESTS_FUZZ_DATASET_READING_H_
