// A block's values in the encoding that a want asks for.
#ifndef SERVER_PS_VALUE_ENCODING_H_
#define SERVER_PS_VALUE_ENCODING_H_

#include <cstddef>

#include "common/half.h"
#include "proto/ps.pb.h"
#include "server/ps/block_buffer.h"

namespace weir {

// REQUIRES of both: `encoding` is F32, BF16 or F16.
inline size_t EncodedBytes(const BlockRef& values, Encoding encoding) {
  return encoding == F32 ? values.bytes() : values.bytes() / 2;
}

// Writes EncodedBytes of them to `out`; REQUIRES: not F32.
inline void EncodeFloats(const BlockRef& values, Encoding encoding, char* out) {
  const auto count = static_cast<size_t>(values.elements());
  if (encoding == BF16) {
    FloatsToBf16(values.data(), count, out);
  } else {
    FloatsToF16(values.data(), count, out);
  }
}

}  // namespace weir

#endif  // SERVER_PS_VALUE_ENCODING_H_
