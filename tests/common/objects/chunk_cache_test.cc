// What is read is what is there, each chunk is fetched once, and chunks that
// will be read next are fetched before.
#include "common/objects/chunk_cache.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "gtest/gtest.h"
#include "tests/support/no_threads.h"

namespace weir {
namespace {

constexpr int64_t kChunk = ChunkCache::kChunkBytes;

// The byte of an object at an offset.
char ByteAt(int64_t offset) {
  return static_cast<char>((offset * 2654435761U) >> 13);
}

// An object that counts its fetches.
class FakeObject {
 public:
  explicit FakeObject(int64_t bytes) : bytes_(bytes) {}

  int64_t AddTo(ChunkCache* cache) {
    return cache->AddObject(bytes_,
                            [this](int64_t offset, char* data, int64_t bytes) {
                              return Fetch(offset, data, bytes);
                            });
  }
  void FailWith(const absl::Status& status) {
    MutexLock lock(&mutex_);
    // Kept, because the last thread that lets go of a status frees it, and
    // Debian's Abseil counts who holds one without ThreadSanitizer's knowledge:
    // it would take that for a race.
    given_.push_back(status);
    status_ = status;
  }
  // How often each chunk was fetched.
  std::map<int64_t, int> fetches() const {
    MutexLock lock(&mutex_);
    return fetches_;
  }
  void WaitForFetches(size_t chunks) {
    MutexLock lock(&mutex_);
    while (fetches_.size() < chunks) {
      changed_.Wait(&mutex_);
    }
  }

 private:
  absl::Status Fetch(int64_t offset, char* data, int64_t bytes) {
    for (int64_t i = 0; i < bytes; ++i) {
      data[i] = ByteAt(offset + i);
    }
    MutexLock lock(&mutex_);
    ++fetches_[offset / kChunk];
    changed_.NotifyAll();
    return status_;
  }

  const int64_t bytes_;
  mutable Mutex mutex_;
  CondVar changed_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> given_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, int> fetches_ ABSL_GUARDED_BY(mutex_);
};

void ExpectRead(ChunkCache* cache, int64_t object, int64_t offset,
                size_t bytes) {
  std::string data(bytes, '\0');
  const absl::Status status = cache->Read(object, offset, data.data(), bytes);
  ASSERT_TRUE(status.ok()) << status;
  for (size_t i = 0; i < bytes; ++i) {
    ASSERT_EQ(data[i], ByteAt(offset + static_cast<int64_t>(i)))
        << "at " << offset << " + " << i;
  }
}

TEST(ChunkCacheTest, ReadsAcrossChunksAndAtTheEnd) {
  FakeObject fake(2 * kChunk + 100);
  ChunkCache cache;
  const int64_t object = fake.AddTo(&cache);
  ExpectRead(&cache, object, 0, 0);
  ExpectRead(&cache, object, 0, 8);
  ExpectRead(&cache, object, kChunk - 5, 10);
  ExpectRead(&cache, object, 2 * kChunk + 90, 10);
  EXPECT_EQ(fake.fetches(), (std::map<int64_t, int>{{0, 1}, {1, 1}, {2, 1}}));
  ExpectRead(&cache, object, 0, 2 * kChunk + 100);
  cache.RemoveObject(object);
}

TEST(ChunkCacheTest, ReadsAheadOnceChunksAreReadInOrder) {
  FakeObject fake(20 * kChunk);
  ChunkCache cache;
  const int64_t object = fake.AddTo(&cache);
  ExpectRead(&cache, object, 7 * kChunk, 10);
  EXPECT_EQ(fake.fetches().size(), 1U);
  ExpectRead(&cache, object, 8 * kChunk, 10);
  fake.WaitForFetches(2 + ChunkCache::kAhead);
  EXPECT_EQ(fake.fetches().rbegin()->first, 8 + ChunkCache::kAhead);
  cache.RemoveObject(object);
}

TEST(ChunkCacheTest, FetchesEachChunkOnceForThreeArraysSideBySide) {
  constexpr int64_t kArray = 12;  // chunks
  FakeObject fake(3 * kArray * kChunk);
  ChunkCache cache;
  const int64_t object = fake.AddTo(&cache);
  constexpr int64_t kPiece = kChunk / 4;
  for (int64_t at = 0; at < kArray * kChunk; at += kPiece) {
    for (int64_t array = 0; array < 3; ++array) {
      ExpectRead(&cache, object, array * kArray * kChunk + at, kPiece);
    }
  }
  const std::map<int64_t, int> fetches = fake.fetches();
  EXPECT_EQ(fetches.size(), static_cast<size_t>(3 * kArray));
  int repeated = 0;
  for (const auto& [chunk, times] : fetches) {
    repeated += times - 1;
  }
  // What the end of one array reads ahead of is the begin of the next, which
  // has been read.
  EXPECT_LE(repeated, 2 * ChunkCache::kAhead);
  cache.RemoveObject(object);
}

TEST(ChunkCacheTest, AFailureIsToldAndTheChunkIsFetchedAgain) {
  FakeObject fake(kChunk);
  ChunkCache cache;
  const int64_t object = fake.AddTo(&cache);
  fake.FailWith(absl::UnavailableError("503"));
  char byte = 0;
  EXPECT_TRUE(absl::IsUnavailable(cache.Read(object, 0, &byte, 1)));
  fake.FailWith(absl::OkStatus());
  ExpectRead(&cache, object, 0, 100);
  cache.RemoveObject(object);
}

TEST(ChunkCacheTest, HoldsNoMoreChunksThanItSays) {
  constexpr int64_t kChunks = 2 * static_cast<int64_t>(ChunkCache::kChunksMax);
  FakeObject fake(kChunks * kChunk);
  ChunkCache cache;
  const int64_t object = fake.AddTo(&cache);
  const auto touch = [&](int64_t chunk) {
    ExpectRead(&cache, object, chunk * kChunk, 10);
  };
  // Backwards, so that nothing is read ahead.
  for (int64_t chunk = kChunks - 1; chunk >= 0; --chunk) {
    touch(chunk);
  }
  touch(static_cast<int64_t>(ChunkCache::kChunksMax) - 1);  // the last one held
  EXPECT_EQ(fake.fetches().at(ChunkCache::kChunksMax - 1), 1);
  touch(kChunks - 1);
  EXPECT_EQ(fake.fetches().at(kChunks - 1), 2);
  cache.RemoveObject(object);
}

TEST(ChunkCacheTest, WhatFailedAheadIsFetchedAgain) {
  FakeObject fake(12 * kChunk);
  ChunkCache cache;
  const int64_t object = fake.AddTo(&cache);
  ExpectRead(&cache, object, 0, 10);
  ExpectRead(&cache, object, kChunk, 10);  // fetches 2 to 9 ahead
  fake.WaitForFetches(10);
  fake.FailWith(absl::UnavailableError("503"));
  ExpectRead(&cache, object, 2 * kChunk, 10);  // fetches 10 ahead
  fake.WaitForFetches(11);
  fake.FailWith(absl::OkStatus());
  for (int64_t chunk = 3; chunk < 12; ++chunk) {
    ExpectRead(&cache, object, chunk * kChunk, 10);
  }
  cache.RemoveObject(object);
}

TEST(ChunkCacheTest, WithoutThreadsReadersFetchByThemselves) {
  constexpr int64_t kPlaces = 5;
  constexpr int64_t kApart = 20;  // chunks
  FakeObject fake(kPlaces * kApart * kChunk);
  ChunkCache cache;
  const NoThreads no_threads;
  const int64_t object = fake.AddTo(&cache);
  for (int64_t place = 0; place < kPlaces; ++place) {
    // Two chunks in order, so that what follows would be read ahead. In pieces:
    // what was read to its end makes room for that at once.
    for (int64_t piece = 0; piece < 4; ++piece) {
      ExpectRead(&cache, object, place * kApart * kChunk + piece * kChunk / 2,
                 kChunk / 2);
    }
  }
  EXPECT_EQ(fake.fetches().size(), size_t{2 * kPlaces});
  cache.RemoveObject(object);
}

TEST(ChunkCacheTest, WhoLeavesWaitsForWhatIsUnderWay) {
  Mutex mutex;
  CondVar changed;
  bool open = false;
  int running = 0;
  ChunkCache cache;
  const int64_t object =
      cache.AddObject(20 * kChunk, [&](int64_t offset, char*, int64_t) {
        MutexLock lock(&mutex);
        ++running;
        changed.NotifyAll();
        while (offset > kChunk && !open) {
          changed.Wait(&mutex);
        }
        --running;
        return absl::OkStatus();
      });
  char byte = 0;
  ASSERT_TRUE(cache.Read(object, 0, &byte, 1).ok());
  ASSERT_TRUE(cache.Read(object, kChunk, &byte, 1).ok());
  std::thread leaving;
  {
    MutexLock lock(&mutex);
    while (running < ChunkCache::kThreads) {
      changed.Wait(&mutex);
    }
    leaving = std::thread([&] { cache.RemoveObject(object); });
    open = true;
    changed.NotifyAll();
  }
  leaving.join();
  MutexLock lock(&mutex);
  EXPECT_EQ(running, 0);
}

TEST(ChunkCacheTest, ManyReadersReadWhatIsThere) {
  FakeObject shared(9 * kChunk);
  ChunkCache cache;
  const int64_t of_all = shared.AddTo(&cache);
  std::vector<std::unique_ptr<FakeObject>> fakes;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    fakes.push_back(std::make_unique<FakeObject>(9 * kChunk));
    threads.emplace_back([&cache, of_all, fake = fakes.back().get()] {
      const int64_t object = fake->AddTo(&cache);
      for (int64_t at = 0; at < 9 * kChunk; at += kChunk / 2) {
        ExpectRead(&cache, object, at, 500);
        ExpectRead(&cache, of_all, at, 500);
      }
      cache.RemoveObject(object);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  cache.RemoveObject(of_all);
}

}  // namespace
}  // namespace weir
