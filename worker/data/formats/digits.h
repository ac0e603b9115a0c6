// Draws digits that look handwritten: data for a demo without a download.
//
// Place: DigitsDataset calls it; a job asks for it with `digits { count: N }`.
//
// Terms
//   stroke   a smooth curve through a few control points; each digit has one
//            to three, and most digits have more than one way to write them.
//   stream   an independent endless sequence: 0 to train on, 1 held out.
//
// Invariants
//   I1. A sample is a pure function of (seed, stream, index): the same bytes on
//       every machine and compiler, since only +, -, *, / and sqrt are used,
//       whose results IEEE 754 fixes.
//   I2. Samples [10k, 10k+10) hold every digit once, in random order.
// Threads: safe.
// Cost: about 25 us for each sample (2026-11, one core of the build machine).
#ifndef WORKER_DATA_FORMATS_DIGITS_H_
#define WORKER_DATA_FORMATS_DIGITS_H_

#include <cstdint>

namespace weir {

constexpr int kDigitSide = 28;  // pixels
constexpr int kDigitPixels = kDigitSide * kDigitSide;

// Returns the digit, 0 to 9, that sample `index` shows.
int DigitLabel(uint64_t seed, uint32_t stream, uint64_t index);

// Draws sample `index` into pixels[kDigitPixels], row-major, 0 = background.
// Returns its label.
int RenderDigit(uint64_t seed, uint32_t stream, uint64_t index,
                uint8_t* pixels);

}  // namespace weir

#endif  // WORKER_DATA_FORMATS_DIGITS_H_
