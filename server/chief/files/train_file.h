// The file train.jsonl: it is read at the start, cut at a restore and appended
// to.
//
// A line is written whole with one call. One that cannot be written is never
// an error of the job: it is kept, up to 16 MiB in all, and a later call writes
// it.
//
// Threads: compatible.
// Errors: those of Files.
#ifndef SERVER_CHIEF_FILES_TRAIN_FILE_H_
#define SERVER_CHIEF_FILES_TRAIN_FILE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/growing_file.h"
#include "server/chief/state/train_log.h"

namespace weir {

class TrainFile {
 public:
  // `files` is borrowed.
  TrainFile(ObjectStore* files, std::string path)
      : file_(files, std::move(path)) {}

  // A restore wants the line before its step, which is a new one; what is older
  // is for the curve on the chief's page alone.
  static constexpr size_t kNewestLines = 10'000;
  static constexpr size_t kOlderLines = 4'000;

  // Returns the lines that are there. A file that does not exist has none. Of a
  // long one these are the newest kNewestLines, and before them at most
  // kOlderLines that are evenly far apart.
  absl::StatusOr<std::vector<TrainLine>> Read();
  // Drops the lines beyond `step`, and every line that cannot be parsed.
  absl::Status Cut(uint64_t step);
  // Appends a line, or several with line breaks between them. Of all lines in a
  // row that cannot be written, only the first one's call returns the error.
  absl::Status Append(const std::string& lines);
  // Writes the lines that are kept.
  absl::Status Flush();

 private:
  // What came of writing `kept_`.
  absl::Status NoteWritten(const absl::Status& status);

  GrowingFile file_;
  std::string kept_;      // not written yet
  bool failing_ = false;  // to write it
};

}  // namespace weir

#endif  // SERVER_CHIEF_FILES_TRAIN_FILE_H_
