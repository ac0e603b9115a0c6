#include "server/chief/files/train_file.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"

namespace weir {
namespace {

// Of lines that cannot be written. Later ones are dropped then: the chief must
// not run out of memory because a disk is full.
constexpr size_t kKeptBytesMax = size_t{64} << 20;

}  // namespace

absl::StatusOr<std::string> TrainFile::Text() {
  absl::StatusOr<std::string> text = file_.ReadAll();
  if (absl::IsNotFound(text.status())) {
    return std::string();  // a job that has no line yet
  }
  return text;
}

absl::StatusOr<std::vector<TrainLine>> TrainFile::Read() {
  WEIR_ASSIGN_OR_RETURN(const std::string text, Text());
  std::vector<TrainLine> lines;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    if (const auto parsed = ParseTrainLine(line); parsed.has_value()) {
      lines.push_back(*parsed);
    }
  }
  return lines;
}

absl::Status TrainFile::Cut(uint64_t step) {
  kept_.clear();  // of steps that the restore took back
  failing_ = false;
  whole_bytes_.reset();
  WEIR_ASSIGN_OR_RETURN(const std::string text, Text());
  std::string kept;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    const auto parsed = ParseTrainLine(line);
    if (parsed.has_value() && parsed->step <= step) {
      absl::StrAppend(&kept, line, "\n");
    }
  }
  if (kept == text) {
    return absl::OkStatus();
  }
  return file_.Replace(kept);
}

absl::Status TrainFile::Append(const std::string& lines) {
  if (kept_.size() < kKeptBytesMax) {
    absl::StrAppend(&kept_, lines, "\n");
  }
  const bool failed_before = failing_;
  const absl::Status status = WriteKept();
  if (failed_before) {
    return absl::OkStatus();  // it was said when it began
  }
  return status;
}

absl::Status TrainFile::Flush() {
  WEIR_RETURN_IF_ERROR(WriteKept());
  return file_.Flush();
}

absl::Status TrainFile::WriteKept() {
  if (kept_.empty()) {
    return absl::OkStatus();
  }
  const absl::Status status = Write();
  failing_ = !status.ok();
  if (failing_) {
    return Annotate(status, "lines of the loss curve wait in memory");
  }
  kept_.clear();
  whole_bytes_.reset();
  return absl::OkStatus();
}

absl::Status TrainFile::Write() {
  // After a failure the file may end in a piece of a line. Appending to that
  // would spoil a whole one, so the file is rewritten without it.
  if (failing_) {
    WEIR_ASSIGN_OR_RETURN(std::string text, Text());
    if (!whole_bytes_.has_value()) {
      whole_bytes_ = text.rfind('\n') + 1;  // npos + 1 is 0
    }
    // A rewrite may have failed after its rename: then the file has the kept
    // lines already, beyond what was whole.
    text.resize(std::min(text.size(), *whole_bytes_));
    return file_.Replace(absl::StrCat(text, kept_));
  }
  return file_.Append(kept_);
}

}  // namespace weir
