#include "server/chief/train_file.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status.h"

namespace weir {

absl::StatusOr<std::string> TrainFile::Text() {
  absl::StatusOr<std::string> text = files_->ReadAll(path_);
  return absl::IsNotFound(text.status()) ? std::string() : text;
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
  writer_.reset();
  WEIR_ASSIGN_OR_RETURN(const std::string text, Text());
  std::string kept;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    const auto parsed = ParseTrainLine(line);
    if (parsed.has_value() && parsed->step <= step) {
      absl::StrAppend(&kept, line, "\n");
    }
  }
  return kept == text ? absl::OkStatus() : files_->WriteAtomically(path_, kept);
}

absl::Status TrainFile::Append(const std::string& line) {
  if (writer_ == nullptr) {
    WEIR_ASSIGN_OR_RETURN(writer_, files_->OpenAppend(path_));
  }
  const std::string text = absl::StrCat(line, "\n");
  return writer_->Append(text.data(), text.size());
}

}  // namespace weir
