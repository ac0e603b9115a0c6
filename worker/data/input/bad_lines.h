// Counts the lines of a file that a reader leaves out because they are bad.
//
// Threads: compatible.
// Errors: INVALID_ARGUMENT  there is one bad line more than allowed; the
//                           message names it and what is wrong with it.
#ifndef WORKER_DATA_INPUT_BAD_LINES_H_
#define WORKER_DATA_INPUT_BAD_LINES_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/logging.h"
#include "worker/data/input/input_file.h"

namespace weir {

class BadLines {
 public:
  BadLines(std::string path, uint64_t count_max)
      : path_(std::move(path)), count_max_(count_max) {}

  uint64_t count() const { return count_; }

  // Counts a bad line. OK means that the reader may leave it out.
  absl::Status Add(int64_t line, absl::string_view what) {
    if (count_++ == 0) {
      first_ = absl::StrCat(path_, ":", line, ": ", what);
    }
    if (count_ <= count_max_) {
      return absl::OkStatus();
    }
    return LineError(path_, line,
                     count_max_ == 0
                         ? std::string(what)
                         : absl::StrCat(what, "; it is one bad line more than ",
                                        "max_bad_lines: ", count_max_));
  }

  // Warns once, at the end of the file, if any was left out.
  void Report() const {
    if (count_ > 0) {
      LOG_WARN("{} bad lines of {} were left out; the first: {}", count_, path_,
               first_);
    }
  }

 private:
  const std::string path_;
  const uint64_t count_max_;
  uint64_t count_ = 0;
  std::string first_;
};

}  // namespace weir

#endif  // WORKER_DATA_INPUT_BAD_LINES_H_
