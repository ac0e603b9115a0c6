// Chunks of the objects that are being read, some ahead of their reader.
//
// Place: one in each S3Store. Whoever restores a checkpoint reads several
// arrays of one object side by side, each in order, so several chunks are held
// at a time. Where a chunk is read after the one before it, those that follow
// are fetched as well, and those that were passed are forgotten.
//
// Invariants
//   I1. No more than kChunksMax chunks are held or under way, of all objects
//       together: 64 MiB.
//   I2. What was read to its end makes room first, then what was used longest
//       ago; for reading ahead only the former. None that is under way does.
// Threads: safe. It starts kThreads threads when it first reads ahead. If the
//   system has none to give, nothing is read ahead.
// Errors: those of Fetch.
#ifndef COMMON_OBJECTS_CHUNK_CACHE_H_
#define COMMON_OBJECTS_CHUNK_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/base/page_buffer.h"
#include "common/threads/thread.h"

namespace weir {

class ChunkCache {
 public:
  static constexpr int64_t kChunkBytes = int64_t{2} << 20;
  static constexpr size_t kChunksMax = 32;
  // Three arrays side by side, as Adam has them, are 27 chunks.
  static constexpr int64_t kAhead = 8;
  static constexpr int kThreads = 8;

  // Reads bytes [offset, offset + bytes) of one object.
  using Fetch =
      std::function<absl::Status(int64_t offset, char* data, int64_t bytes)>;

  ChunkCache() = default;
  // REQUIRES: every object was removed.
  ~ChunkCache();

  // Returns the object's number. Threads of the cache call `fetch`, too.
  int64_t AddObject(int64_t bytes, Fetch fetch);
  // Returns when no call of its `fetch` is under way any more.
  void RemoveObject(int64_t object);

  // REQUIRES: the range is inside the object.
  absl::Status Read(int64_t object, int64_t offset, char* data, size_t bytes);

 private:
  struct Object {
    int64_t bytes = 0;
    Fetch fetch;
    std::deque<int64_t> recent;  // the chunks that were read last
  };
  // What the fetch of a chunk has brought does not change once it is ready.
  struct Chunk {
    bool started = false;
    bool ready = false;
    bool done = false;  // read to its end
    int readers = 0;    // who wait for it or copy from it
    uint64_t used = 0;  // of uses_, the last time
    PageBuffer memory;
    size_t bytes = 0;  // of it
    absl::Status status;
  };
  using ChunkId = std::pair<int64_t, int64_t>;  // object, number in it

  // The chunk, which is going to be read up to `end` of the object. The caller
  // is one of its readers until it calls Release.
  absl::StatusOr<std::shared_ptr<Chunk>> Get(const ChunkId& id, int64_t end);
  void Release(Chunk* chunk);
  // Null if there is no room (I2).
  std::shared_ptr<Chunk> FindOrAdd(const ChunkId& id, bool read_ahead)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets a chunk, and keeps its memory for the next.
  void Drop(std::map<ChunkId, std::shared_ptr<Chunk>>::iterator chunk)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the chunk is read behind the one before it.
  bool InOrder(const ChunkId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReadAhead(const ChunkId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // REQUIRES: whoever calls has set `started`.
  void FetchChunk(const ChunkId& id, Chunk* chunk);
  void Run();

  Mutex mutex_;
  CondVar changed_;  // a chunk
  CondVar work_;     // wanted_ or stop_
  std::map<int64_t, Object> objects_ ABSL_GUARDED_BY(mutex_);
  std::map<ChunkId, std::shared_ptr<Chunk>> chunks_ ABSL_GUARDED_BY(mutex_);
  std::vector<PageBuffer> spare_ ABSL_GUARDED_BY(mutex_);  // of chunks
  std::deque<ChunkId> wanted_ ABSL_GUARDED_BY(mutex_);     // by the threads
  std::vector<Thread> threads_ ABSL_GUARDED_BY(mutex_);
  int64_t next_object_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace weir

#endif  // COMMON_OBJECTS_CHUNK_CACHE_H_
