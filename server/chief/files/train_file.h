// The file train.jsonl: read at the start, cut at a restore, appended to.
//
// Each line goes out with one write. What cannot be written is never an error
// of the job: it is kept, up to 64 MiB, and goes out with a later call.
// Threads: compatible.
#ifndef SERVER_CHIEF_FILES_TRAIN_FILE_H_
#define SERVER_CHIEF_FILES_TRAIN_FILE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/files.h"
#include "server/chief/state/train_log.h"

namespace weir {

class TrainFile {
 public:
  // `files` is borrowed.
  TrainFile(Files* files, std::string path)
      : files_(files), path_(std::move(path)) {}

  // The lines that are there; none without a file.
  absl::StatusOr<std::vector<TrainLine>> Read();
  // Drops the lines beyond `step`, and what is no whole line.
  absl::Status Cut(uint64_t step);
  // An error once for all lines in a row that cannot be written.
  absl::Status Append(const std::string& line);
  // Writes the lines that are kept.
  absl::Status Flush();

 private:
  absl::Status Write();
  absl::StatusOr<std::string> Text();

  Files* const files_;
  const std::string path_;
  std::unique_ptr<FileWriter> writer_;
  std::string kept_;                   // not written yet
  bool failing_ = false;               // a piece of a line may be in the file
  std::optional<size_t> whole_bytes_;  // where that piece begins, once known
};

}  // namespace weir

#endif  // SERVER_CHIEF_FILES_TRAIN_FILE_H_
