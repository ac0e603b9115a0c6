// A payload of a block or of rows, in any encoding and in any pieces: a wrong
// size is refused, and what is accepted fills every value and reads the same
// from one piece.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "proto/wire/value_encoding.h"
#include "tests/fuzz/fuzz_input.h"

namespace weir {
namespace {

Payload InPieces(const std::string& bytes, size_t piece_bytes) {
  const std::span<const char> all(bytes);
  std::vector<std::span<const char>> pieces;
  for (size_t at = 0; at < bytes.size(); at += piece_bytes) {
    pieces.push_back(all.subspan(at, std::min(piece_bytes, bytes.size() - at)));
  }
  return Payload(std::move(pieces), nullptr);
}

bool SameBytes(const std::vector<float>& a, const std::vector<float>& b) {
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using weir::DecodeFloats;
  weir::FuzzInput input(data, size);
  // One more than there are: an encoding of the future.
  const auto encoding = static_cast<weir::Encoding>(input.Below(6));
  const size_t piece_bytes = input.Below(255) + 1;
  const size_t count = 1 + input.Below(256) * (input.Flag() ? 1 : 7);
  const std::string bytes = input.Rest();
  // A value that nobody wrote would be found by its difference between the two.
  std::vector<float> values(count, 1.0f);
  std::vector<float> whole(count, 2.0f);
  const absl::Status status = DecodeFloats(weir::InPieces(bytes, piece_bytes),
                                           encoding, count, values.data());
  const absl::Status of_whole = DecodeFloats(weir::Payload::Borrowed(bytes),
                                             encoding, count, whole.data());
  WEIR_CHECK(status == of_whole);
  if (!status.ok()) {
    return 0;
  }
  WEIR_CHECK(weir::SameBytes(values, whole));
  if (weir::IsFixedSize(encoding)) {
    WEIR_CHECK(bytes.size() == weir::EncodedBytes(encoding, count));
    std::string again(bytes.size(), '\0');
    weir::EncodeFloats(values.data(), count, encoding, again.data());
  }
  return 0;
}
