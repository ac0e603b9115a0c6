#include "worker/data/input/input_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/exhausted.h"
#include "common/base/memory_limit.h"
#include "common/base/status.h"
#include "worker/data/input/input_stream.h"

namespace weir {

namespace {

constexpr int64_t kSmallFileBytes = int64_t{1} << 20;

absl::StatusOr<std::string> ReadAll(InputStream* stream) {
  constexpr size_t kStepBytes = size_t{64} << 10;
  std::string text;
  // One byte more than the file has: a plain file is read whole in the first
  // step, and the missing byte shows its end.
  size_t step = static_cast<size_t>(stream->file_bytes()) + 1;
  while (true) {
    const size_t old_size = text.size();
    text.resize(old_size + step);
    WEIR_ASSIGN_OR_RETURN(const size_t bytes,
                          stream->Read(text.data() + old_size, step));
    text.resize(old_size + bytes);
    if (bytes < step) {
      return text;
    }
    // How much a packed file holds is not known. Growing by halves keeps what
    // resize copies linear in the size.
    step = std::max(kStepBytes, text.size() / 2);
  }
}

}  // namespace

absl::StatusOr<std::string> ReadInputFile(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<InputStream> stream,
                        InputStream::Open(path));
  // A file may be longer than the memory, without a byte on the disk. To look
  // for the limit takes longer than to read a small one.
  if (stream->file_bytes() > kSmallFileBytes) {
    const int64_t most = MemoryLimitBytes();
    if (stream->file_bytes() > most) {
      return absl::ResourceExhaustedError(absl::StrCat(
          path, ": its ", stream->file_bytes(),
          " bytes are more than the memory of this process, ", most));
    }
  }
  absl::StatusOr<std::string> text = "";
  const absl::Status fits = OrExhausted([&] {
    text = ReadAll(stream.get());
    return absl::OkStatus();
  });
  WEIR_RETURN_IF_ERROR(Annotate(fits, path));
  return text;
}

bool ParseFinite(absl::string_view text, double* value) {
  // from_chars does not know '+'. Without the second test "+-1" would pass.
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') {
    text.remove_prefix(1);
  }
  double parsed = 0.0;
  const char* const end = text.data() + text.size();
  const std::from_chars_result result =
      std::from_chars(text.data(), end, parsed);
  if (result.ec != std::errc() || result.ptr != end || !std::isfinite(parsed)) {
    return false;
  }
  *value = parsed;
  return true;
}

bool ParseFinite(absl::string_view text, float* value) {
  double parsed = 0.0;
  if (!ParseFinite(text, &parsed) ||
      std::abs(parsed) > std::numeric_limits<float>::max()) {
    return false;
  }
  *value = static_cast<float>(parsed);
  return true;
}

std::string QuoteInput(absl::string_view text) {
  constexpr size_t kShownMax = 32;
  std::string shown = absl::CHexEscape(text.substr(0, kShownMax));
  if (text.size() > kShownMax) {
    shown += "...";
  }
  return absl::StrCat("'", shown, "'");
}

absl::Status LineError(const std::string& path, int64_t line,
                       absl::string_view message) {
  return Invalid(path, ":", line, ": ", message);
}

}  // namespace weir
