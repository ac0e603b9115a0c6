// Reads structured input from the bytes that libFuzzer makes up.
//
// Place: fuzzers whose subject takes more than one string. Behind the end all
// is 0 and empty, so every input means something, and a shorter input means a
// shorter sequence.
//
// Threads: compatible. Borrows the bytes.
#ifndef TESTS_FUZZ_FUZZ_INPUT_H_
#define TESTS_FUZZ_FUZZ_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace weir {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  bool empty() const { return at_ == end_; }

  uint8_t Byte() { return empty() ? 0 : *at_++; }
  bool Flag() { return (Byte() & 1) != 0; }
  // A number below `bound`, from one byte. REQUIRES: 1 <= bound <= 256.
  uint32_t Below(uint32_t bound) { return Byte() % bound; }

  // Any number. Small ones take one byte, and so do those at which arithmetic
  // tends to break.
  uint64_t Number() {
    const uint8_t first = Byte();
    if (first < kSizesBegin) {
      return first;
    }
    if (first >= kExtremesBegin) {
      return kExtremes[first - kExtremesBegin];
    }
    uint64_t number = 0;
    for (int byte = 0; byte <= first - kSizesBegin; ++byte) {
      number |= uint64_t{Byte()} << (8 * byte);
    }
    return number;
  }
  uint32_t Number32() { return static_cast<uint32_t>(Number()); }

  // The next bytes, as many as are there of `size`.
  std::string Bytes(size_t size) {
    size = std::min(size, static_cast<size_t>(end_ - at_));
    std::string bytes(reinterpret_cast<const char*>(at_), size);
    at_ += size;
    return bytes;
  }
  // Bytes behind their number.
  std::string Text() {
    const uint64_t size = Number();
    return Bytes(static_cast<size_t>(size));
  }
  std::string Rest() { return Bytes(static_cast<size_t>(end_ - at_)); }

 private:
  static constexpr uint8_t kSizesBegin = 0xf0;  // 1 to 8 bytes follow
  static constexpr uint8_t kExtremesBegin = 0xf8;
  static constexpr uint64_t kExtremes[] = {
      std::numeric_limits<int32_t>::max(),
      uint64_t{1} << 31,
      std::numeric_limits<uint32_t>::max(),
      uint64_t{1} << 32,
      std::numeric_limits<int64_t>::max(),
      uint64_t{1} << 63,
      std::numeric_limits<uint64_t>::max() - 1,
      std::numeric_limits<uint64_t>::max(),
  };

  const uint8_t* at_;
  const uint8_t* const end_;
};

}  // namespace weir

#endif  // TESTS_FUZZ_FUZZ_INPUT_H_
