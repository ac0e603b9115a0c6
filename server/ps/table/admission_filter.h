// Counts ids that have no row yet, in a fixed amount of memory.
//
// Place: under TableStripe, for admission by count.
//
// Terms
//   line   64 counters of a byte. An id has 4 of them, all in one line.
//
// Invariants
//   I1. A count is never too small within one period, so an id is admitted at
//       its k-th touch or earlier; earlier with a probability below 1% while
//       most ids come once.
//   I2. All counters are halved once a period, which is 8 touches for each
//       line: an id that comes seldom is not admitted in the end only because
//       it comes for ever.
// Threads: compatible; the stripe's lock.
// Cost: one cache line a touch; the whole filter once a period.
// Source: Cormode and Muthukrishnan, "An Improved Data Stream Summary: The
//   Count-Min Sketch", J. Algorithms 55(1), 2005; conservative update: Estan
//   and Varghese, SIGCOMM 2002; halving: Einziger et al., "TinyLFU", 2017.
#ifndef SERVER_PS_TABLE_ADMISSION_FILTER_H_
#define SERVER_PS_TABLE_ADMISSION_FILTER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weir {

class AdmissionFilter {
 public:
  static constexpr uint32_t kMaxCount = 255;
  static constexpr int64_t kLineBytes = 64;

  // `bytes` is rounded down to whole lines; 0: no filter.
  explicit AdmissionFilter(int64_t bytes)
      : lines_(static_cast<size_t>(bytes / kLineBytes)) {}

  int64_t bytes() const {
    return kLineBytes * static_cast<int64_t>(lines_.size());
  }
  // Touches of `hash` so far.
  uint32_t Count(uint64_t hash) const;
  // Counts one touch and returns Count. REQUIRES: bytes() > 0.
  uint32_t Add(uint64_t hash);

 private:
  struct alignas(64) Line {
    std::array<uint8_t, 64> counter = {};
  };
  static constexpr int64_t kTouchesPerLine = 8;

  struct Places {
    size_t line;
    std::array<size_t, 4> counter;
  };
  Places PlacesOf(uint64_t hash) const;
  void Halve();

  std::vector<Line> lines_;
  int64_t touches_ = 0;  // of this period
};

}  // namespace weir

#endif  // SERVER_PS_TABLE_ADMISSION_FILTER_H_
