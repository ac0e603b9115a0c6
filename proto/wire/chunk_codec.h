// Chunks on grpc::ByteBuffer: ordinary protobuf bytes, without protobuf's copy
// of the payload.
//
// Place: both ends of the streams of proto/ps.proto. The sender lends its
// memory to gRPC; the receiver reads the payload where gRPC received it.
//
// Bytes, as Weir writes them (any legal protobuf encoding is read):
//   header fields, in protobuf's own encoding
//   0x7a               tag of `bytes payload = 15`, left out when it is empty
//   varint             payload length
//   payload            to the end of the message
//
// Terms
//   header  the message with an empty payload field.
//   chunk   AssignChunk, GradientChunk or ValueChunk.
// Threads: safe.
// Errors: INVALID_ARGUMENT  the bytes are not this message.
//         DATA_LOSS         the payload does not fit its checksum.
// Cost: the payload is not touched, when it comes last and once, after at most
//   64 KiB of header. Other encodings take protobuf's parser and one copy.
#ifndef PROTO_WIRE_CHUNK_CODEC_H_
#define PROTO_WIRE_CHUNK_CODEC_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "common/io/payload.h"
#include "proto/wire/payload_checksum.h"

namespace weir {

// Payloads up to this are copied beside the header: cheaper than lending.
inline constexpr size_t kCopiedPayloadBytes = 1024;

// The bound of every message, on both sides.
inline constexpr int kMaxMessageBytes = (4 << 20) + (64 << 10);

// Encodes `header` (its payload empty) with `payload`. The bytes are borrowed
// until `released` (may be empty) runs: exactly once, on any thread, maybe
// before this returns.
grpc::ByteBuffer EncodeChunk(const google::protobuf::MessageLite& header,
                             std::span<const char> payload,
                             std::function<void()> released);

namespace chunk_codec_internal {
absl::Status Decode(
    const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* header,
    std::string* (*payload_field)(google::protobuf::MessageLite*),
    Payload* payload);
}  // namespace chunk_codec_internal

// Decodes `buffer`: `header` gets every field but the payload, `payload` the
// pieces of it and a share of the memory that they are in.
template <typename Chunk>
absl::Status DecodeChunk(const grpc::ByteBuffer& buffer, Chunk* header,
                         Payload* payload) {
  const absl::Status status = chunk_codec_internal::Decode(
      buffer, header,
      [](google::protobuf::MessageLite* message) {
        return static_cast<Chunk*>(message)->mutable_payload();
      },
      payload);
  return status.ok() ? CheckPayload(*header, *payload) : status;
}

// A message without a payload field; EncodeChunk encodes those as well.
absl::Status DecodeMessage(const grpc::ByteBuffer& buffer,
                           google::protobuf::MessageLite* message);

}  // namespace weir

#endif  // PROTO_WIRE_CHUNK_CODEC_H_
