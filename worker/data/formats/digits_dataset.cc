#include "worker/data/formats/digits_dataset.h"

#include <algorithm>
#include <array>

#include "worker/data/formats/digits.h"

namespace weir {

DigitsDataset::DigitsDataset(uint32_t count, uint32_t stream, uint64_t seed)
    : seed_(seed),
      stream_(stream),
      kept_count_(std::min<int64_t>(count, kKeptMax)),
      states_(std::make_unique<std::atomic<uint8_t>[]>(kept_count_)),
      pixels_(new uint8_t[kept_count_ * kDigitPixels]) {
  SetShape(count, {1, kDigitSide, kDigitSide});
}

absl::Status DigitsDataset::ReadSample(int64_t index, float* features,
                                       float* label) const {
  const auto number = static_cast<uint64_t>(index);
  // Drawn here when the sample is not kept, or when another thread is drawing
  // it: waiting for that thread would take as long.
  std::array<uint8_t, kDigitPixels> own;
  uint8_t* pixels = own.data();
  if (index < kept_count_) {
    uint8_t* const kept = &pixels_[index * kDigitPixels];
    uint8_t state = kEmpty;
    // Acquire on failure, too: pixels that another thread has kept are read
    // below. It stores kKept with release.
    if (states_[index].compare_exchange_strong(state, kDrawing,
                                               std::memory_order_acquire)) {
      RenderDigit(seed_, stream_, number, kept);
      states_[index].store(kKept, std::memory_order_release);
      state = kKept;
    }
    if (state == kKept) {
      pixels = kept;
    }
  }
  if (pixels == own.data()) {
    RenderDigit(seed_, stream_, number, pixels);
  }
  *label = static_cast<float>(DigitLabel(seed_, stream_, number));
  for (int i = 0; i < kDigitPixels; ++i) {
    features[i] = static_cast<float>(pixels[i]) / 255.0f;
  }
  return absl::OkStatus();
}

}  // namespace weir
