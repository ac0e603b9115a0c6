#include "common/io/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace weir {
namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b]: the checksum of byte b followed by k zero bytes.
constexpr Tables MakeTables() {
  Tables tables = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
    }
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

uint64_t Load64(const uint8_t* at) {
  uint64_t word = 0;
  std::memcpy(&word, at, sizeof(word));  // Little-endian machines only.
  return word;
}

#if defined(__x86_64__)
// The crc32 instruction has a latency of three cycles and a throughput of one:
// three lanes of this many bytes keep it busy.
constexpr size_t kLane = 1024;

// The state after kLane zero bytes, for each value of each byte of the state
// before. It is linear in the state, so the four add up by xor.
const std::array<std::array<uint32_t, 256>, 4>& LaneTables() {
  static const auto* const tables = [] {
    const std::array<uint8_t, kLane> zeros = {};
    auto* const made = new std::array<std::array<uint32_t, 256>, 4>();
    for (size_t k = 0; k < 4; ++k) {
      for (uint32_t byte = 0; byte < 256; ++byte) {
        const uint32_t state = byte << (8 * k);
        (*made)[k][byte] =
            ~crc32c_internal::ExtendWithTable(~state, zeros.data(), kLane);
      }
    }
    return made;
  }();
  return *tables;
}

// The state after `state` and kLane zero bytes.
uint32_t SkipLane(uint64_t state) {
  const auto& tables = LaneTables();
  return tables[0][state & 0xFF] ^ tables[1][(state >> 8) & 0xFF] ^
         tables[2][(state >> 16) & 0xFF] ^ tables[3][(state >> 24) & 0xFF];
}

__attribute__((target("sse4.2"))) uint32_t ExtendWithHardware(uint32_t crc,
                                                              const void* data,
                                                              size_t bytes) {
  const uint8_t* at = static_cast<const uint8_t*>(data);
  uint64_t state = static_cast<uint32_t>(~crc);
  for (; bytes >= 3 * kLane; bytes -= 3 * kLane, at += 3 * kLane) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kLane; i += 8) {
      state = _mm_crc32_u64(state, Load64(at + i));
      second = _mm_crc32_u64(second, Load64(at + kLane + i));
      third = _mm_crc32_u64(third, Load64(at + 2 * kLane + i));
    }
    // The checksum of A then B is that of A, moved over as many zeros as B has
    // bytes, xor that of B (Gopal et al.).
    state = SkipLane(SkipLane(state) ^ second) ^ third;
  }
  for (; bytes >= 8; bytes -= 8, at += 8) {
    state = _mm_crc32_u64(state, Load64(at));
  }
  uint32_t tail = static_cast<uint32_t>(state);
  for (; bytes > 0; --bytes, ++at) {
    tail = _mm_crc32_u8(tail, *at);
  }
  return ~tail;
}
#endif

}  // namespace

namespace crc32c_internal {

uint32_t ExtendWithTable(uint32_t crc, const void* data, size_t bytes) {
  const uint8_t* at = static_cast<const uint8_t*>(data);
  uint32_t state = ~crc;
  // Eight lookups do not depend on one another, where eight steps of one byte
  // would.
  for (; bytes >= 8; bytes -= 8, at += 8) {
    const uint64_t word = Load64(at) ^ state;
    uint32_t next = 0;
    for (int k = 0; k < 8; ++k) {
      next ^= kTables[7 - k][(word >> (8 * k)) & 0xFF];
    }
    state = next;
  }
  for (; bytes > 0; --bytes, ++at) {
    state = (state >> 8) ^ kTables[0][(state ^ *at) & 0xFF];
  }
  return ~state;
}

bool HasHardware() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("sse4.2");
  return has;
#else
  return false;
#endif
}

}  // namespace crc32c_internal

uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t bytes) {
#if defined(__x86_64__)
  if (crc32c_internal::HasHardware()) {
    return ExtendWithHardware(crc, data, bytes);
  }
#endif
  return crc32c_internal::ExtendWithTable(crc, data, bytes);
}

}  // namespace weir
