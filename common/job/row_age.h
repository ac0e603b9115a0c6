// How old a row is, on a clock of which it keeps 32 bits.
//
// A table's clock is 64 bits wide and never goes back; a row keeps the low 32
// of its last touch. Ages are differences modulo 2^32, so they are right while
// no row is older than 2^32: a ps sets older ones to kRowAgeMax + 1 in time.
// See "Embedding tables" in docs/design_notes.md.
#ifndef COMMON_JOB_ROW_AGE_H_
#define COMMON_JOB_ROW_AGE_H_

#include <cstdint>

namespace weir {

// Ages up to this are told apart; the largest age at which rows may expire.
inline constexpr uint32_t kRowAgeMax = uint32_t{3} << 30;
// Rows are looked through for too large ages whenever the clock has moved on by
// this. The sum of both stays below 2^32 - kRowClockAhead.
inline constexpr uint64_t kAgeLimitPeriod = uint64_t{1} << 29;
// A row may be touched by a thread that read the clock so much later.
inline constexpr uint32_t kRowClockAhead = uint32_t{1} << 24;
static_assert(kRowAgeMax + 1 + kAgeLimitPeriod + kRowClockAhead <= uint64_t{1}
                                                                       << 32);

// Units of the clock since `touched`; 0 for a touch that is ahead of `now`.
inline uint32_t RowAge(uint32_t now, uint32_t touched) {
  const uint32_t age = now - touched;
  return age > ~uint32_t{0} - kRowClockAhead ? 0 : age;
}

// The touch that a row of that age keeps at time `now`.
inline uint32_t TouchedAt(uint32_t now, uint32_t age) {
  return now - (age <= kRowAgeMax ? age : kRowAgeMax + 1);
}

}  // namespace weir

#endif  // COMMON_JOB_ROW_AGE_H_
