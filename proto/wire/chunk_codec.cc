#include "proto/wire/chunk_codec.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

using google::protobuf::MessageLite;
using google::protobuf::io::CodedOutputStream;
using Slices = std::vector<grpc::Slice>;

constexpr uint32_t kPayloadTag = (15 << 3) | 2;
// A longer header is left to protobuf's parser, at the price of one copy.
constexpr size_t kMaxHeaderBytes = 64 << 10;
// Enough for every header but those with long lists.
constexpr size_t kUsualHeaderBytes = 512;

// kUnusual also covers bytes that are no message at all: protobuf's parser has
// the last word on them, so that this file accepts exactly what it accepts.
enum class Scan { kFound, kMore, kUnusual };

// Where the fields before the payload end, and where the payload begins.
struct Boundary {
  size_t header_bytes = 0;
  size_t payload_begin = 0;
};

// Reads top-level fields of a message from its first bytes.
class FieldScanner {
 public:
  // `prefix` holds the first bytes of a message of `total` bytes.
  FieldScanner(std::span<const char> prefix, size_t total)
      : prefix_(prefix), total_(total) {}

  // kFound: `boundary` splits the message. kMore: a longer prefix is needed.
  // kUnusual: only protobuf's parser can tell.
  Scan FindPayload(Boundary* boundary) {
    while (at_ < total_) {
      boundary->header_bytes = at_;
      uint64_t tag = 0;
      uint64_t skip = 0;
      if (const Scan scan = Varint(&tag); scan != Scan::kFound) {
        return scan;
      }
      if (const Scan scan = FieldBytes(tag, &skip); scan != Scan::kFound) {
        return scan;
      }
      // Written as a difference, since a hostile length would overflow a sum.
      if (skip > total_ - at_) {
        return Scan::kUnusual;
      }
      if (tag == kPayloadTag) {
        boundary->payload_begin = at_;
        // Behind the payload may be other fields, or another payload, which
        // replaces this one. Weir writes neither, but protobuf allows both.
        if (at_ + skip != total_) {
          return Scan::kUnusual;
        }
        return Scan::kFound;
      }
      at_ += skip;
    }
    boundary->header_bytes = total_;
    boundary->payload_begin = total_;
    return Scan::kFound;
  }

 private:
  // Consumes a varint.
  Scan Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ >= total_) {
        return Scan::kUnusual;  // the message itself ends inside the varint
      }
      if (at_ >= prefix_.size()) {
        return Scan::kMore;
      }
      const auto byte = static_cast<uint8_t>(prefix_[at_++]);
      *value |= uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) == 0) {
        return Scan::kFound;
      }
    }
    return Scan::kUnusual;
  }

  // Bytes that follow the tag and, for a length-delimited field, its length.
  Scan FieldBytes(uint64_t tag, uint64_t* bytes) {
    uint64_t ignored = 0;
    *bytes = 0;
    switch (tag & 7) {
      case 0:
        return Varint(&ignored);
      case 1:
        *bytes = 8;
        return Scan::kFound;
      case 2:
        return Varint(bytes);
      case 5:
        *bytes = 4;
        return Scan::kFound;
      default:  // groups
        return Scan::kUnusual;
    }
  }

  const std::span<const char> prefix_;
  const size_t total_;
  size_t at_ = 0;
};

std::span<const char> Bytes(const grpc::Slice& slice) {
  return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
}

// The first `count` bytes of `slices`, joined.
std::string Join(const Slices& slices, size_t count) {
  std::string joined;
  joined.reserve(count);
  for (const grpc::Slice& slice : slices) {
    const std::span<const char> bytes = Bytes(slice);
    joined.append(bytes.data(), std::min(bytes.size(), count - joined.size()));
  }
  return joined;
}

// The bytes of `slices` from `begin` on, sharing their ownership.
Payload PayloadFrom(std::shared_ptr<const Slices> slices, size_t begin) {
  std::vector<std::span<const char>> pieces;
  pieces.reserve(slices->size());
  for (const grpc::Slice& slice : *slices) {
    const std::span<const char> bytes = Bytes(slice);
    const size_t skip = std::min(begin, bytes.size());
    begin -= skip;
    if (skip < bytes.size()) {
      pieces.push_back(bytes.subspan(skip));
    }
  }
  return Payload(std::move(pieces), std::move(slices));
}

absl::Status Malformed(const MessageLite& header, size_t bytes) {
  return absl::InvalidArgumentError(
      absl::StrCat("these ", bytes, " bytes are not a ", header.GetTypeName()));
}

absl::Status DecodeUnusual(const Slices& slices, size_t total,
                           MessageLite* header,
                           std::string* (*payload_field)(MessageLite*),
                           Payload* payload) {
  if (!header->ParseFromString(Join(slices, total))) {
    return Malformed(*header, total);
  }
  // The string moves out of the header, which must have no payload, and becomes
  // the owner of the one piece: the parser's copy stays the only one.
  auto owned = std::make_shared<std::string>();
  owned->swap(*payload_field(header));
  const std::span<const char> piece(owned->data(), owned->size());
  *payload = Payload();
  if (!piece.empty()) {
    *payload = Payload({piece}, std::move(owned));
  }
  return absl::OkStatus();
}

// A slice over borrowed memory that runs `released` when gRPC drops it. gRPC
// takes a plain function and a pointer, so `released` waits on the heap.
grpc::Slice LentSlice(std::span<const char> bytes,
                      std::function<void()> released) {
  auto* release = new std::function<void()>(std::move(released));
  return grpc::Slice(
      const_cast<char*>(bytes.data()), bytes.size(),
      [](void* data) {
        std::unique_ptr<std::function<void()>> owned(
            static_cast<std::function<void()>*>(data));
        if (*owned) {
          (*owned)();
        }
      },
      release);
}

}  // namespace

grpc::ByteBuffer EncodeChunk(const MessageLite& header,
                             std::span<const char> payload,
                             std::function<void()> released) {
  // ByteSizeLong also caches the sizes that SerializeWithCachedSizesToArray
  // needs, so it must come first.
  const size_t header_bytes = header.ByteSizeLong();
  const bool copied = payload.size() <= kCopiedPayloadBytes;
  size_t head_bytes = header_bytes;
  if (!payload.empty()) {
    head_bytes += CodedOutputStream::VarintSize32(kPayloadTag) +
                  CodedOutputStream::VarintSize64(payload.size());
    if (copied) {
      head_bytes += payload.size();
    }
  }
  std::vector<grpc::Slice> slices;
  slices.reserve(2);
  grpc::Slice& head = slices.emplace_back(head_bytes);
  // The slice is new and nobody else has seen it, so it may still be written.
  auto* out = const_cast<uint8_t*>(head.begin());
  out = header.SerializeWithCachedSizesToArray(out);
  if (!payload.empty()) {
    out = CodedOutputStream::WriteVarint32ToArray(kPayloadTag, out);
    out = CodedOutputStream::WriteVarint64ToArray(payload.size(), out);
    if (copied) {
      std::memcpy(out, payload.data(), payload.size());
    }
  }
  // `released` runs exactly once on both ways: when gRPC drops the lent slice,
  // or here, since nothing refers to a payload that was copied.
  if (!copied) {
    slices.push_back(LentSlice(payload, std::move(released)));
  } else if (released) {
    released();
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::Status DecodeMessage(const grpc::ByteBuffer& buffer,
                           MessageLite* message) {
  Slices slices;
  buffer.Dump(&slices).ok();  // fails only without a buffer: empty
  if (slices.size() == 1) {
    const std::span<const char> bytes = Bytes(slices[0]);
    if (!message->ParseFromArray(bytes.data(),
                                 static_cast<int>(bytes.size()))) {
      return Malformed(*message, bytes.size());
    }
    return absl::OkStatus();
  }
  if (!message->ParseFromString(Join(slices, buffer.Length()))) {
    return Malformed(*message, buffer.Length());
  }
  return absl::OkStatus();
}

namespace chunk_codec_internal {

absl::Status Decode(const grpc::ByteBuffer& buffer, MessageLite* header,
                    std::string* (*payload_field)(MessageLite*),
                    Payload* payload) {
  *payload = Payload();
  auto slices = std::make_shared<Slices>();
  buffer.Dump(slices.get()).ok();  // fails only without a buffer: empty
  const size_t total = buffer.Length();
  if (slices->empty()) {
    header->Clear();  // no bytes are a message with every field unset
    return absl::OkStatus();
  }
  // The first slice nearly always holds the whole header. Where it does not,
  // longer and longer prefixes are joined, so that a payload of megabytes is
  // not copied for the few bytes before it.
  std::string joined;
  std::span<const char> prefix = Bytes(slices->front());
  Boundary boundary;
  Scan scan = FieldScanner(prefix, total).FindPayload(&boundary);
  for (const size_t bytes : {kUsualHeaderBytes, kMaxHeaderBytes}) {
    if (scan == Scan::kMore && prefix.size() < std::min(bytes, total)) {
      joined = Join(*slices, std::min(bytes, total));
      prefix = joined;
      scan = FieldScanner(prefix, total).FindPayload(&boundary);
    }
  }
  if (scan == Scan::kFound && boundary.header_bytes > prefix.size()) {
    scan = Scan::kMore;  // the last header field ends behind the prefix
  }
  if (scan != Scan::kFound ||
      !header->ParseFromArray(prefix.data(),
                              static_cast<int>(boundary.header_bytes))) {
    return DecodeUnusual(*slices, total, header, payload_field, payload);
  }
  if (boundary.payload_begin < total) {
    *payload = PayloadFrom(std::move(slices), boundary.payload_begin);
  }
  return absl::OkStatus();
}

}  // namespace chunk_codec_internal
}  // namespace weir
