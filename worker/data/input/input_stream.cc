#include "worker/data/input/input_stream.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/limits.h"
#include "common/base/status.h"
#include "common/io/object_store.h"
#include "worker/data/input/data_cache.h"
#include "zlib.h"
#include "zstd.h"

namespace weir {
namespace {

constexpr size_t kPackedStepBytes = size_t{64} << 10;
// zlib counts bytes in 32 bits, so one call may unpack at most this much.
constexpr size_t kInflateStepBytes = size_t{1} << 30;

class PlainStream : public InputStream {
 public:
  explicit PlainStream(std::unique_ptr<FileReader> file)
      : InputStream(file->size()), file_(std::move(file)) {}

 private:
  absl::StatusOr<size_t> Unpack(char* data, size_t bytes) override {
    const size_t left = static_cast<size_t>(file_->size() - offset_);
    bytes = std::min(bytes, left);
    WEIR_RETURN_IF_ERROR(file_->ReadAt(offset_, data, bytes));
    offset_ += static_cast<int64_t>(bytes);
    return bytes;
  }

  const std::unique_ptr<FileReader> file_;
  int64_t offset_ = 0;
};

// A packed file in steps.
class PackedFile {
 public:
  PackedFile(std::unique_ptr<FileReader> file, absl::string_view format)
      : file_(std::move(file)), format_(format) {}

  int64_t size() const { return file_->size(); }
  bool AtEnd() const { return offset_ == file_->size(); }

  // The next bytes, valid until the next call; none at the end. First come the
  // last `kept` bytes of the call before.
  absl::StatusOr<absl::string_view> Next(size_t kept = 0) {
    const auto left = static_cast<size_t>(file_->size() - offset_);
    const size_t more = std::min(kPackedStepBytes, left);
    std::copy(step_.end() - static_cast<int64_t>(kept), step_.end(),
              step_.begin());
    step_.resize(kept + more);
    WEIR_RETURN_IF_ERROR(file_->ReadAt(offset_, step_.data() + kept, more));
    offset_ += static_cast<int64_t>(more);
    return step_;
  }

  absl::Status Truncated() const {
    return absl::DataLossError(absl::StrCat(
        file_->path(), ": the ", format_, " file is truncated after ",
        file_->size(), " bytes: copy it again"));
  }
  absl::Status Damaged(const char* why) const {
    return absl::DataLossError(absl::StrCat(
        file_->path(), ": the ", format_, " file is damaged (",
        why == nullptr ? "unknown reason" : why, "): copy it again"));
  }
  absl::Status NoMemory() const {
    return absl::ResourceExhaustedError(absl::StrCat(
        file_->path(), ": no memory to unpack the ", format_, " file"));
  }

 private:
  const std::unique_ptr<FileReader> file_;
  const absl::string_view format_;
  int64_t offset_ = 0;
  std::string step_;
};

class GzipStream : public InputStream {
 public:
  explicit GzipStream(std::unique_ptr<FileReader> file)
      : InputStream(file->size()), packed_(std::move(file), "gzip") {
    // 15: the largest window; + 16: a gzip header, nothing else.
    made_ = inflateInit2(&stream_, 15 + 16) == Z_OK;
  }
  ~GzipStream() override {
    if (made_) {
      inflateEnd(&stream_);
    }
  }

 private:
  absl::StatusOr<size_t> Unpack(char* data, size_t bytes) override {
    if (!made_) {
      return packed_.NoMemory();
    }
    size_t filled = 0;
    while (filled < bytes && !ended_) {
      WEIR_RETURN_IF_ERROR(Feed());
      const size_t asked = std::min(bytes - filled, kInflateStepBytes);
      stream_.next_out = reinterpret_cast<Bytef*>(data + filled);
      stream_.avail_out = static_cast<uInt>(asked);
      const int code = inflate(&stream_, Z_NO_FLUSH);
      filled += asked - stream_.avail_out;
      if (code == Z_STREAM_END) {
        // The end of a member is the end of the file only if nothing follows.
        ended_ = stream_.avail_in == 0 && packed_.AtEnd();
        if (!ended_) {  // members may follow one another: RFC 1952, section 2.2
          inflateReset(&stream_);
        }
      } else if (code == Z_BUF_ERROR && stream_.avail_in == 0) {
        // It could not go on, and Feed had nothing more to give.
        return packed_.Truncated();
      } else if (code != Z_OK) {
        return packed_.Damaged(stream_.msg);
      }
    }
    return filled;
  }

  absl::Status Feed() {
    if (stream_.avail_in > 0 || packed_.AtEnd()) {
      return absl::OkStatus();
    }
    WEIR_ASSIGN_OR_RETURN(const absl::string_view step, packed_.Next());
    // zlib does not write to its input; its type is older than const.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(step.data()));
    stream_.avail_in = static_cast<uInt>(step.size());
    return absl::OkStatus();
  }

  PackedFile packed_;
  z_stream stream_ = {};
  bool made_ = false;
  bool ended_ = false;
};

// A frame says itself how much memory unpacking it takes. A file may ask for
// the library's own bound, or for this many times its size: real data packs ten
// times, and `zstd --long` is of use for large files only.
constexpr int kWindowLogUsual = 27;
constexpr int kWindowLogMax = 31;  // `zstd --long=31`
constexpr int kWindowLogOverFile = 10;

// The longest header of a frame: RFC 8878, section 3.1.1.1.
constexpr size_t kFrameHeaderBytesMax = 18;

int WindowLogFor(int64_t file_bytes) {
  const int of_file = std::bit_width(static_cast<uint64_t>(file_bytes));
  return std::clamp(of_file + kWindowLogOverFile, kWindowLogUsual,
                    kWindowLogMax);
}

class ZstdStream : public InputStream {
 public:
  explicit ZstdStream(std::unique_ptr<FileReader> file)
      : InputStream(file->size()),
        packed_(std::move(file), "zstd"),
        stream_(ZSTD_createDStream()) {
    if (stream_ != nullptr) {
      ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax,
                             WindowLogFor(file_bytes()));
    }
  }
  ~ZstdStream() override { ZSTD_freeDStream(stream_); }

 private:
  absl::StatusOr<size_t> Unpack(char* data, size_t bytes) override {
    if (stream_ == nullptr) {
      return packed_.NoMemory();
    }
    ZSTD_outBuffer out = {data, bytes, 0};
    while (out.pos < out.size) {
      WEIR_RETURN_IF_ERROR(Feed());
      // At the end of the file the library is still called, with no input: it
      // may hold bytes that did not fit the caller's memory before.
      const bool starved = in_.pos == in_.size;
      if (starved && frame_ended_) {
        break;
      }
      const size_t before = out.pos;
      const size_t code = ZSTD_decompressStream(stream_, &out, &in_);
      if (ZSTD_isError(code)) {
        return packed_.Damaged(ZSTD_getErrorName(code));
      }
      frame_ended_ = code == 0;
      frame_bytes_ += out.pos - before;
      if (frame_ended_ && says_bytes_ != ZSTD_CONTENTSIZE_UNKNOWN &&
          says_bytes_ != frame_bytes_) {
        return packed_.Damaged("a frame has not the size that it says");
      }
      frame_begins_ = frame_ended_;
      if (starved && !frame_ended_ && out.pos == before) {
        return packed_.Truncated();
      }
    }
    return out.pos;
  }

  // At the beginning of a frame its whole header is there.
  absl::Status Feed() {
    const size_t left = in_.size - in_.pos;
    if (left < kFrameHeaderBytesMax && !packed_.AtEnd()) {
      WEIR_ASSIGN_OR_RETURN(const absl::string_view step, packed_.Next(left));
      in_ = {step.data(), step.size(), 0};
    }
    if (frame_begins_ && in_.pos < in_.size) {
      // The library compares it with what there is, but not after an empty last
      // block.
      says_bytes_ = ZSTD_getFrameContentSize(
          static_cast<const char*>(in_.src) + in_.pos, in_.size - in_.pos);
      frame_begins_ = false;
      frame_bytes_ = 0;
    }
    return absl::OkStatus();
  }

  PackedFile packed_;
  ZSTD_DStream* const stream_;  // owned
  ZSTD_inBuffer in_ = {nullptr, 0, 0};
  bool frame_begins_ = true;
  bool frame_ended_ = false;
  uint64_t says_bytes_ = ZSTD_CONTENTSIZE_UNKNOWN;  // of this frame's content
  uint64_t frame_bytes_ = 0;                        // of it, so far
};

}  // namespace

int64_t UnpackedBytesMax(int64_t file_bytes) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (file_bytes > (kMost - kUnpackedBytesMax) / kUnpackedRatioMax) {
    return kMost;
  }
  return file_bytes * kUnpackedRatioMax + kUnpackedBytesMax;
}

absl::StatusOr<size_t> InputStream::Read(char* data, size_t bytes) {
  if (bytes == 0) {
    return 0;
  }
  // One byte more than may come shows that there is more.
  const size_t ask = std::min(bytes - 1, left_) + 1;
  WEIR_ASSIGN_OR_RETURN(const size_t got, Unpack(data, ask));
  if (got > left_) {  // I1
    return Invalid(path_, ": its ", file_bytes_,
                   " packed bytes unpack to far more than data does; if they "
                   "are right, unpack the file beforehand");
  }
  left_ -= got;
  return got;
}

absl::StatusOr<std::unique_ptr<InputStream>> InputStream::Open(
    const std::string& path, int64_t unpacked_max) {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<FileReader> file, OpenData(path));
  // By the first bytes and not by the name: data sets are often renamed.
  std::string begin(std::min<int64_t>(file->size(), 4), '\0');
  WEIR_RETURN_IF_ERROR(file->ReadAt(0, begin.data(), begin.size()));
  if (unpacked_max == 0) {
    unpacked_max = UnpackedBytesMax(file->size());
  }
  std::unique_ptr<InputStream> stream;
  if (absl::StartsWith(begin, "\x1f\x8b")) {
    stream = std::make_unique<GzipStream>(std::move(file));
  } else if (begin == "\x28\xb5\x2f\xfd" || absl::EndsWith(path, ".zst")) {
    stream = std::make_unique<ZstdStream>(std::move(file));
  } else {
    return std::make_unique<PlainStream>(std::move(file));
  }
  stream->path_ = path;
  stream->left_ = static_cast<size_t>(unpacked_max);
  return stream;
}

}  // namespace weir
