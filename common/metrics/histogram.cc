#include "common/metrics/histogram.h"

#include <cmath>

namespace weir {
namespace {

// Keeps I2: the count is made of the buckets as they were read.
template <size_t kCount>
void ReadBuckets(const std::array<std::atomic<uint64_t>, kCount>& buckets,
                 HistogramSnapshot* snapshot) {
  snapshot->counts.reserve(kCount);
  for (const std::atomic<uint64_t>& bucket : buckets) {
    snapshot->counts.push_back(bucket.load(std::memory_order_relaxed));
    snapshot->count += snapshot->counts.back();
  }
}

}  // namespace

HistogramSnapshot TimeHistogram::Snapshot() const {
  HistogramSnapshot snapshot;
  snapshot.bounds.reserve(kBounds);
  for (int i = 0; i < kBounds; ++i) {
    // The bounds by which BucketOf counts (I1), by a division of whole numbers,
    // so that the first one prints as 1e-06 and not as its neighbour.
    snapshot.bounds.push_back(std::ldexp(1.0, i) / 1e6);
  }
  ReadBuckets(buckets_, &snapshot);
  snapshot.sum =
      static_cast<double>(sum_ns_.load(std::memory_order_relaxed)) / 1e9;
  return snapshot;
}

HistogramSnapshot CountHistogram::Snapshot() const {
  HistogramSnapshot snapshot;
  snapshot.bounds.reserve(kBounds);
  snapshot.bounds.push_back(0);
  for (int i = 0; i < kBounds - 1; ++i) {
    snapshot.bounds.push_back(std::ldexp(1.0, i));
  }
  ReadBuckets(buckets_, &snapshot);
  snapshot.sum = static_cast<double>(sum_.load(std::memory_order_relaxed));
  return snapshot;
}

}  // namespace weir
