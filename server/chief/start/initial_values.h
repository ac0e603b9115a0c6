// The initial values that --init_from names: a safetensors file whose tensors
// are found by name.
//
// Place: shard_caller.cc assigns them to shards that are declared and not yet
// in training. The file must have every variable under its name or an alias,
// with its shape, as F32, F16 or BF16, and nothing else.
//
// Threads: safe; shards may be assigned at the same time.
// Errors: INVALID_ARGUMENT  a tensor does not fit; names it and what is wrong.
//         and those of SafetensorsReader and ControlLink.
#ifndef SERVER_CHIEF_START_INITIAL_VALUES_H_
#define SERVER_CHIEF_START_INITIAL_VALUES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/transport/transport.h"
#include "common/io/files.h"
#include "common/io/safetensors.h"
#include "common/job/layout.h"

namespace weir {

class InitialValues {
 public:
  static absl::StatusOr<std::unique_ptr<InitialValues>> Open(
      ObjectStore* files, const std::string& path);

  // Checks the file against the variables of `declaration`, then sends the
  // values of `shard` to `link`.
  absl::Status Assign(const Declaration& declaration, const Sender& sender,
                      int shard, ControlLink* link) const;

 private:
  explicit InitialValues(std::unique_ptr<SafetensorsReader> reader)
      : reader_(std::move(reader)) {}

  // Returns the array of each variable, in the order of the variables.
  absl::StatusOr<std::vector<const SafetensorsArray*>> Match(
      const Layout& layout) const;
  absl::Status ReadRange(const SafetensorsArray& array, int64_t offset,
                         int64_t count, float* out) const;

  const std::unique_ptr<SafetensorsReader> reader_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_START_INITIAL_VALUES_H_
