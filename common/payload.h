// A run of bytes in pieces, with whatever keeps the pieces alive.
//
// Place: what a transport received. A message of 1 MiB arrives as about twenty
// pieces; a piece may end inside a float. The store applies gradients from the
// pieces and the client copies values out of them: nobody joins them first.
//
// Threads: compatible. Owns a share of the bytes; they never change.
#ifndef COMMON_PAYLOAD_H_
#define COMMON_PAYLOAD_H_

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

#endif  // COMMON_PAYLOAD_H_
