#include "client/cc/transport/shared_buffers.h"

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
    buffers->buffers_[begin].memory = *std::move(memory);
  }
  return std::shared_ptr<float>(
      reinterpret_cast<float*>(begin), [buffers](float* buffer) {
        MutexLock lock(&buffers->mutex_);
        buffers->buffers_.erase(reinterpret_cast<const char*>(buffer));
      });
}

// First nobody finds it, then it changes: what was found is as it was written.
absl::Status SharedBuffers::MakePrivate(const SharedMemory& memory) {
  MutexLock lock(&mutex_);
  const auto it = buffers_.find(memory.data());
  if (it == buffers_.end() || it->second.is_private) {
    return absl::OkStatus();
  }
  it->second.is_private = true;
  return it->second.memory->MakePrivate();
}

std::shared_ptr<SharedMemory> SharedBuffers::Find(
    std::span<const char> bytes) const {
  MutexLock lock(&mutex_);
  auto it = buffers_.upper_bound(bytes.data());
  if (it == buffers_.begin()) {
    return nullptr;
  }
  --it;
  if (it->second.is_private) {
    return nullptr;
  }
  const std::shared_ptr<SharedMemory>& memory = it->second.memory;
  const size_t offset = static_cast<size_t>(bytes.data() - memory->data());
  return offset <= memory->bytes() && bytes.size() <= memory->bytes() - offset
             ? memory
             : nullptr;
}

}  // namespace weir
