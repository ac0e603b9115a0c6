#include "server/chief/files/train_file.h"

#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace weir {
namespace {

// Of lines that cannot be written. Later ones are dropped then: the chief must
// not run out of memory because a disk is full.
constexpr size_t kKeptBytesMax = size_t{16} << 20;

// Lines that are evenly far apart, however many there are.
class Thinned {
 public:
  void Add(const std::string& line) {
    if (count_++ % every_ != 0) {
      return;
    }
    if (lines_.size() == TrainFile::kOlderLines) {
      for (size_t i = 0; i < TrainFile::kOlderLines / 2; ++i) {
        lines_[i] = lines_[2 * i];
      }
      lines_.resize(TrainFile::kOlderLines / 2);
      every_ *= 2;
    }
    if (const auto parsed = ParseTrainLine(line); parsed.has_value()) {
      lines_.push_back(*parsed);
    }
  }
  std::vector<TrainLine> Take() { return std::move(lines_); }

 private:
  std::vector<TrainLine> lines_;
  size_t every_ = 1;
  size_t count_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<TrainLine>> TrainFile::Read() {
  // Parsing takes longer than reading, and few of the older lines are needed.
  std::deque<std::string> newest;
  Thinned older;
  WEIR_RETURN_IF_ERROR(file_.ReadLines([&](absl::string_view line) {
    newest.emplace_back(line);
    if (newest.size() > kNewestLines) {
      older.Add(newest.front());
      newest.pop_front();
    }
  }));
  std::vector<TrainLine> lines = older.Take();
  for (const std::string& line : newest) {
    if (const auto parsed = ParseTrainLine(line); parsed.has_value()) {
      lines.push_back(*parsed);
    }
  }
  return lines;
}

absl::Status TrainFile::Cut(uint64_t step) {
  kept_.clear();  // of steps that the restore took back
  failing_ = false;
  return file_.Cut([step](absl::string_view line) {
    const auto parsed = ParseTrainLine(std::string(line));
    return parsed.has_value() && parsed->step <= step;
  });
}

absl::Status TrainFile::Append(const std::string& lines) {
  if (kept_.size() < kKeptBytesMax) {
    absl::StrAppend(&kept_, lines, "\n");
  }
  const bool failed_before = failing_;
  const absl::Status status = NoteWritten(file_.Append(kept_));
  if (failed_before) {
    return absl::OkStatus();  // it was said when it began
  }
  return status;
}

absl::Status TrainFile::Flush() {
  if (kept_.empty()) {
    return file_.Flush();
  }
  return NoteWritten(file_.AppendNow(kept_));
}

absl::Status TrainFile::NoteWritten(const absl::Status& status) {
  failing_ = !status.ok();
  if (failing_) {
    return Annotate(status, "lines of the loss curve wait in memory");
  }
  kept_.clear();
  return absl::OkStatus();
}

}  // namespace weir
