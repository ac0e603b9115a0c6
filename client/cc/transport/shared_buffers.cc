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
  // The deleter holds `buffers`: memory may be given back after the transport
  // is gone. A ps that has mapped the memory keeps it until it lets go.
  return std::shared_ptr<float>(
      reinterpret_cast<float*>(begin), [buffers](float* buffer) {
        MutexLock lock(&buffers->mutex_);
        buffers->buffers_.erase(reinterpret_cast<const char*>(buffer));
      });
}

// Under one lock, in this order: a payload that Find returned before still has
// the shared bytes, and none is found after they have become private.
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
  // The last buffer that begins at or before the bytes; they may begin inside.
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
  // All of them must lie inside; written so that the sum cannot overflow.
  if (offset > memory->bytes() || bytes.size() > memory->bytes() - offset) {
    return nullptr;
  }
  return memory;
}

}  // namespace weir
