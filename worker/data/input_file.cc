#include "worker/data/input_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/status.h"
#include "zlib.h"

namespace weir {
namespace {

constexpr size_t kInflateStepBytes = size_t{1} << 20;

// Feeds and drains `stream` until its end or an error; appends to *out.
absl::Status Inflate(const std::string& path, const std::string& packed,
                     z_stream* stream, std::string* out) {
  size_t fed = 0;
  while (true) {
    if (stream->avail_in == 0 && fed < packed.size()) {
      const size_t piece = std::min<size_t>(packed.size() - fed, 1u << 30);
      // zlib does not write to its input; its type is older than const.
      stream->next_in =
          reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + fed));
      stream->avail_in = static_cast<uInt>(piece);
      fed += piece;
    }
    const size_t old_size = out->size();
    out->resize(old_size + kInflateStepBytes);
    stream->next_out = reinterpret_cast<Bytef*>(out->data() + old_size);
    stream->avail_out = kInflateStepBytes;
    const int code = inflate(stream, Z_NO_FLUSH);
    out->resize(old_size + kInflateStepBytes - stream->avail_out);
    if (code == Z_STREAM_END) {
      if (stream->avail_in == 0 && fed == packed.size()) {
        return absl::OkStatus();
      }
      // Members may follow one another: RFC 1952, section 2.2.
      inflateReset(stream);
      continue;
    }
    if (code == Z_BUF_ERROR && stream->avail_in == 0) {
      return absl::DataLossError(
          absl::StrCat(path, ": the gzip file is truncated after ",
                       packed.size(), " bytes: copy it again"));
    }
    if (code != Z_OK) {
      return absl::DataLossError(
          absl::StrCat(path, ": the gzip file is damaged (",
                       stream->msg == nullptr ? "unknown reason" : stream->msg,
                       "): copy it again"));
    }
  }
}

}  // namespace

absl::StatusOr<std::string> ReadInputFile(const std::string& path) {
  absl::StatusOr<std::string> bytes = Files::Real()->ReadAll(path);
  if (!bytes.ok() || !absl::StartsWith(*bytes, "\x1f\x8b")) {
    return bytes;
  }
  z_stream stream = {};
  // 15: the largest window; + 16: a gzip header, nothing else.
  if (inflateInit2(&stream, 15 + 16) != Z_OK) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": no memory to unpack the gzip file"));
  }
  std::string unpacked;
  const absl::Status status = Inflate(path, *bytes, &stream, &unpacked);
  inflateEnd(&stream);
  WEIR_RETURN_IF_ERROR(status);
  return unpacked;
}

bool ParseFinite(absl::string_view text, float* value) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') {
    text.remove_prefix(1);
  }
  double parsed = 0.0;
  const char* const end = text.data() + text.size();
  const std::from_chars_result result =
      std::from_chars(text.data(), end, parsed);
  // The negation also catches NaN.
  if (result.ec != std::errc() || result.ptr != end ||
      !(std::abs(parsed) <= std::numeric_limits<float>::max())) {
    return false;
  }
  *value = static_cast<float>(parsed);
  return true;
}

std::string QuoteInput(absl::string_view text) {
  constexpr size_t kShownMax = 32;
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kShownMax)),
                      text.size() > kShownMax ? "..." : "", "'");
}

absl::Status LineError(const std::string& path, int64_t line,
                       absl::string_view message) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ":", line, ": ", message));
}

}  // namespace weir
