#include "proto/wire/measures.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace weir {
namespace {

TEST(MeasuresTest, EveryFigureOfAProcessTravels) {
  HostUsage usage;
  usage.cpu_ns = 1;
  usage.major_faults = 2;
  usage.late_ns = 3;
  usage.late_count = 4;
  usage.memory_stall_ns = 5;
  usage.processors = 0.5;
  usage.resident_bytes = 7;
  usage.memory_bytes_max = 8;
  const ProcessUsage proto = ToProto(usage);
  EXPECT_EQ(proto.cpu_ns(), 1u);
  EXPECT_EQ(proto.major_faults(), 2u);
  EXPECT_EQ(proto.late_ns(), 3u);
  EXPECT_EQ(proto.late_count(), 4u);
  EXPECT_EQ(proto.memory_stall_ns(), 5u);
  EXPECT_EQ(proto.processors(), 0.5);
  EXPECT_EQ(proto.resident_bytes(), 7u);
  EXPECT_EQ(proto.memory_bytes_max(), 8u);
}

// Bucket i of Durations has times of at most 2^i microseconds.
TEST(MeasuresTest, TimesTravelByTheBucketsThatTheProtoNames) {
  TimeHistogram times;
  times.Record(900);               // bucket 0
  times.Record(3'000);             // bucket 2
  times.Record(3'500);             // bucket 2
  times.Record(int64_t{1} << 62);  // the last one
  const Durations proto = ToProto(times.Snapshot());
  ASSERT_GE(proto.bucket_size(), 4);
  EXPECT_EQ(proto.bucket(0), 1u);
  EXPECT_EQ(proto.bucket(1), 0u);
  EXPECT_EQ(proto.bucket(2), 2u);
  EXPECT_EQ(proto.bucket(proto.bucket_size() - 1), 1u);
}

TEST(MeasuresTest, TimesComeBackAsTheyWere) {
  TimeHistogram times;
  for (int64_t ns = 1; ns < int64_t{1} << 40; ns *= 3) {
    times.Record(ns);
  }
  const HistogramSnapshot before = times.Snapshot();
  Durations proto = ToProto(before);
  const HistogramSnapshot after = FromProto(proto);
  EXPECT_EQ(after.bounds, before.bounds);
  EXPECT_EQ(after.counts, before.counts);
  EXPECT_EQ(after.count, before.count);
  EXPECT_NEAR(after.sum, before.sum, 1e-9 * before.sum);
  // A peer may send more.
  for (int i = 0; i < 1000; ++i) {
    proto.add_bucket(1);
  }
  EXPECT_EQ(FromProto(proto).counts.size(), before.counts.size());
}

}  // namespace
}  // namespace weir
