// The file train.jsonl: read at the start, cut at a restore, appended to.
//
// Each line goes out with one write. What cannot be written is an error of the
// call, never of the job.
// Threads: compatible.
#ifndef SERVER_CHIEF_TRAIN_FILE_H_
#define SERVER_CHIEF_TRAIN_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files.h"
#include "server/chief/train_log.h"

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
  absl::Status Append(const std::string& line);

 private:
  absl::StatusOr<std::string> Text();

  Files* const files_;
  const std::string path_;
  std::unique_ptr<FileWriter> writer_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_TRAIN_FILE_H_
