#include "common/metrics/histogram.h"

#include <cstdint>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

// The bucket that holds the one value of a snapshot.
int OnlyBucket(const HistogramSnapshot& snapshot) {
  EXPECT_EQ(snapshot.count, 1u);
  for (size_t i = 0; i < snapshot.counts.size(); ++i) {
    if (snapshot.counts[i] == 1) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

int BucketOfTime(int64_t ns) {
  TimeHistogram histogram;
  histogram.Record(ns);
  return OnlyBucket(histogram.Snapshot());
}

int BucketOfCount(int64_t value) {
  CountHistogram histogram;
  histogram.Record(value);
  return OnlyBucket(histogram.Snapshot());
}

TEST(TimeHistogramTest, HasBoundsFromAMicrosecondToAMinuteByPowersOfTwo) {
  const HistogramSnapshot snapshot = TimeHistogram().Snapshot();
  ASSERT_EQ(snapshot.bounds.size(), size_t{TimeHistogram::kBounds});
  ASSERT_EQ(snapshot.counts.size(), snapshot.bounds.size() + 1);
  EXPECT_EQ(snapshot.bounds.front(), 1e-6);
  EXPECT_EQ(snapshot.bounds[10], 1024e-6);
  EXPECT_EQ(snapshot.bounds.back(), 67.108864);
  EXPECT_EQ(snapshot.count, 0u);
  EXPECT_EQ(snapshot.sum, 0);
}

TEST(TimeHistogramTest, CountsATimeInTheFirstBucketThatMayHoldIt) {
  int64_t bound = 1000;
  for (int i = 0; i < TimeHistogram::kBounds; ++i, bound *= 2) {
    EXPECT_EQ(BucketOfTime(bound), i) << bound;
    EXPECT_EQ(BucketOfTime(bound + 1), i + 1) << bound;
  }
  EXPECT_EQ(BucketOfTime(0), 0);
  EXPECT_EQ(BucketOfTime(-5), 0);
  EXPECT_EQ(BucketOfTime(std::numeric_limits<int64_t>::max()),
            TimeHistogram::kBounds);
}

TEST(TimeHistogramTest, SumsTimesInSeconds) {
  TimeHistogram histogram;
  histogram.Record(1'500'000'000);
  histogram.Record(250'000'000);
  histogram.Record(-1);
  EXPECT_EQ(histogram.Snapshot().sum, 1.75);
  EXPECT_EQ(histogram.Snapshot().count, 3u);
}

TEST(CountHistogramTest, CountsANumberInTheFirstBucketThatMayHoldIt) {
  const HistogramSnapshot snapshot = CountHistogram().Snapshot();
  ASSERT_EQ(snapshot.bounds.size(), size_t{CountHistogram::kBounds});
  for (int i = 0; i < CountHistogram::kBounds; ++i) {
    const auto bound = static_cast<int64_t>(snapshot.bounds[i]);
    EXPECT_EQ(bound, i == 0 ? 0 : int64_t{1} << (i - 1));
    EXPECT_EQ(BucketOfCount(bound), i) << bound;
    EXPECT_EQ(BucketOfCount(bound + 1), i + 1) << bound;
  }
  EXPECT_EQ(BucketOfCount(-1), 0);
  EXPECT_EQ(BucketOfCount(std::numeric_limits<int64_t>::max()),
            CountHistogram::kBounds);
}

TEST(CountHistogramTest, SumsNumbers) {
  CountHistogram histogram;
  histogram.Record(3);
  histogram.Record(0);
  histogram.Record(70'000);
  EXPECT_EQ(histogram.Snapshot().sum, 70'003);
  EXPECT_EQ(histogram.Snapshot().count, 3u);
}

TEST(TimeHistogramTest, LosesNothingWhereManyThreadsRecord) {
  constexpr int kThreads = 4;
  constexpr int kTimes = 20'000;
  TimeHistogram histogram;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&histogram] {
      for (int i = 0; i < kTimes; ++i) {
        histogram.Record(int64_t{1000} << (i % 4));
      }
    });
  }
  uint64_t before = 0;
  while (before < uint64_t{kThreads} * kTimes) {
    const HistogramSnapshot snapshot = histogram.Snapshot();
    EXPECT_EQ(std::accumulate(snapshot.counts.begin(), snapshot.counts.end(),
                              uint64_t{0}),
              snapshot.count);
    ASSERT_GE(snapshot.count, before);
    before = snapshot.count;
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const HistogramSnapshot snapshot = histogram.Snapshot();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(snapshot.counts[i], uint64_t{kThreads} * kTimes / 4);
  }
  EXPECT_DOUBLE_EQ(snapshot.sum, kThreads * kTimes / 4 * 15e-6);
}

}  // namespace
}  // namespace weir
