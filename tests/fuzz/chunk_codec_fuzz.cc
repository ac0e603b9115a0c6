// The bytes of a chunk, as a ps or a client receives them in pieces: the codec
// that reads payloads in place accepts what protobuf's own parser accepts,
// reads the same from it, and reads back what it writes.
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "proto/ps.pb.h"
#include "proto/wire/chunk_codec.h"
#include "tests/fuzz/fuzz_input.h"

namespace weir {
namespace {

grpc::ByteBuffer InPieces(const std::string& bytes, size_t piece_bytes) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += piece_bytes) {
    slices.emplace_back(bytes.substr(at, piece_bytes));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string Joined(const Payload& payload) {
  std::string bytes(payload.bytes(), '\0');
  payload.CopyTo(bytes.data());
  return bytes;
}

// What protobuf reads is the oracle.
template <typename Chunk>
void CheckChunk(const std::string& bytes, size_t piece_bytes) {
  Chunk expected;
  const bool valid = expected.ParseFromString(bytes);
  Chunk header;
  Payload payload;
  const absl::Status status =
      DecodeChunk(InPieces(bytes, piece_bytes), &header, &payload);
  if (!valid) {
    WEIR_CHECK(absl::IsInvalidArgument(status));
    return;
  }
  if (absl::IsDataLoss(status)) {
    return;  // the payload's checksum does not fit
  }
  WEIR_CHECK(status.ok());
  WEIR_CHECK(Joined(payload) == expected.payload());
  expected.clear_payload();
  // Bytes, since NaN differs from itself.
  WEIR_CHECK(header.SerializeAsString() == expected.SerializeAsString());

  const std::string values = Joined(payload);
  Chunk again;
  Payload payload_again;
  WEIR_CHECK(
      DecodeChunk(EncodeChunk(header, values, nullptr), &again, &payload_again)
          .ok());
  WEIR_CHECK(Joined(payload_again) == values);
  WEIR_CHECK(again.SerializeAsString() == header.SerializeAsString());
}

void CheckMessage(const std::string& bytes, size_t piece_bytes) {
  PullRowsChunk expected;
  const bool valid = expected.ParseFromString(bytes);
  PullRowsChunk message;
  const absl::Status status =
      DecodeMessage(InPieces(bytes, piece_bytes), &message);
  WEIR_CHECK(status.ok() == valid);
  if (valid) {
    WEIR_CHECK(message.SerializeAsString() == expected.SerializeAsString());
  }
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir::FuzzInput input(data, size);
  const uint32_t kind = input.Below(6);
  const size_t piece_bytes = input.Below(255) + 1;
  const std::string bytes = input.Rest();
  switch (kind) {
    case 0:
      weir::CheckChunk<weir::GradientChunk>(bytes, piece_bytes);
      break;
    case 1:
      weir::CheckChunk<weir::ValueChunk>(bytes, piece_bytes);
      break;
    case 2:
      weir::CheckChunk<weir::AssignChunk>(bytes, piece_bytes);
      break;
    case 3:
      weir::CheckChunk<weir::RowChunk>(bytes, piece_bytes);
      break;
    case 4:
      weir::CheckChunk<weir::PushRowsChunk>(bytes, piece_bytes);
      break;
    default:
      weir::CheckMessage(bytes, piece_bytes);
  }
  return 0;
}
