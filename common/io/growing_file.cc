#include "common/io/growing_file.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/io/files.h"

namespace weir {
namespace {

constexpr char kPart[] = ".part-";

}  // namespace

absl::StatusOr<std::vector<std::string>> GrowingFile::Parts() {
  const std::string directory = DirectoryOf(name_);
  const auto names = store_->List(directory);
  std::vector<std::string> parts;
  if (absl::IsNotFound(names.status())) {
    return parts;
  }
  WEIR_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    const std::string path = JoinPath(directory, name);
    if (absl::StartsWith(path, absl::StrCat(name_, kPart))) {
      parts.push_back(path);
    }
  }
  std::sort(parts.begin(), parts.end());
  return parts;
}

absl::StatusOr<std::string> GrowingFile::ReadAll() {
  WEIR_ASSIGN_OR_RETURN(const std::vector<std::string> parts, Parts());
  absl::StatusOr<std::string> text = store_->ReadAll(name_);
  if (!text.ok() && !(absl::IsNotFound(text.status()) && !parts.empty())) {
    return text;
  }
  const std::string whole = text.value_or("");
  std::string joined = whole;
  for (const std::string& part : parts) {
    const absl::StatusOr<std::string> more = store_->ReadAll(part);
    if (absl::IsNotFound(more.status())) {
      continue;  // a Replace has just removed it
    }
    WEIR_RETURN_IF_ERROR(more.status());
    // A Replace that was cut short has left a part that the whole has, too.
    if (!absl::StrContains(whole, *more)) {
      absl::StrAppend(&joined, *more);
    }
  }
  return joined;
}

absl::Status GrowingFile::Append(absl::string_view text) {
  if (next_part_ == 0) {
    const absl::Status status = store_->Append(name_, text);
    if (!absl::IsUnimplemented(status)) {
      return status;
    }
    WEIR_ASSIGN_OR_RETURN(const std::vector<std::string> parts, Parts());
    uint64_t last = 0;
    if (!parts.empty() &&
        !absl::SimpleAtoi(parts.back().substr(name_.size() + sizeof(kPart) - 1),
                          &last)) {
      return Invalid("'", parts.back(), "' is no part of '", name_, "'");
    }
    next_part_ = last + 1;
  }
  const size_t before = pending_.size();
  absl::StrAppend(&pending_, text);
  const int64_t every_ns = std::chrono::nanoseconds(kPartEvery).count();
  if (flushed_ns_.has_value() && clock_->NowNs() < *flushed_ns_ + every_ns) {
    return absl::OkStatus();
  }
  const absl::Status status = Flush();
  if (!status.ok()) {
    pending_.resize(before);
  }
  return status;
}

absl::Status GrowingFile::Flush() {
  while (!pending_.empty()) {
    // Another process may append, too, and take the number.
    const absl::Status status = store_->WriteNew(
        absl::StrCat(name_, kPart, absl::StrFormat("%08d", next_part_)),
        pending_);
    if (status.ok()) {
      pending_.clear();
      flushed_ns_ = clock_->NowNs();
    } else if (!absl::IsAlreadyExists(status)) {
      return status;
    }
    ++next_part_;
  }
  return absl::OkStatus();
}

absl::Status GrowingFile::Replace(absl::string_view text) {
  WEIR_ASSIGN_OR_RETURN(const std::vector<std::string> parts, Parts());
  WEIR_RETURN_IF_ERROR(store_->WriteAtomically(name_, text));
  pending_.clear();
  for (const std::string& part : parts) {
    const absl::Status removed = store_->Remove(part);
    if (!absl::IsNotFound(removed)) {
      WEIR_RETURN_IF_ERROR(removed);
    }
  }
  return absl::OkStatus();
}

}  // namespace weir
