#include "client/cc/transport.h"

#include <algorithm>
#include <cstdlib>

namespace weir {
namespace {

constexpr size_t kAlignBytes = 64;

}  // namespace

std::shared_ptr<float> Transport::NewBuffer(size_t elements) {
  const size_t bytes = elements * sizeof(float);
  float* const memory = static_cast<float*>(std::aligned_alloc(
      kAlignBytes, (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes));
  if (memory != nullptr) {
    std::fill_n(memory, elements, 0.0f);
  }
  return std::shared_ptr<float>(memory, std::free);
}

}  // namespace weir
