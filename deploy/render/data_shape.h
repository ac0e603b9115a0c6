// What a job file says of its data without opening it.
//
// Place: job_memory.cc and `weir config check` build the model's graph with it.
// Where the files are on this machine, their reader says it instead.
//
// Threads: safe.
// Errors: what CreateDataset says of data that is wrong.
#ifndef DEPLOY_RENDER_DATA_SHAPE_H_
#define DEPLOY_RENDER_DATA_SHAPE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"

namespace weir {

struct DataShape {
  // Why the rest is not known; else "".
  std::string unknown;
  std::vector<int64_t> features;      // of a sample, without the batch
  std::vector<std::string> id_names;  // of the categorical features
  // How many ids each of id_names can have; 0: as many as 64 bits hold.
  std::vector<double> ids;
  // Whether an id means the same in all of them, so that they have no more ids
  // together than the one with the most.
  bool ids_are_shared = false;
  double bag_size = 1.0;  // ids of one feature of a sample, as far as is known
  double bytes = 0.0;     // that a task keeps of the data
  std::string bytes_unknown;  // why that is not known; else ""
};

// Whether the source reads files.
bool ReadsFiles(const Source& source);

// `local_data`: where the data is on this machine, or "". `field_path` is the
// place of `source` in the job file: "data.train".
absl::StatusOr<DataShape> ShapeOfData(const Source& source,
                                      const std::string& local_data,
                                      uint64_t seed,
                                      const std::string& field_path);

}  // namespace weir

#endif  // DEPLOY_RENDER_DATA_SHAPE_H_
