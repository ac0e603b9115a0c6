#include "proto/wire/value_encoding.h"

#include <cstring>
#include <memory>
#include <span>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/math/half.h"
#include "common/math/int8.h"
#include "common/math/top_k.h"

namespace weir {
namespace {

// The payload's bytes in one piece. `*joined` owns them if they had to be
// copied: a piece may end inside an element, which the decoders cannot follow.
std::span<const char> InOnePiece(const Payload& payload,
                                 std::unique_ptr<char[]>* joined) {
  if (payload.pieces().size() == 1) {
    return payload.pieces().front();
  }
  *joined = std::make_unique_for_overwrite<char[]>(payload.bytes());
  payload.CopyTo(joined->get());
  return {joined->get(), payload.bytes()};
}

}  // namespace

size_t EncodedBytes(Encoding encoding, size_t count) {
  WEIR_CHECK(IsFixedSize(encoding));
  if (encoding == F32) {
    return count * sizeof(float);
  }
  if (encoding == INT8) {
    return Int8Bytes(count);
  }
  return count * sizeof(uint16_t);  // BF16 and F16
}

void EncodeFloats(const float* values, size_t count, Encoding encoding,
                  char* out) {
  switch (encoding) {
    case F32:
      std::memcpy(out, values, count * sizeof(float));
      return;
    case BF16:
      return FloatsToBf16(values, count, out);
    case F16:
      return FloatsToF16(values, count, out);
    case INT8:
      return FloatsToInt8(values, count, out);
    default:
      WEIR_CHECK(IsFixedSize(encoding));
  }
}

absl::Status DecodeFloats(const Payload& payload, Encoding encoding,
                          size_t count, float* out) {
  // The peer chose the encoding and the bytes, so both are checked before
  // anything is decoded. DecodeTopK checks its own, whose size varies.
  if (!IsFixedSize(encoding) && encoding != TOP_K) {
    return absl::InvalidArgumentError(
        absl::StrCat("encoding ", static_cast<int>(encoding), " is not known"));
  }
  if (encoding != TOP_K && payload.bytes() != EncodedBytes(encoding, count)) {
    return absl::InvalidArgumentError(absl::StrCat(
        count, " values in ", Encoding_Name(encoding), " take ",
        EncodedBytes(encoding, count), " bytes, got ", payload.bytes()));
  }
  std::unique_ptr<char[]> joined;
  switch (encoding) {
    case F32:
      payload.CopyTo(reinterpret_cast<char*>(out));
      break;
    case BF16:
      Bf16ToFloats(InOnePiece(payload, &joined).data(), count, out);
      break;
    case F16:
      F16ToFloats(InOnePiece(payload, &joined).data(), count, out);
      break;
    case INT8:
      Int8ToFloats(InOnePiece(payload, &joined).data(), count, out);
      break;
    default:
      return DecodeTopK(InOnePiece(payload, &joined), out, count);
  }
  return absl::OkStatus();
}

}  // namespace weir
