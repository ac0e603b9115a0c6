#include "common/io/growing_file.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"
#include "common/io/files.h"

namespace weir {
namespace {

constexpr char kPart[] = ".part-";
constexpr size_t kBlockBytes = size_t{1} << 20;

// Makes lines of blocks.
class LineSplitter {
 public:
  explicit LineSplitter(const GrowingFile::Take& take) : take_(take) {}

  void Add(absl::string_view block) {
    while (!block.empty()) {
      const size_t end = block.find('\n');
      const absl::string_view piece = block.substr(0, end);
      line_.append(
          piece.data(),
          std::min(piece.size(), GrowingFile::kLineBytesMax - line_.size()));
      if (end == absl::string_view::npos) {
        return;
      }
      take_(line_);
      line_.clear();
      block.remove_prefix(end + 1);
    }
  }
  void End() {
    if (!line_.empty()) {
      take_(line_);
    }
  }

 private:
  const GrowingFile::Take& take_;
  std::string line_;
};

}  // namespace

// ------------------------------------------------------------------- reading

std::string GrowingFile::PartName(uint64_t number) const {
  return absl::StrCat(name_, kPart, absl::StrFormat("%08d", number));
}

absl::StatusOr<std::vector<std::string>> GrowingFile::Objects() {
  const std::string directory = DirectoryOf(name_);
  const auto names = store_->List(directory);
  std::vector<std::string> objects;
  if (absl::IsNotFound(names.status())) {
    return objects;
  }
  WEIR_RETURN_IF_ERROR(names.status());
  const std::string own = name_.substr(name_.rfind('/') + 1);  // npos + 1 is 0
  for (absl::string_view name : *names) {
    if (name == own || absl::StartsWith(name, own + kPart)) {
      objects.push_back(absl::StrCat(name_, name.substr(own.size())));
    }
  }
  std::sort(objects.begin(), objects.end());
  return objects;
}

absl::StatusOr<int64_t> GrowingFile::ReadObject(const std::string& object,
                                                const Take& take) {
  LineSplitter lines(take);
  // A part is small, and its writer may write it anew meanwhile.
  if (object != name_) {
    WEIR_ASSIGN_OR_RETURN(const std::string part, store_->ReadAll(object));
    lines.Add(part);
    lines.End();
    return static_cast<int64_t>(part.size());
  }
  WEIR_ASSIGN_OR_RETURN(const auto reader, store_->Open(object));
  const int64_t bytes = reader->size();
  std::string block;
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(block.size())) {
    block.resize(std::min(kBlockBytes, static_cast<size_t>(bytes - at)));
    WEIR_RETURN_IF_ERROR(reader->ReadAt(at, block.data(), block.size()));
    lines.Add(block);
  }
  lines.End();
  return bytes;
}

absl::Status GrowingFile::ReadLines(const Take& take) {
  WEIR_ASSIGN_OR_RETURN(const std::vector<std::string> objects, Objects());
  for (const std::string& object : objects) {
    const absl::Status status = ReadObject(object, take).status();
    if (!absl::IsNotFound(status)) {  // a Cut has just removed it
      WEIR_RETURN_IF_ERROR(status);
    }
  }
  return absl::OkStatus();
}

// ------------------------------------------------------------------- writing

absl::Status GrowingFile::Append(absl::string_view lines) {
  if (in_parts_) {
    return AppendToPart(lines, /*now=*/false);
  }
  return AppendToFile(lines);
}

absl::Status GrowingFile::AppendNow(absl::string_view lines) {
  if (in_parts_) {
    return AppendToPart(lines, /*now=*/true);
  }
  return AppendToFile(lines);
}

absl::Status GrowingFile::AppendToFile(absl::string_view lines) {
  if (!end_.has_value()) {
    const absl::Status made = store_->Append(name_, "");
    if (absl::IsUnimplemented(made)) {
      in_parts_ = true;
      return AppendToPart(lines, /*now=*/false);
    }
    WEIR_RETURN_IF_ERROR(made);
  }
  const auto bytes = static_cast<int64_t>(lines.size());
  if (failed_ || !end_.has_value()) {
    WEIR_RETURN_IF_ERROR(FindEnd(&lines));
  }
  failed_ = true;
  WEIR_RETURN_IF_ERROR(store_->Append(name_, lines));
  failed_ = false;
  *end_ += bytes;
  return absl::OkStatus();
}

absl::Status GrowingFile::FindEnd(absl::string_view* lines) {
  const auto reader = store_->Open(name_);
  if (absl::IsNotFound(reader.status())) {
    end_ = 0;
    return absl::OkStatus();
  }
  WEIR_RETURN_IF_ERROR(reader.status());
  const int64_t bytes = (*reader)->size();
  if (failed_ && bytes >= *end_ &&
      bytes - *end_ <= static_cast<int64_t>(lines->size())) {
    std::string there(static_cast<size_t>(bytes - *end_), '\0');
    WEIR_RETURN_IF_ERROR((*reader)->ReadAt(*end_, there.data(), there.size()));
    if (absl::ConsumePrefix(lines, there)) {
      return absl::OkStatus();
    }
  }
  end_ = bytes;
  failed_ = false;
  char last = '\n';
  if (bytes > 0) {
    WEIR_RETURN_IF_ERROR((*reader)->ReadAt(bytes - 1, &last, 1));
  }
  if (last != '\n') {
    end_.reset();  // unless the line's end can be written
    WEIR_RETURN_IF_ERROR(store_->Append(name_, "\n"));
    end_ = bytes + 1;
  }
  return absl::OkStatus();
}

absl::Status GrowingFile::AppendToPart(absl::string_view lines, bool now) {
  const int64_t every_ns = std::chrono::nanoseconds(kPartEvery).count();
  const bool early =
      tried_ns_.has_value() && clock_->NowNs() < *tried_ns_ + every_ns;
  // A try at a store that is away takes longer than lines take to come.
  if (early && !now && !tried_.ok()) {
    return tried_;
  }
  const size_t bytes_before = part_.size();
  const bool unwritten_before = unwritten_;
  absl::StrAppend(&part_, lines);
  unwritten_ = true;
  if (early && !now) {
    return absl::OkStatus();
  }
  const absl::Status status = Flush();
  if (!status.ok()) {
    part_.resize(bytes_before);
    unwritten_ = unwritten_before;
  }
  return status;
}

absl::Status GrowingFile::Flush() {
  if (!unwritten_) {
    return absl::OkStatus();
  }
  tried_ = WritePart();
  tried_ns_ = clock_->NowNs();
  WEIR_RETURN_IF_ERROR(tried_);
  unwritten_ = false;
  if (part_.size() >= kPartBytes) {
    part_.clear();
    is_ours_ = false;
    ++number_;
  }
  return absl::OkStatus();
}

absl::Status GrowingFile::FindNumber(const std::vector<std::string>& objects) {
  uint64_t last = 0;
  if (!objects.empty() && objects.back() != name_ &&
      !absl::SimpleAtoi(objects.back().substr(name_.size() + sizeof(kPart) - 1),
                        &last)) {
    return Invalid("'", objects.back(), "' is no part of '", name_, "'");
  }
  number_ = last + 1;
  return absl::OkStatus();
}

absl::Status GrowingFile::WritePart() {
  if (number_ == 0) {
    WEIR_ASSIGN_OR_RETURN(const std::vector<std::string> objects, Objects());
    WEIR_RETURN_IF_ERROR(FindNumber(objects));
  }
  while (!is_ours_) {
    const std::string name = PartName(number_);
    const absl::Status status = store_->WriteNew(name, part_);
    is_ours_ = status.ok();
    if (!absl::IsAlreadyExists(status)) {
      return status;
    }
    // Another process has the number, unless an answer to us was lost.
    WEIR_ASSIGN_OR_RETURN(const std::string there, store_->ReadAll(name));
    if (!there.empty() && absl::StartsWith(part_, there)) {
      is_ours_ = true;
    } else {
      ++number_;
    }
  }
  return store_->WriteAtomically(PartName(number_), part_);
}

// ------------------------------------------------------------------- cutting

absl::StatusOr<bool> GrowingFile::CutObject(const std::string& object,
                                            const Keep& keep) {
  int64_t kept_bytes = 0;
  WEIR_ASSIGN_OR_RETURN(const int64_t bytes,
                        ReadObject(object, [&](absl::string_view line) {
                          if (keep(line)) {
                            kept_bytes += static_cast<int64_t>(line.size()) + 1;
                          }
                        }));
  if (kept_bytes == bytes) {
    return true;
  }
  if (kept_bytes == 0 && object != name_) {
    WEIR_RETURN_IF_ERROR(store_->Remove(object));
    return false;
  }
  WEIR_ASSIGN_OR_RETURN(const auto writer,
                        store_->BeginWrite(object, kept_bytes));
  absl::Status written;
  std::string block;
  const auto write = [&] {
    if (written.ok()) {
      written = writer->Append(block.data(), block.size());
    }
    block.clear();
  };
  const auto read = ReadObject(object, [&](absl::string_view line) {
    if (keep(line)) {
      absl::StrAppend(&block, line, "\n");
    }
    if (block.size() >= kBlockBytes) {
      write();
    }
  });
  WEIR_RETURN_IF_ERROR(read.status());
  write();
  WEIR_RETURN_IF_ERROR(written);
  WEIR_RETURN_IF_ERROR(writer->Finish());
  return false;
}

absl::Status GrowingFile::Cut(const Keep& keep) {
  end_.reset();
  failed_ = false;
  is_ours_ = false;
  part_.clear();
  unwritten_ = false;
  WEIR_ASSIGN_OR_RETURN(const std::vector<std::string> objects, Objects());
  // No part that is removed gives its number to another: whoever wrote it may
  // still do so.
  WEIR_RETURN_IF_ERROR(FindNumber(objects));
  for (auto object = objects.rbegin(); object != objects.rend(); ++object) {
    WEIR_ASSIGN_OR_RETURN(const bool whole, CutObject(*object, keep));
    if (whole) {
      break;
    }
  }
  return absl::OkStatus();
}

}  // namespace weir
