// A text that grows at its end, in any store: train.jsonl, eval.jsonl.
//
// Where objects can grow it is one file. An object store keeps what is appended
// in parts beside it, "train.jsonl.part-00000001" and so on, and whoever reads
// joins them. A part has what was appended in kPartEvery; a process that dies
// loses as much. Replace puts all in one object again.
//
// Threads: compatible. Several processes may append, each whole lines.
// Errors: those of ObjectStore.
#ifndef COMMON_IO_GROWING_FILE_H_
#define COMMON_IO_GROWING_FILE_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/io/object_store.h"

namespace weir {

class GrowingFile {
 public:
  static constexpr std::chrono::seconds kPartEvery{10};

  // `store` and `clock` are borrowed.
  GrowingFile(ObjectStore* store, std::string name,
              Clock* clock = Clock::Real())
      : store_(store), name_(std::move(name)), clock_(clock) {}

  // The whole text. NOT_FOUND if nothing was ever written.
  absl::StatusOr<std::string> ReadAll();
  // After an error the text was not taken.
  absl::Status Append(absl::string_view text);
  // Writes what Append has kept for the next part.
  absl::Status Flush();
  absl::Status Replace(absl::string_view text);

 private:
  // The names of the parts, in order. None where objects can grow.
  absl::StatusOr<std::vector<std::string>> Parts();

  ObjectStore* const store_;
  const std::string name_;
  Clock* const clock_;
  uint64_t next_part_ = 0;  // 0: not known yet
  std::string pending_;     // of the next part
  std::optional<int64_t> flushed_ns_;
};

}  // namespace weir

#endif  // COMMON_IO_GROWING_FILE_H_
