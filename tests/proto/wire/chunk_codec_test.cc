#include "proto/wire/chunk_codec.h"

#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/util/message_differencer.h>
#include <grpcpp/impl/grpc_library.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/math/random.h"
#include "gtest/gtest.h"
#include "proto/ps.pb.h"

namespace weir {
namespace {

using google::protobuf::util::MessageDifferencer;

// gRPC's slices need its library to be started; a channel or a server would do
// it, and this test has neither.
const grpc::internal::GrpcLibraryInitializer kLibrary;

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

// `bytes` as a message that arrived in pieces of at most `piece` bytes.
grpc::ByteBuffer BufferOf(const std::string& bytes, size_t piece) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    slices.emplace_back(bytes.substr(at, piece));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string BytesOf(const Payload& payload) {
  std::string bytes(payload.bytes(), '\0');
  payload.CopyTo(bytes.data());
  return bytes;
}

GradientChunk Header() {
  GradientChunk chunk;
  chunk.mutable_sender()->set_job("digits");
  chunk.mutable_sender()->set_history(0x0123456789abcdef);
  chunk.mutable_sender()->set_slot(3);
  chunk.mutable_push()->set_sequence(7);
  chunk.mutable_push()->set_weight(0.5f);
  chunk.mutable_push()->add_left_out(300);
  chunk.mutable_push()->add_hyper()->set_learning_rate(0.125);
  chunk.set_block(42);
  chunk.mutable_want()->set_version(9);
  return chunk;
}

std::string RandomBytes(size_t count, uint64_t key) {
  RandomStream random(key);
  std::string bytes(count, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(random.Next32());
  }
  return bytes;
}

// What plain protobuf makes of `bytes`: the payload, and all other fields.
struct Parsed {
  bool ok = false;
  GradientChunk header;
  std::string payload;
};

Parsed ParsePlain(const std::string& bytes) {
  Parsed parsed;
  parsed.ok = parsed.header.ParseFromString(bytes);
  parsed.payload = parsed.header.payload();
  parsed.header.clear_payload();
  return parsed;
}

// Decodes `bytes` in pieces and expects what plain protobuf says.
void ExpectSameAsPlain(const std::string& bytes, size_t piece) {
  const Parsed plain = ParsePlain(bytes);
  GradientChunk header;
  Payload payload;
  const absl::Status status =
      DecodeChunk(BufferOf(bytes, piece), &header, &payload);
  ASSERT_EQ(status.ok(), plain.ok) << status;
  if (!plain.ok) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return;
  }
  EXPECT_TRUE(header.payload().empty());
  EXPECT_EQ(BytesOf(payload), plain.payload);
  EXPECT_EQ(header.SerializeAsString(), plain.header.SerializeAsString());
}

TEST(ChunkCodecTest, EncodesTheBytesThatProtobufWrites) {
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{127}, size_t{128}, kCopiedPayloadBytes,
        kCopiedPayloadBytes + 1, size_t{1} << 20}) {
    const std::string payload = RandomBytes(size, size);
    int released = 0;
    std::string bytes;
    {
      const grpc::ByteBuffer buffer =
          EncodeChunk(Header(), payload, [&released] { ++released; });
      EXPECT_EQ(released, size <= kCopiedPayloadBytes ? 1 : 0) << size;
      bytes = BytesOf(buffer);
    }
    EXPECT_EQ(released, 1) << size;
    GradientChunk plain = Header();
    plain.set_payload(payload);
    EXPECT_EQ(bytes, plain.SerializeAsString()) << size;
  }
}

TEST(ChunkCodecTest, LendsTheCallersMemory) {
  std::string payload = RandomBytes(4096, 1);
  const grpc::ByteBuffer buffer = EncodeChunk(Header(), payload, nullptr);
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(buffer.Dump(&slices).ok());
  EXPECT_EQ(reinterpret_cast<const char*>(slices.back().begin()),
            payload.data());
}

TEST(ChunkCodecTest, ReadsThePayloadWhereItWasReceived) {
  GradientChunk chunk = Header();
  chunk.set_payload(RandomBytes(10000, 2));
  const grpc::ByteBuffer buffer = BufferOf(chunk.SerializeAsString(), 3000);
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(buffer.Dump(&slices).ok());
  GradientChunk header;
  Payload payload;
  ASSERT_TRUE(DecodeChunk(buffer, &header, &payload).ok());
  ASSERT_EQ(payload.pieces().size(), slices.size());
  for (size_t i = 1; i < slices.size(); ++i) {
    EXPECT_EQ(payload.pieces()[i].data(),
              reinterpret_cast<const char*>(slices[i].begin()));
  }
}

TEST(ChunkCodecTest, ThePayloadOutlivesTheBuffer) {
  GradientChunk chunk = Header();
  chunk.set_payload(RandomBytes(5000, 3));
  Payload payload;
  {
    const grpc::ByteBuffer buffer = BufferOf(chunk.SerializeAsString(), 7);
    GradientChunk header;
    ASSERT_TRUE(DecodeChunk(buffer, &header, &payload).ok());
  }
  EXPECT_EQ(BytesOf(payload), chunk.payload());
}

TEST(ChunkCodecTest, DecodesWhatProtobufWroteInPiecesOfAnySize) {
  for (const size_t size : {size_t{0}, size_t{5}, size_t{2000}}) {
    GradientChunk chunk = Header();
    chunk.set_payload(RandomBytes(size, size));
    const std::string bytes = chunk.SerializeAsString();
    for (size_t piece = 1; piece <= bytes.size(); ++piece) {
      ExpectSameAsPlain(bytes, piece);
    }
  }
}

TEST(ChunkCodecTest, DecodesEveryLegalEncoding) {
  const std::string header = Header().SerializeAsString();
  const std::string payload("\x7a\x03xyz", 5);
  const std::vector<std::pair<const char*, std::string>> cases = {
      {"empty message", ""},
      {"payload alone", payload},
      {"payload first", payload + header},
      {"payload in the middle", header + payload + header},
      {"two payloads, the last wins", header + payload + "\x7a\x01q"},
      {"empty payload", header + std::string("\x7a\x00", 2)},
      {"payload, then an empty one", payload + std::string("\x7a\x00", 2)},
      {"unknown varint", "\xf8\x07\x96\x01" + header + payload},
      {"unknown fixed64", std::string("\xf9\x07"
                                      "12345678",
                                      10) +
                              payload},
      {"unknown fixed32", std::string("\xfd\x07"
                                      "1234",
                                      6) +
                              payload},
      {"unknown bytes", "\xfa\x07\x02hi" + payload},
      {"unknown group", "\xfb\x07\x08\x01\xfc\x07" + payload},
      {"payload as a varint is unknown", "\x78\x05" + payload},
      {"long form of the tag", header + std::string("\xfa\x00\x03xyz", 6)},
      {"long form of the length", header + std::string("\x7a\x83\x00xyz", 6)},
      {"header over 64 KiB",
       "\xfa\x07\x80\x80\x08" + std::string(1 << 17, 'u') + payload},
  };
  for (const auto& [name, bytes] : cases) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(ParsePlain(bytes).ok);
    for (const size_t piece : {size_t{1}, size_t{3}, size_t{1} << 20}) {
      ExpectSameAsPlain(bytes, piece);
    }
  }
}

TEST(ChunkCodecTest, RefusesMalformedBytes) {
  const std::string header = Header().SerializeAsString();
  const std::vector<std::pair<const char*, std::string>> cases = {
      {"tag without value", "\x18"},
      {"tag cut off", header + "\xfa"},
      {"length cut off", header + "\x7a"},
      {"payload shorter than its length", header + "\x7a\x04xyz"},
      {"length of 2^63",
       header + "\x7a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"},
      {"varint without end", std::string(20, '\xff')},
      {"field number 0", std::string("\x00\x01", 2) + "\x7a\x01x"},
      {"end of a group that never began", "\xfc\x07"},
      {"group without end", "\xfb\x07\x08\x01"},
      {"wire type 6", "\x7e\x01"},
      {"sender is not a message", "\x0a\x02\xff\xff\x7a\x01x"},
      {"job is not UTF-8", "\x0a\x03\x0a\x01\xff\x7a\x01x"},
  };
  for (const auto& [name, bytes] : cases) {
    SCOPED_TRACE(name);
    ASSERT_FALSE(ParsePlain(bytes).ok);
    for (const size_t piece : {size_t{1}, size_t{3}, size_t{1} << 20}) {
      ExpectSameAsPlain(bytes, piece);
    }
  }
}

TEST(ChunkCodecTest, AgreesWithProtobufOnRandomMutations) {
  const google::protobuf::LogSilencer silence;  // invalid UTF-8, often
  RandomStream random(20261121);
  GradientChunk chunk = Header();
  chunk.set_payload(RandomBytes(60, 4));
  const std::string original = chunk.SerializeAsString();
  int legal = 0;
  for (int round = 0; round < 100000; ++round) {
    std::string bytes = original;
    const uint32_t edits = 1 + random.NextBelow(3);
    for (uint32_t edit = 0; edit < edits && !bytes.empty(); ++edit) {
      const size_t at = random.NextBelow(static_cast<uint32_t>(bytes.size()));
      switch (random.NextBelow(4)) {
        case 0:
          bytes[at] = static_cast<char>(random.Next32());
          break;
        case 1:
          bytes.erase(at, 1 + random.NextBelow(8));
          break;
        case 2:
          bytes.insert(at, 1, static_cast<char>(random.Next32()));
          break;
        default:
          bytes += bytes.substr(at, 1 + random.NextBelow(30));
      }
    }
    legal += ParsePlain(bytes).ok ? 1 : 0;
    ExpectSameAsPlain(bytes, 1 + random.NextBelow(80));
    if (HasFailure()) {
      FAIL() << "round " << round;
    }
  }
  // The mutations reach both sides.
  EXPECT_GT(legal, 5000);
  EXPECT_LT(legal, 95000);
}

TEST(ChunkCodecTest, MessagesWithoutPayloadComeBack) {
  PullRequest request;
  request.mutable_sender()->set_job("digits");
  for (uint32_t block = 0; block < 300; ++block) {
    request.add_block(block);
  }
  PullRequest decoded;
  ASSERT_TRUE(DecodeMessage(EncodeChunk(request, {}, nullptr), &decoded).ok());
  EXPECT_TRUE(MessageDifferencer::Equals(decoded, request));
  const std::string bytes = request.SerializeAsString();
  ASSERT_TRUE(DecodeMessage(BufferOf(bytes, 10), &decoded).ok());
  EXPECT_TRUE(MessageDifferencer::Equals(decoded, request));
  ASSERT_TRUE(DecodeMessage(grpc::ByteBuffer(), &decoded).ok());
  EXPECT_FALSE(decoded.has_sender());
  EXPECT_EQ(DecodeMessage(BufferOf("\x0a", 1), &decoded).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir
