#include "worker/data/batch_prefetcher.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/data/fake_dataset.h"

namespace weir {
namespace {

std::unique_ptr<Batches> MakeBatches(const Dataset* dataset) {
  Batches::Options options;
  options.batch_size = 4;
  options.epochs = 10;
  return *Batches::Create(options, dataset);
}

BatchPrefetcher::Next CountTo(int64_t end) {
  return [next = int64_t{0}, end]() mutable -> std::optional<int64_t> {
    return next < end ? std::optional<int64_t>(next++) : std::nullopt;
  };
}

TEST(BatchPrefetcherTest, GivesTheSameBatchesInOrder) {
  const FakeDataset dataset(10);
  const auto batches = MakeBatches(&dataset);
  BatchPrefetcher prefetcher(batches.get(), CountTo(25));
  Batch batch;
  Batch expected;
  for (int64_t c = 0; c < 25; ++c) {
    ASSERT_TRUE(*prefetcher.Get(&batch));
    ASSERT_TRUE(batches->Make(c, &expected).ok());
    EXPECT_EQ(batch.contribution, c);
    EXPECT_EQ(batch.features, expected.features);
    EXPECT_EQ(batch.labels, expected.labels);
    EXPECT_EQ(batch.weight, expected.weight);
  }
  EXPECT_FALSE(*prefetcher.Get(&batch));
  EXPECT_FALSE(*prefetcher.Get(&batch));
  EXPECT_EQ(batch.contribution, 24);
}

TEST(BatchPrefetcherTest, RunsAheadOnlyAsFarAsItsBound) {
  const FakeDataset dataset(10);
  const auto batches = MakeBatches(&dataset);
  std::atomic<int64_t> asked = 0;
  BatchPrefetcher prefetcher(
      batches.get(),
      [&asked]() -> std::optional<int64_t> { return asked.fetch_add(1); });
  // It fills up without a Get.
  while (asked.load() < static_cast<int64_t>(BatchPrefetcher::kReadyMax)) {
    std::this_thread::yield();
  }
  Batch batch;
  for (int64_t got = 1; got <= 20; ++got) {
    ASSERT_TRUE(*prefetcher.Get(&batch));
    EXPECT_LE(asked.load(),
              got + static_cast<int64_t>(BatchPrefetcher::kReadyMax));
  }
}

TEST(BatchPrefetcherTest, AnErrorComesInItsPlaceAndStays) {
  const FakeDataset dataset(10, /*broken=*/9);
  Batches::Options options;
  options.batch_size = 4;
  options.epochs = 10;
  options.shuffle = false;  // sample 9 is in contribution 2
  const auto batches = *Batches::Create(options, &dataset);
  BatchPrefetcher prefetcher(batches.get(), CountTo(25));
  Batch batch;
  ASSERT_TRUE(*prefetcher.Get(&batch));
  ASSERT_TRUE(*prefetcher.Get(&batch));
  for (int i = 0; i < 2; ++i) {
    const absl::StatusOr<bool> got = prefetcher.Get(&batch);
    EXPECT_EQ(got.status().code(), absl::StatusCode::kDataLoss);
  }
}

TEST(BatchPrefetcherTest, StopsAtAnyMoment) {
  const FakeDataset dataset(100);
  const auto batches = MakeBatches(&dataset);
  for (int gets = 0; gets < 50; ++gets) {
    BatchPrefetcher prefetcher(batches.get(), CountTo(40));
    Batch batch;
    for (int i = 0; i < gets % 7; ++i) {
      ASSERT_TRUE(*prefetcher.Get(&batch));
    }
  }
}

TEST(BatchPrefetcherTest, ManyThreadsMakeBatchesFromOneObject) {
  const FakeDataset dataset(64);
  const auto batches = MakeBatches(&dataset);
  std::vector<std::thread> threads;
  std::atomic<int64_t> rows = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Batch batch;
      for (int64_t c = t; c < batches->contributions(); c += 4) {
        if (batches->Make(c, &batch).ok()) {
          rows += batch.rows;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(rows.load(), 640);
}

}  // namespace
}  // namespace weir
