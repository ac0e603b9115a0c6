#include "server/ps/table/admission_filter.h"

#include <algorithm>

#include "common/job/row_hash.h"

namespace weir {

AdmissionFilter::Places AdmissionFilter::PlacesOf(uint64_t hash) const {
  // Mixed again: the top bits of `hash` are the same in the whole stripe.
  const uint64_t mixed = IndexHash(hash);
  Places places = {};
  places.line =
      static_cast<size_t>((mixed >> 32) * uint64_t{lines_.size()} >> 32);
  for (size_t k = 0; k < places.counter.size(); ++k) {
    places.counter[k] = (mixed >> (8 * k)) & 63;
  }
  return places;
}

uint32_t AdmissionFilter::Count(uint64_t hash) const {
  if (lines_.empty()) {
    return 0;
  }
  // I1. Other ids can only have raised a counter, so the smallest one is the
  // nearest, and never below the id's own count.
  const Places places = PlacesOf(hash);
  uint8_t count = kMaxCount;
  for (const size_t k : places.counter) {
    count = std::min(count, lines_[places.line].counter[k]);
  }
  return count;
}

uint32_t AdmissionFilter::Add(uint64_t hash) {
  // I2. In between, counters grow by what came in one period alone.
  if (++touches_ > kTouchesPerLine * static_cast<int64_t>(lines_.size())) {
    Halve();
    touches_ = 1;
  }
  const uint32_t count = std::min(Count(hash) + 1, kMaxCount);
  const Places places = PlacesOf(hash);
  for (const size_t k : places.counter) {
    // Conservative: only counters that are behind.
    uint8_t& counter = lines_[places.line].counter[k];
    counter = std::max(counter, static_cast<uint8_t>(count));
  }
  return count;
}

void AdmissionFilter::Halve() {
  for (Line& line : lines_) {
    for (uint8_t& counter : line.counter) {
      counter /= 2;
    }
  }
}

}  // namespace weir
