// When a ps that was asked to end may do so.
//
// Place: weir_ps asks after SIGTERM. Hello tells the chief
// (HelloReply.leaving), which saves the job and answers with Shutdown.
// Threads: safe.
#ifndef SERVER_PS_SERVICE_LEAVING_H_
#define SERVER_PS_SERVICE_LEAVING_H_

#include <chrono>
#include <optional>

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace weir {

class Leaving {
 public:
  // A chief asks every second, and a busy host may delay that.
  static constexpr std::chrono::seconds kChiefSilenceMax{5};

  // `grace`: how long a chief may take.
  Leaving(Clock* clock, std::chrono::nanoseconds grace)
      : clock_(clock), grace_ns_(grace.count()) {}

  // A chief's Hello came.
  void OnChief();
  // From now on the ps is to end.
  void Begin();
  bool begun() const;
  // It has begun, and nobody is there to wait for or the time is over.
  bool MayGo() const;

 private:
  Clock* const clock_;
  const int64_t grace_ns_;
  mutable Mutex mutex_;
  std::optional<int64_t> chief_ns_ ABSL_GUARDED_BY(mutex_);  // last heard
  std::optional<int64_t> begun_ns_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // SERVER_PS_SERVICE_LEAVING_H_
