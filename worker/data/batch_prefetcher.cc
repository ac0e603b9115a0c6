#include "worker/data/batch_prefetcher.h"

#include <utility>

namespace weir {

BatchPrefetcher::BatchPrefetcher(const Batches* batches, Next next)
    : batches_(batches), next_(std::move(next)), thread_([this] { Run(); }) {}

BatchPrefetcher::~BatchPrefetcher() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }
  thread_.join();  // it may be in next_ or in Make, which are not interrupted
}

absl::StatusOr<bool> BatchPrefetcher::Get(Batch* batch) {
  MutexLock lock(&mutex_);
  while (ready_.empty() && !ended_) {
    changed_.Wait(&mutex_);
  }
  // Batches that were made before the error come first (I1).
  if (ready_.empty()) {
    if (!error_.ok()) {
      return error_;
    }
    return false;
  }
  // The caller's batch goes back to the thread, which makes another one in its
  // memory.
  std::swap(*batch, ready_.front());
  free_.push_back(std::move(ready_.front()));
  ready_.pop_front();
  changed_.NotifyAll();
  return true;
}

bool BatchPrefetcher::ready() {
  MutexLock lock(&mutex_);
  return !ready_.empty();
}

void BatchPrefetcher::Run() {
  absl::Status status;
  while (true) {
    Batch batch;
    {
      MutexLock lock(&mutex_);
      // I2: only this thread adds, so there is still room when a batch is made.
      while (ready_.size() >= kReadyMax && !stop_) {
        changed_.Wait(&mutex_);
      }
      if (stop_) {
        return;
      }
      if (!free_.empty()) {
        batch = std::move(free_.front());
        free_.pop_front();
      }
    }
    // Without the lock, so that Get can take what is ready meanwhile.
    const std::optional<int64_t> contribution = next_();
    if (!contribution.has_value()) {
      break;  // I3, and so does an error below
    }
    status = batches_->Make(*contribution, &batch);
    if (!status.ok()) {
      break;
    }
    MutexLock lock(&mutex_);
    ready_.push_back(std::move(batch));
    changed_.NotifyAll();
  }
  MutexLock lock(&mutex_);
  error_ = std::move(status);
  ended_ = true;
  changed_.NotifyAll();
}

}  // namespace weir
