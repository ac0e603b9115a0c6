// A run of bytes in pieces, with whatever keeps the pieces alive.
//
// Place: it holds what a transport received. A message of 1 MiB arrives in
// about twenty pieces, and a piece may end inside a float. The store applies
// gradients from the pieces and the client copies values out of them: nobody
// joins them first.
//
// Threads: compatible.
// Owns: a share of the bytes, which never change. A borrowed one owns nothing,
//   and its bytes are there only during the call that it is passed to.
#ifndef COMMON_IO_PAYLOAD_H_
#define COMMON_IO_PAYLOAD_H_

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace weir {

class Payload {
 public:
  Payload() = default;
  Payload(std::vector<std::span<const char>> pieces,
          std::shared_ptr<const void> owner)
      : pieces_(std::move(pieces)), owner_(std::move(owner)) {
    for (const std::span<const char> piece : pieces_) {
      bytes_ += piece.size();
    }
  }

  static Payload Borrowed(std::span<const char> bytes) {
    return Payload({bytes}, nullptr);
  }

  // Makes a borrowed payload own a copy, so that it may be kept after the call.
  void Keep() {
    if (owner_ != nullptr || bytes_ == 0) {
      return;
    }
    const auto copy = std::make_shared<std::vector<char>>(bytes_);
    CopyTo(copy->data());
    *this = Payload({std::span<const char>(*copy)}, copy);
  }

  size_t bytes() const { return bytes_; }
  bool empty() const { return bytes_ == 0; }
  const std::vector<std::span<const char>>& pieces() const { return pieces_; }

  // REQUIRES: `out` has bytes() bytes.
  void CopyTo(char* out) const {
    for (const std::span<const char> piece : pieces_) {
      std::memcpy(out, piece.data(), piece.size());
      out += piece.size();
    }
  }

 private:
  std::vector<std::span<const char>> pieces_;
  std::shared_ptr<const void> owner_;
  size_t bytes_ = 0;
};

}  // namespace weir

#endif  // COMMON_IO_PAYLOAD_H_
