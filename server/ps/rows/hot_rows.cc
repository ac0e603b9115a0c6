#include "server/ps/rows/hot_rows.h"

#include <algorithm>
#include <chrono>

#include "common/base/limits.h"

namespace weir {

HotRows::ByTable HotRows::Get() {
  MutexLock lock(&mutex_);  // I1
  const int64_t begin_ns = clock_->NowNs();
  if (begin_ns >= until_ns_) {
    found_ = look_();
    const int64_t end_ns = clock_->NowNs();
    const int64_t kept_ns = std::chrono::nanoseconds(kHotRowsKept).count();
    // I2
    until_ns_ = end_ns + std::max(kept_ns, end_ns - begin_ns);
  }
  return found_;
}

}  // namespace weir
