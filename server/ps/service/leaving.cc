#include "server/ps/service/leaving.h"

namespace weir {

void Leaving::OnChief() {
  MutexLock lock(&mutex_);
  chief_ns_ = clock_->NowNs();
}

void Leaving::Begin() {
  MutexLock lock(&mutex_);
  // A second SIGTERM does not give the chief more time.
  if (!begun_ns_.has_value()) {
    begun_ns_ = clock_->NowNs();
  }
}

bool Leaving::begun() const {
  MutexLock lock(&mutex_);
  return begun_ns_.has_value();
}

bool Leaving::MayGo() const {
  const int64_t now = clock_->NowNs();
  MutexLock lock(&mutex_);
  if (!begun_ns_.has_value()) {
    return false;
  }
  // Without a chief there is nobody to save the job. A chief that fell silent
  // has died, or finds this ps no more.
  const int64_t silence_max =
      std::chrono::nanoseconds(kChiefSilenceMax).count();
  return !chief_ns_.has_value() || now - *chief_ns_ > silence_max ||
         now - *begun_ns_ > grace_ns_;
}

}  // namespace weir
