// Packed files, gzip or zstd by their first bytes, of several members and of
// any damage: read in steps of any size they give the same bytes or an error.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/check.h"
#include "tests/fuzz/data_file.h"
#include "tests/fuzz/fuzz_input.h"
#include "worker/data/input/input_stream.h"

namespace weir {
namespace {

// What is read of a file at most: a packed one may hold any number of bytes.
constexpr size_t kBytesMax = 1 << 16;

absl::StatusOr<std::string> Read(const std::string& path, size_t step) {
  auto stream = InputStream::Open(path);
  if (!stream.ok()) {
    return stream.status();
  }
  std::string text;
  while (text.size() < kBytesMax) {
    std::string next(std::min(step, kBytesMax - text.size()), '\0');
    const absl::StatusOr<size_t> bytes =
        (*stream)->Read(next.data(), next.size());
    if (!bytes.ok()) {
      return bytes.status();
    }
    WEIR_CHECK(*bytes <= next.size());
    text.append(next, 0, *bytes);
    if (*bytes < next.size()) {
      break;
    }
  }
  return text;
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const file = new weir::DataFile();
  weir::FuzzInput input(data, size);
  const size_t step = size_t{16} * (input.Below(255) + 1);
  file->Put(input.Rest());
  const auto whole = weir::Read(file->path(), weir::kBytesMax);
  const auto pieces = weir::Read(file->path(), step);
  WEIR_CHECK(whole.ok() == pieces.ok());
  if (whole.ok()) {
    WEIR_CHECK(*whole == *pieces);
  }
  return 0;
}
