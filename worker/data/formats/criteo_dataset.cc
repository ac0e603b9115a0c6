#include "worker/data/formats/criteo_dataset.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/threads/thread.h"
#include "worker/data/input/bad_lines.h"
#include "worker/data/input/feature_hash.h"
#include "worker/data/input/input_file.h"
#include "worker/data/input/input_stream.h"

namespace weir {
namespace {

constexpr int kIntegers = CriteoDataset::kIntegers;
constexpr int kCategories = CriteoDataset::kCategories;
constexpr int kFields = 1 + kIntegers + kCategories;
constexpr int kThreadsMax = 16;
// A longer line means that the file is not text of Criteo's; it bounds how much
// is read in search of a line end.
constexpr size_t kLineBytesMax = size_t{1} << 20;
constexpr uint32_t kLabelBit = uint32_t{1} << kCategories;

// What one piece gives.
struct Piece {
  struct Bad {
    int64_t line = 0;  // of the piece, counted from 0
    int64_t row = 0;   // rows of the piece before it
    std::string what;
  };
  CriteoDataset::Rows rows;
  std::vector<Bad> bad;
  int64_t lines = 0;
};

class LineParser {
 public:
  LineParser(uint64_t hash_buckets, Piece* piece)
      : hash_buckets_(hash_buckets), piece_(piece) {}

  // Parses lines until there are more than `bad_max` bad ones.
  void ParseLines(absl::string_view text, uint64_t bad_max) {
    // Memory for all rows at once: vectors that double would need twice as much
    // for a moment, in every thread.
    auto rows = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
    if (!absl::EndsWith(text, "\n")) {
      ++rows;
    }
    piece_->rows.integers.reserve(rows * kIntegers);
    piece_->rows.ids.reserve(rows * kCategories);
    piece_->rows.presence.reserve(rows);
    // One bad line more than allowed is enough for the error.
    while (!text.empty() && piece_->bad.size() <= bad_max) {
      const size_t end = std::min(text.find('\n'), text.size());
      absl::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (!line.empty() && line.back() == '\r') {
        line.remove_suffix(1);
      }
      std::string what = ParseLine(line);
      if (!what.empty()) {
        piece_->bad.push_back(
            {piece_->lines, piece_->rows.size(), std::move(what)});
      }
      ++piece_->lines;
    }
  }

 private:
  // Adds a row, or returns what is wrong with the line.
  std::string ParseLine(absl::string_view line) {
    // All checks come before the first change, so a bad line leaves no trace.
    std::array<absl::string_view, kFields> fields;
    const auto tabs = std::count(line.begin(), line.end(), '\t');
    if (tabs != kFields - 1) {
      return absl::StrCat(tabs + 1, " fields separated by tabs, not ", kFields);
    }
    for (absl::string_view& field : fields) {
      const size_t end = std::min(line.find('\t'), line.size());
      field = line.substr(0, end);
      line.remove_prefix(std::min(end + 1, line.size()));
    }
    if (fields[0] != "0" && fields[0] != "1") {
      return absl::StrCat("the label ", QuoteInput(fields[0]),
                          " is not 0 or 1");
    }
    std::array<float, kIntegers> integers = {};
    for (int i = 0; i < kIntegers; ++i) {
      if (!ParseInteger(fields[1 + i], &integers[i])) {
        return absl::StrCat("column ", 1 + i, ": ", QuoteInput(fields[1 + i]),
                            " is not an integer");
      }
    }
    CriteoDataset::Rows& rows = piece_->rows;
    rows.integers.insert(rows.integers.end(), integers.begin(), integers.end());
    uint32_t presence = 0;
    if (fields[0] == "1") {
      presence = kLabelBit;
    }
    for (int c = 0; c < kCategories; ++c) {
      const int column = 1 + kIntegers + c;
      const absl::string_view text = fields[column];
      // An empty field has a place, so that row r's ids begin at r times
      // kCategories; its bit says that the 0 there is not an id.
      uint64_t id = 0;
      if (!text.empty()) {
        presence |= uint32_t{1} << c;
        id = BucketOf(FeatureHash(static_cast<uint64_t>(column), text),
                      hash_buckets_);
      }
      rows.ids.push_back(id);
    }
    rows.presence.push_back(presence);
    return "";
  }

  static bool ParseInteger(absl::string_view text, float* value) {
    int64_t number = 0;
    if (!text.empty()) {
      const char* const end = text.data() + text.size();
      const auto result = std::from_chars(text.data(), end, number);
      if (result.ec != std::errc() || result.ptr != end) {
        return false;
      }
    }
    // Some integers of the logs are negative, where log1p may have no value.
    *value = static_cast<float>(
        std::log1p(static_cast<double>(std::max<int64_t>(number, 0))));
    return true;
  }

  const uint64_t hash_buckets_;
  Piece* const piece_;
};

// Reads the file piece by piece and parses the pieces side by side.
//
// Threads: Parse starts them. A thread takes the next piece under the lock and
//   parses it without, so pieces are begun in order and each is finished.
class Reader {
 public:
  Reader(const CriteoDataset::Options& options,
         std::unique_ptr<InputStream> stream)
      : options_(options), stream_(std::move(stream)) {}

  void Parse() {
    int count = options_.threads;
    if (count <= 0) {
      // hardware_concurrency is 0 where it is not known.
      count = std::clamp<int>(static_cast<int>(Thread::hardware_concurrency()),
                              1, kThreadsMax);
    }
    std::vector<Thread> threads;
    // The calling thread is one of them.
    for (int i = 1; i < count; ++i) {
      threads.emplace_back([this] { ParsePieces(); });
    }
    ParsePieces();
    for (Thread& thread : threads) {
      thread.join();
    }
  }

  // Hands over all that Parse made, in the order of the file.
  std::pair<std::deque<Piece>, absl::Status> Take() {
    MutexLock lock(&mutex_);
    return {std::move(pieces_), read_status_};
  }

 private:
  void ParsePieces() {
    std::string text;
    while (Piece* const piece = BeginPiece(&text)) {
      LineParser(options_.hash_buckets, piece)
          .ParseLines(text, options_.max_bad_lines);
      piece->rows.integers.shrink_to_fit();
      piece->rows.ids.shrink_to_fit();
      piece->rows.presence.shrink_to_fit();
      MutexLock lock(&mutex_);
      rows_ += static_cast<uint64_t>(piece->rows.size());
      // I2: all pieces before this one are begun and will be finished, so the
      // file's first error and its first max_rows rows are in what is begun.
      // More than that may be there; Join leaves it out.
      ended_ = ended_ || piece->bad.size() > options_.max_bad_lines ||
               (options_.max_rows > 0 && rows_ >= options_.max_rows);
    }
  }

  // Returns the next piece with its text, or null when no more is to be read.
  Piece* BeginPiece(std::string* text) {
    MutexLock lock(&mutex_);
    if (ended_) {
      return nullptr;
    }
    // Reading under the lock keeps pieces in the order of the file (I1).
    const absl::Status status = ReadText(text);
    if (!status.ok()) {
      read_status_ = status;
      ended_ = true;
      return nullptr;
    }
    if (text->empty()) {
      ended_ = true;
      return nullptr;
    }
    return &pieces_.emplace_back();  // other elements of a deque stay in place
  }

  // Whole lines, at least a piece of them unless the file ends.
  absl::Status ReadText(std::string* text)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    *text = std::exchange(rest_, "");
    const auto step = static_cast<size_t>(options_.piece_bytes);
    while (true) {
      const size_t old_size = text->size();
      text->resize(old_size + step);
      WEIR_ASSIGN_OR_RETURN(const size_t bytes,
                            stream_->Read(text->data() + old_size, step));
      text->resize(old_size + bytes);
      if (bytes < step) {
        return absl::OkStatus();
      }
      // I2: the cut depends on piece_bytes alone, not on who reads. What was
      // there before has no end of a line.
      const size_t end = absl::string_view(*text).substr(old_size).rfind('\n');
      if (end != absl::string_view::npos) {
        rest_ = text->substr(old_size + end + 1);
        text->resize(old_size + end + 1);
        return absl::OkStatus();
      }
      if (text->size() > kLineBytesMax) {
        return Invalid(options_.path, ": a line is longer than ", kLineBytesMax,
                       " bytes: this is no text of Criteo's");
      }
    }
  }

  const CriteoDataset::Options& options_;

  Mutex mutex_;  // protects all below
  const std::unique_ptr<InputStream> stream_ ABSL_PT_GUARDED_BY(mutex_);
  std::string rest_ ABSL_GUARDED_BY(mutex_);  // begins the next piece
  std::deque<Piece> pieces_ ABSL_GUARDED_BY(mutex_);
  absl::Status read_status_ ABSL_GUARDED_BY(mutex_);  // behind the last piece
  uint64_t rows_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// Joins pieces in order, up to max_rows rows, and counts the bad lines between
// them. I2: it sees what one thread would have seen, and nothing behind it: a
// bad line behind the last row that is wanted does not count, nor does a read
// error behind its piece.
absl::Status Join(const CriteoDataset::Options& options,
                  std::deque<Piece> pieces, const absl::Status& behind,
                  std::deque<CriteoDataset::Rows>* joined, int64_t* size) {
  BadLines bad_lines(options.path, options.max_bad_lines);
  constexpr auto kRowsMax = std::numeric_limits<int64_t>::max();
  int64_t rows_max = kRowsMax;
  if (options.max_rows > 0) {
    rows_max = static_cast<int64_t>(
        std::min<uint64_t>(options.max_rows, uint64_t{kRowsMax}));
  }
  int64_t line = 1;
  *size = 0;
  for (Piece& piece : pieces) {
    if (*size >= rows_max) {
      break;
    }
    for (const Piece::Bad& bad : piece.bad) {
      if (*size + bad.row >= rows_max) {
        break;
      }
      WEIR_RETURN_IF_ERROR(bad_lines.Add(line + bad.line, bad.what));
    }
    line += piece.lines;
    piece.rows.begin = *size;
    *size += piece.rows.size();
    if (piece.rows.size() > 0) {
      joined->push_back(std::move(piece.rows));
    }
  }
  if (*size < rows_max) {
    WEIR_RETURN_IF_ERROR(behind);
  }
  *size = std::min(*size, rows_max);
  bad_lines.Report();
  if (*size == 0) {
    return Invalid(options.path, ": has no rows");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> CriteoDataset::Create(
    const Options& options) {
  const std::string field = options.field_path + ".path";
  absl::StatusOr<std::unique_ptr<InputStream>> stream =
      InputStream::Open(options.path);
  if (!stream.ok()) {
    return Annotate(stream.status(), field);
  }
  Reader reader(options, *std::move(stream));
  reader.Parse();
  auto [pieces, behind] = reader.Take();
  auto dataset = std::unique_ptr<CriteoDataset>(new CriteoDataset);
  int64_t size = 0;
  WEIR_RETURN_IF_ERROR(Annotate(
      Join(options, std::move(pieces), behind, &dataset->pieces_, &size),
      field));
  dataset->SetShape(size, {kIntegers});
  std::vector<std::string> names;
  for (int c = 1; c <= kCategories; ++c) {
    names.push_back(absl::StrCat("C", c));
  }
  dataset->set_sparse_features(std::move(names));
  return std::unique_ptr<Dataset>(std::move(dataset));
}

const CriteoDataset::Rows& CriteoDataset::Find(int64_t index,
                                               int64_t* row) const {
  const auto behind = std::upper_bound(
      pieces_.begin(), pieces_.end(), index,
      [](int64_t i, const Rows& rows) { return i < rows.begin; });
  const Rows& rows = *(behind - 1);
  *row = index - rows.begin;
  return rows;
}

absl::Status CriteoDataset::ReadSample(int64_t index, float* features,
                                       float* label) const {
  int64_t row = 0;
  const Rows& rows = Find(index, &row);
  std::copy_n(rows.integers.data() + row * kIntegers, kIntegers, features);
  *label = (rows.presence[row] & kLabelBit) != 0 ? 1.0f : 0.0f;
  return absl::OkStatus();
}

absl::Status CriteoDataset::ReadSparse(int64_t index,
                                       SparseBatch* batch) const {
  int64_t row = 0;
  const Rows& rows = Find(index, &row);
  for (int c = 0; c < kCategories; ++c) {
    SparseFeature& feature = batch->features[c];
    if ((rows.presence[row] & (uint32_t{1} << c)) != 0) {
      feature.ids.push_back(rows.ids[row * kCategories + c]);
    }
    feature.EndBag();
  }
  return absl::OkStatus();
}

}  // namespace weir
