// Blocks of float32 in the encodings of the wire, and back.
//
// Place: both ends of a chunk's payload; job_spec.proto has the bytes.
//
// Threads: safe. Cost: one pass; pieces of INT8 and TOP_K are joined first.
// Errors: INVALID_ARGUMENT  an encoding that nobody knows, or bytes that are
//                           not `count` values in it.
#ifndef PROTO_WIRE_VALUE_ENCODING_H_
#define PROTO_WIRE_VALUE_ENCODING_H_

#include <cstddef>

#include "absl/status/status.h"
#include "common/io/payload.h"
#include "proto/job_spec.pb.h"

namespace weir {

// One whose bytes follow from the count: F32, BF16, F16, INT8.
inline bool IsFixedSize(Encoding encoding) {
  return encoding == F32 || encoding == BF16 || encoding == F16 ||
         encoding == INT8;
}

// REQUIRES: IsFixedSize(encoding).
size_t EncodedBytes(Encoding encoding, size_t count);
// Writes EncodedBytes to `out`, any address. REQUIRES: IsFixedSize(encoding).
void EncodeFloats(const float* values, size_t count, Encoding encoding,
                  char* out);

absl::Status DecodeFloats(const Payload& payload, Encoding encoding,
                          size_t count, float* out);

}  // namespace weir

#endif  // PROTO_WIRE_VALUE_ENCODING_H_
