#include "client/cc/shared_buffers.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace weir {

std::shared_ptr<float> SharedBuffers::New(
    const std::shared_ptr<SharedBuffers>& buffers, size_t bytes) {
  auto memory = SharedMemory::Create(std::max<size_t>(bytes, 1));
  if (!memory.ok()) {
    return nullptr;
  }
  char* const begin = (*memory)->data();
  // Huge pages, where the system gives them to shared memory.
  madvise(begin, (*memory)->bytes(), MADV_HUGEPAGE);
  {
    MutexLock lock(&buffers->mutex_);
    buffers->memory_[begin] = *std::move(memory);
  }
  return std::shared_ptr<float>(
      reinterpret_cast<float*>(begin), [buffers](float* buffer) {
        MutexLock lock(&buffers->mutex_);
        buffers->memory_.erase(reinterpret_cast<const char*>(buffer));
      });
}

std::shared_ptr<SharedMemory> SharedBuffers::Find(
    std::span<const char> bytes) const {
  MutexLock lock(&mutex_);
  auto it = memory_.upper_bound(bytes.data());
  if (it == memory_.begin()) {
    return nullptr;
  }
  --it;
  const std::shared_ptr<SharedMemory>& memory = it->second;
  const size_t offset = static_cast<size_t>(bytes.data() - memory->data());
  return offset <= memory->bytes() && bytes.size() <= memory->bytes() - offset
             ? memory
             : nullptr;
}

}  // namespace weir
