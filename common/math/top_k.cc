#include "common/math/top_k.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

// Magnitudes order as their bits do; the upper ones are sign-free exponent and
// four bits of mantissa.
constexpr int kBucketShift = 19;
constexpr size_t kBuckets = size_t{1} << (31 - kBucketShift);

uint32_t Magnitude(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7fffffffu;
}

// The smallest magnitude that begins a bucket and has at least k values at or
// above it.
uint32_t CoarseThreshold(const float* values, size_t count, size_t k) {
  std::array<uint32_t, kBuckets> histogram = {};
  for (size_t i = 0; i < count; ++i) {
    ++histogram[Magnitude(values[i]) >> kBucketShift];
  }
  size_t bucket = kBuckets;
  for (size_t above = 0; above < k;) {
    above += histogram[--bucket];
  }
  return static_cast<uint32_t>(bucket) << kBucketShift;
}

}  // namespace

std::vector<uint32_t> LargestPlaces(const float* values, size_t count,
                                    size_t k) {
  k = std::min(k, count);
  std::vector<uint32_t> places;
  if (k == 0) {
    return places;
  }
  // A histogram finds a threshold that lets little more than k values through,
  // so the exact selection works on few.
  const uint32_t coarse = CoarseThreshold(values, count, k);
  std::vector<uint32_t> magnitudes;
  for (size_t i = 0; i < count; ++i) {
    if (Magnitude(values[i]) >= coarse) {
      places.push_back(static_cast<uint32_t>(i));
      magnitudes.push_back(Magnitude(values[i]));
    }
  }
  std::nth_element(magnitudes.begin(),
                   magnitudes.begin() + static_cast<std::ptrdiff_t>(k - 1),
                   magnitudes.end(), std::greater<>());
  const uint32_t smallest = magnitudes[k - 1];
  size_t equal = k;  // of the smallest, how many are taken
  for (size_t i = 0; i < k; ++i) {
    if (magnitudes[i] > smallest) {
      --equal;
    }
  }
  // `places` ascend, so of those with the smallest magnitude the first stay.
  std::erase_if(places, [&](uint32_t place) {
    const uint32_t magnitude = Magnitude(values[place]);
    if (magnitude != smallest) {
      return magnitude < smallest;
    }
    if (equal == 0) {
      return true;
    }
    --equal;
    return false;
  });
  return places;
}

size_t EncodeTopK(const float* values, std::span<const uint32_t> places,
                  char* out) {
  char* const begin = out;
  const auto k = static_cast<uint32_t>(places.size());
  std::memcpy(out, &k, sizeof k);
  out += sizeof k;
  for (const uint32_t place : places) {
    std::memcpy(out, values + place, sizeof(float));
    out += sizeof(float);
  }
  uint32_t next = 0;
  for (const uint32_t place : places) {
    uint32_t gap = place - next;
    next = place + 1;
    for (; gap >= 0x80; gap >>= 7) {
      *out++ = static_cast<char>(gap | 0x80);
    }
    *out++ = static_cast<char>(gap);
  }
  return static_cast<size_t>(out - begin);
}

absl::Status DecodeTopK(std::span<const char> bytes, float* out, size_t count) {
  const auto cut = [&bytes] {
    return absl::InvalidArgumentError(absl::StrCat(
        "a TOP_K payload of ", bytes.size(), " bytes is cut short"));
  };
  uint32_t k = 0;
  if (bytes.size() < sizeof k) {
    return cut();
  }
  std::memcpy(&k, bytes.data(), sizeof k);
  if (k > count) {
    return absl::InvalidArgumentError(
        absl::StrCat("a TOP_K payload has ", k, " values for ", count));
  }
  // A value takes four bytes, and its gap one at least. So the loop below
  // cannot read values behind the end; of the gaps it checks each byte.
  if (bytes.size() < sizeof k + size_t{k} * (sizeof(float) + 1)) {
    return cut();
  }
  std::fill_n(out, count, 0.0f);
  const char* value = bytes.data() + sizeof k;
  const char* at = value + size_t{k} * sizeof(float);
  const char* const end = bytes.data() + bytes.size();
  uint64_t place = 0;
  for (uint32_t i = 0; i < k; ++i) {
    uint64_t gap = 0;
    for (int shift = 0;; shift += 7) {
      if (at == end || shift > 28) {
        return cut();
      }
      const auto byte = static_cast<uint8_t>(*at++);
      gap |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) {
        break;
      }
    }
    place += gap;
    if (place >= count) {
      return absl::InvalidArgumentError(
          absl::StrCat("a TOP_K payload names place ", place, " of ", count));
    }
    std::memcpy(out + place, value, sizeof(float));
    value += sizeof(float);
    ++place;
  }
  if (at != end) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a TOP_K payload has ", end - at, " bytes behind its end"));
  }
  return absl::OkStatus();
}

}  // namespace weir
