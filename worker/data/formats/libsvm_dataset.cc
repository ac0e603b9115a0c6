#include "worker/data/formats/libsvm_dataset.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "worker/data/input/input_file.h"

namespace weir {
namespace {

// Cuts the first word off *rest; empty at the end.
absl::string_view NextWord(absl::string_view* rest) {
  *rest = absl::StripLeadingAsciiWhitespace(*rest);
  size_t length = 0;
  while (length < rest->size() && !absl::ascii_isspace((*rest)[length])) {
    ++length;
  }
  const absl::string_view word = rest->substr(0, length);
  rest->remove_prefix(length);
  return word;
}

}  // namespace

// Fills a data set with indices as they are in the file.
class LibsvmDataset::Parser {
 public:
  Parser(const LibsvmSource& source, LibsvmDataset* dataset)
      : source_(source), dataset_(dataset) {}

  absl::Status Parse(absl::string_view text) {
    dataset_->row_begin_.push_back(0);
    for (line_ = 1; !text.empty(); ++line_) {
      const size_t end = std::min(text.find('\n'), text.size());
      WEIR_RETURN_IF_ERROR(ParseLine(text.substr(0, end)));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (dataset_->labels_.empty()) {
      return Invalid(source_.path(), ": has no rows");
    }
    return SubtractBase();
  }

 private:
  absl::Status Error(absl::string_view message) const {
    return LineError(source_.path(), line_, message);
  }

  absl::Status ParseLine(absl::string_view line) {
    absl::string_view rest = line.substr(0, line.find('#'));
    absl::string_view word = NextWord(&rest);
    if (word.empty()) {
      return absl::OkStatus();
    }
    float label = 0.0f;
    if (!ParseFinite(word, &label)) {
      return Error(absl::StrCat("the label ", QuoteInput(word),
                                " is not a finite number"));
    }
    dataset_->labels_.push_back(label);
    word = NextWord(&rest);
    if (absl::StartsWith(word, "qid:")) {  // I1
      word = NextWord(&rest);
    }
    int64_t last_index = -1;
    for (; !word.empty(); word = NextWord(&rest)) {
      WEIR_RETURN_IF_ERROR(ParseEntry(word, &last_index));
    }
    dataset_->row_begin_.push_back(std::ssize(dataset_->entries_));
    return absl::OkStatus();
  }

  absl::Status ParseEntry(absl::string_view word, int64_t* last_index) {
    Entry entry;
    const char* const end = word.data() + word.size();
    const std::from_chars_result index =
        std::from_chars(word.data(), end, entry.index);
    if (index.ec != std::errc() || index.ptr == end || *index.ptr != ':') {
      return Error(
          absl::StrCat("expected index:value, got ", QuoteInput(word)));
    }
    if (!ParseFinite(word.substr(index.ptr + 1 - word.data()), &entry.value)) {
      return Error(absl::StrCat("expected a finite number behind ':', got ",
                                QuoteInput(word)));
    }
    // I1: an index twice would have the later value silently win.
    if (entry.index <= *last_index) {
      return Error(absl::StrCat("index ", entry.index, " comes after ",
                                *last_index, ", indices must ascend"));
    }
    if (entry.index == 0) {
      if (source_.base() == LibsvmSource::ONE) {
        return Error("index 0, but base is ONE");
      }
      if (zero_line_ == 0) {
        zero_line_ = line_;
      }
    }
    if (entry.index > max_index_ || max_line_ == 0) {
      max_index_ = entry.index;
      max_line_ = line_;
    }
    *last_index = entry.index;
    dataset_->entries_.push_back(entry);
    return absl::OkStatus();
  }

  // I3. Only now, since the one index 0 may be in the last line.
  absl::Status SubtractBase() {
    const bool zero = source_.base() == LibsvmSource::ZERO || zero_line_ > 0;
    // One-based indices end with feature_count, zero-based ones one before it.
    // Without any entry max_index_ is 0, which needs no feature.
    int64_t needed = max_index_;
    if (zero && max_line_ > 0) {
      ++needed;
    }
    if (needed > source_.feature_count()) {
      std::string why;
      if (zero && source_.base() == LibsvmSource::AUTO) {
        why = absl::StrCat(", zero-based as line ", zero_line_,
                           " has an index 0");
      }
      return LineError(
          source_.path(), max_line_,
          absl::StrCat("index ", max_index_, " needs feature_count ", needed,
                       " or more, it is ", source_.feature_count(), why));
    }
    if (!zero) {
      for (Entry& entry : dataset_->entries_) {
        --entry.index;
      }
    }
    return absl::OkStatus();
  }

  const LibsvmSource& source_;
  LibsvmDataset* const dataset_;
  int64_t line_ = 0;
  int64_t zero_line_ = 0;  // first line with an index 0
  int64_t max_index_ = 0;
  int64_t max_line_ = 0;  // first line with it; 0: no entry at all
};

absl::StatusOr<std::unique_ptr<Dataset>> LibsvmDataset::Create(
    const LibsvmSource& source, const std::string& field_path) {
  const std::string field = field_path + ".path";
  const absl::StatusOr<std::string> text = ReadInputFile(source.path());
  if (!text.ok()) {
    return Annotate(text.status(), field);
  }
  auto dataset = std::unique_ptr<LibsvmDataset>(new LibsvmDataset);
  WEIR_RETURN_IF_ERROR(
      Annotate(Parser(source, dataset.get()).Parse(*text), field));
  std::vector<float>& labels = dataset->labels_;
  // I2: only if a -1 occurs; labels that are all 1 may be counts.
  const bool signs =
      std::all_of(labels.begin(), labels.end(),
                  [](float l) { return l == -1.0f || l == 1.0f; }) &&
      std::count(labels.begin(), labels.end(), -1.0f) > 0;
  if (signs) {
    std::replace(labels.begin(), labels.end(), -1.0f, 0.0f);
  }
  dataset->SetShape(std::ssize(labels), {source.feature_count()});
  return std::unique_ptr<Dataset>(std::move(dataset));
}

absl::Status LibsvmDataset::ReadSample(int64_t index, float* features,
                                       float* label) const {
  std::fill_n(features, feature_elements(), 0.0f);
  for (int64_t i = row_begin_[index]; i < row_begin_[index + 1]; ++i) {
    features[entries_[i].index] = entries_[i].value;
  }
  *label = labels_[index];
  return absl::OkStatus();
}

}  // namespace weir
