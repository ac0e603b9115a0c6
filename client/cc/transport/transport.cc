#include "client/cc/transport/transport.h"

#include <sys/mman.h>

#include <algorithm>

#include "client/cc/transport/retry_policy.h"

namespace weir {
namespace {

constexpr size_t kHugePageBytes = 2 << 20;  // of x86-64

}  // namespace

absl::Status SendUntilWhole(const std::function<absl::Status()>& send) {
  absl::Status status = send();
  for (int sent = 1;
       sent < RetryPolicy::kDamagedMax && absl::IsDataLoss(status); ++sent) {
    status = send();
  }
  return status;
}

std::shared_ptr<float> NewPrivateBuffer(size_t elements) {
  const size_t bytes = std::max<size_t>(elements * sizeof(float), 1);
  // One huge page more than needed, so that the buffer can begin on one: the
  // kernel gives huge pages to aligned ranges only. NORESERVE, since pages that
  // nobody touches take no memory.
  void* const mapped =
      mmap(nullptr, bytes + kHugePageBytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    return nullptr;
  }
  const size_t begin = reinterpret_cast<size_t>(mapped);
  char* const memory =
      static_cast<char*>(mapped) + (kHugePageBytes - begin % kHugePageBytes);
  // A system without huge pages refuses, which changes nothing but speed.
  madvise(memory, bytes, MADV_HUGEPAGE);
  return std::shared_ptr<float>(
      reinterpret_cast<float*>(memory),
      [mapped, bytes](float*) { munmap(mapped, bytes + kHugePageBytes); });
}

std::shared_ptr<float> Transport::NewBuffer(size_t elements) {
  return NewPrivateBuffer(elements);
}

}  // namespace weir
