#include "common/objects/chunk_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/exhausted.h"
#include "common/base/status.h"
#include "common/threads/thread.h"

namespace weir {
namespace {

// Of an object; more than arrays are read side by side.
constexpr size_t kRecentMax = 16;

}  // namespace

ChunkCache::~ChunkCache() {
  std::vector<Thread> threads;
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    threads.swap(threads_);
    work_.NotifyAll();
  }
  for (Thread& thread : threads) {
    thread.join();
  }
}

int64_t ChunkCache::AddObject(int64_t bytes, Fetch fetch) {
  MutexLock lock(&mutex_);
  const int64_t object = next_object_++;
  objects_[object] = {bytes, std::move(fetch), {}};
  return object;
}

void ChunkCache::RemoveObject(int64_t object) {
  MutexLock lock(&mutex_);
  bool under_way = true;
  while (under_way) {
    under_way = false;
    auto chunk = chunks_.lower_bound({object, 0});
    while (chunk != chunks_.end() && chunk->first.first == object) {
      if (chunk->second->started && !chunk->second->ready) {
        under_way = true;
        ++chunk;
      } else {
        chunk = chunks_.erase(chunk);  // also those that nobody has begun
      }
    }
    if (under_way) {
      changed_.Wait(&mutex_);
    }
  }
  objects_.erase(object);
  if (objects_.empty()) {
    spare_.clear();
  }
  changed_.NotifyAll();
}

absl::Status ChunkCache::Read(int64_t object, int64_t offset, char* data,
                              size_t bytes) {
  while (bytes > 0) {
    const int64_t number = offset / kChunkBytes;
    const auto in_chunk = static_cast<size_t>(offset % kChunkBytes);
    WEIR_ASSIGN_OR_RETURN(
        const std::shared_ptr<Chunk> chunk,
        Get({object, number}, offset + static_cast<int64_t>(bytes)));
    const size_t taken = std::min(bytes, chunk->bytes - in_chunk);
    std::memcpy(data, chunk->memory.data() + in_chunk, taken);
    Release(chunk.get());
    data += taken;
    offset += static_cast<int64_t>(taken);
    bytes -= taken;
  }
  return absl::OkStatus();
}

void ChunkCache::Release(Chunk* chunk) {
  MutexLock lock(&mutex_);
  --chunk->readers;
}

absl::StatusOr<std::shared_ptr<ChunkCache::Chunk>> ChunkCache::Get(
    const ChunkId& id, int64_t end) {
  for (;;) {
    std::shared_ptr<Chunk> chunk;
    bool ours = false;
    {
      MutexLock lock(&mutex_);
      while ((chunk = FindOrAdd(id, /*read_ahead=*/false)) == nullptr) {
        changed_.Wait(&mutex_);
      }
      ++chunk->readers;
      chunk->used = ++uses_;
      chunk->done |= end >= std::min((id.second + 1) * kChunkBytes,
                                     objects_.at(id.first).bytes);
      ours = !std::exchange(chunk->started, true);
      if (InOrder(id)) {
        // The one before stays, for a read that begins in it.
        const auto passed = chunks_.find({id.first, id.second - 2});
        if (passed != chunks_.end() && passed->second->done &&
            passed->second->ready) {
          Drop(passed);
        }
        ReadAhead(id);
      }
    }
    if (ours) {
      FetchChunk(id, chunk.get());
    }
    MutexLock lock(&mutex_);
    while (!chunk->ready) {
      changed_.Wait(&mutex_);
    }
    if (chunk->status.ok()) {
      return chunk;
    }
    --chunk->readers;
    if (ours) {
      return chunk->status;
    }
    // It failed for somebody else, or when nobody asked yet: we try ourselves.
  }
}

bool ChunkCache::InOrder(const ChunkId& id) {
  std::deque<int64_t>& recent = objects_.at(id.first).recent;
  if (std::find(recent.begin(), recent.end(), id.second) == recent.end()) {
    recent.push_back(id.second);
    if (recent.size() > kRecentMax) {
      recent.pop_front();
    }
  }
  return std::find(recent.begin(), recent.end(), id.second - 1) != recent.end();
}

std::shared_ptr<ChunkCache::Chunk> ChunkCache::FindOrAdd(const ChunkId& id,
                                                         bool read_ahead) {
  const auto found = chunks_.find(id);
  if (found != chunks_.end()) {
    return found->second;
  }
  if (chunks_.size() == kChunksMax) {           // I1
    const auto rank = [](const Chunk& chunk) {  // I2
      return std::make_pair(!chunk.done, chunk.used);
    };
    auto first = chunks_.end();
    for (auto it = chunks_.begin(); it != chunks_.end(); ++it) {
      const Chunk& chunk = *it->second;
      if (chunk.ready && (chunk.done || !read_ahead) &&
          (first == chunks_.end() || rank(chunk) < rank(*first->second))) {
        first = it;
      }
    }
    if (first == chunks_.end()) {
      return nullptr;
    }
    Drop(first);
  }
  return chunks_[id] = std::make_shared<Chunk>();
}

void ChunkCache::Drop(
    std::map<ChunkId, std::shared_ptr<Chunk>>::iterator chunk) {
  if (chunk->second->readers == 0) {
    spare_.push_back(std::move(chunk->second->memory));
  }
  chunks_.erase(chunk);
}

void ChunkCache::ReadAhead(const ChunkId& id) {
  const int64_t bytes = objects_.at(id.first).bytes;
  const int64_t end =
      std::min(id.second + 1 + kAhead, (bytes + kChunkBytes - 1) / kChunkBytes);
  while (id.second + 1 < end && threads_.size() < kThreads) {
    absl::StatusOr<Thread> thread = StartThread([this] { Run(); });
    if (!thread.ok()) {
      break;
    }
    threads_.push_back(*std::move(thread));
  }
  if (threads_.empty()) {
    return;  // nobody would fetch what is wanted, so it would never make room
  }
  for (int64_t number = id.second + 1; number < end; ++number) {
    const ChunkId next = {id.first, number};
    const std::shared_ptr<Chunk> chunk = FindOrAdd(next, /*read_ahead=*/true);
    if (chunk == nullptr) {
      break;
    }
    if (chunk->used == 0) {
      chunk->used = ++uses_;
      wanted_.push_back(next);
      work_.NotifyOne();
    }
  }
}

void ChunkCache::FetchChunk(const ChunkId& id, Chunk* chunk) {
  Fetch fetch;
  const int64_t begin = id.second * kChunkBytes;
  int64_t bytes = 0;
  PageBuffer memory;
  {
    MutexLock lock(&mutex_);
    const Object& object = objects_.at(id.first);
    fetch = object.fetch;
    bytes = std::min(kChunkBytes, object.bytes - begin);
    if (!spare_.empty()) {
      memory = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  const absl::Status status = OrExhausted([&] {
    if (memory.data() == nullptr) {
      memory = PageBuffer(static_cast<size_t>(kChunkBytes));
    }
    return fetch(begin, memory.data(), bytes);
  });
  MutexLock lock(&mutex_);
  chunk->memory = std::move(memory);
  chunk->bytes = static_cast<size_t>(bytes);
  chunk->status = status;
  chunk->ready = true;
  const auto found = chunks_.find(id);
  if (!status.ok() && found != chunks_.end() && found->second.get() == chunk) {
    chunks_.erase(found);  // whoever reads it has it fetched again
  }
  changed_.NotifyAll();
}

void ChunkCache::Run() {
  for (;;) {
    ChunkId id;
    std::shared_ptr<Chunk> chunk;
    {
      MutexLock lock(&mutex_);
      while (!stop_ && wanted_.empty()) {
        work_.Wait(&mutex_);
      }
      if (stop_) {
        return;
      }
      id = wanted_.front();
      wanted_.pop_front();
      const auto found = chunks_.find(id);
      // It may have gone with its object, or its reader was faster.
      if (found == chunks_.end() ||
          std::exchange(found->second->started, true)) {
        continue;
      }
      chunk = found->second;
    }
    FetchChunk(id, chunk.get());
  }
}

}  // namespace weir
