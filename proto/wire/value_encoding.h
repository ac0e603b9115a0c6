// Turns blocks of float32 into the encodings of the wire, and back.
//
// Place: both ends of a chunk's payload; job_spec.proto has the bytes.
//
// Threads: safe.
// Errors: INVALID_ARGUMENT  an unknown encoding, or bytes that are not `count`
//                           values in this encoding.
// Cost: one pass. Pieces are joined first, except those of F32.
#ifndef PROTO_WIRE_VALUE_ENCODING_H_
#define PROTO_WIRE_VALUE_ENCODING_H_

#include <cstddef>

#include "absl/status/status.h"
#include "common/io/payload.h"
#include "proto/job_spec.pb.h"

namespace weir {

// True for F32, BF16, F16 and INT8, whose size follows from the count.
inline bool IsFixedSize(Encoding encoding) {
  return encoding == F32 || encoding == BF16 || encoding == F16 ||
         encoding == INT8;
}

// REQUIRES: IsFixedSize(encoding).
size_t EncodedBytes(Encoding encoding, size_t count);
// Writes EncodedBytes(encoding, count) bytes to `out`, which may be at any
// address. REQUIRES: IsFixedSize(encoding).
void EncodeFloats(const float* values, size_t count, Encoding encoding,
                  char* out);

// Fills `out` with `count` values. `out` may have changed after an error.
absl::Status DecodeFloats(const Payload& payload, Encoding encoding,
                          size_t count, float* out);

}  // namespace weir

#endif  // PROTO_WIRE_VALUE_ENCODING_H_
