// The newest readings of sums that only grow, so that the difference of two of
// them is what happened in between.
//
// Threads: compatible.
#ifndef SERVER_CHIEF_REPORT_MOVING_WINDOW_H_
#define SERVER_CHIEF_REPORT_MOVING_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace weir {

// Reports are of the last so many seconds: long enough for a mean, short enough
// to see a change.
inline constexpr int64_t kReportWindowNs = 10'000'000'000;

template <typename Sums>
class MovingWindow {
 public:
  // Readings that follow each other faster replace the newest one.
  static constexpr int64_t kApartNs = 500'000'000;
  static constexpr size_t kReadingsMax = 64;

  // Takes a reading. `enough(begin, end)` says whether what lies between two
  // readings tells something; the window stays longer until it does.
  template <typename Enough>
  void Add(int64_t now_ns, Sums sums, const Enough& enough) {
    if (readings_.size() >= 2 &&
        now_ns - readings_[readings_.size() - 2].first < kApartNs) {
      readings_.pop_back();
    }
    readings_.emplace_back(now_ns, std::move(sums));
    while (readings_.size() > kReadingsMax ||
           (readings_.size() > 2 &&
            readings_[1].first <= now_ns - kReportWindowNs &&
            enough(readings_[1].second, readings_.back().second))) {
      readings_.pop_front();
    }
  }
  void Add(int64_t now_ns, Sums sums) {
    Add(now_ns, std::move(sums), [](const Sums&, const Sums&) { return true; });
  }
  // The sums began anew.
  void Clear() { readings_.clear(); }

  // Whether there are two readings.
  bool known() const { return readings_.size() >= 2; }
  double seconds() const {
    return static_cast<double>(readings_.back().first -
                               readings_.front().first) /
           1e9;
  }
  // REQUIRES: known().
  const Sums& begin() const { return readings_.front().second; }
  const Sums& end() const { return readings_.back().second; }

 private:
  std::deque<std::pair<int64_t, Sums>> readings_;  // when, and what
};

// The growth of a sum in nanoseconds, in seconds. A sum that shrank began anew.
inline double GrownSeconds(uint64_t begin, uint64_t end) {
  return end > begin ? static_cast<double>(end - begin) / 1e9 : 0.0;
}
inline double Grown(uint64_t begin, uint64_t end) {
  return end > begin ? static_cast<double>(end - begin) : 0.0;
}

}  // namespace weir

#endif  // SERVER_CHIEF_REPORT_MOVING_WINDOW_H_
