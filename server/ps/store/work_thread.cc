#include "server/ps/store/work_thread.h"

#include <utility>

#include "common/base/exhausted.h"
#include "common/base/logging.h"
#include "common/trace/trace.h"

namespace weir {

WorkThread::WorkThread() : thread_([this] { Loop(); }) {}

WorkThread::~WorkThread() {
  // Behind all that is queued: work that was promised is done.
  Run(nullptr);
  thread_.join();
}

void WorkThread::Run(std::function<void()> work) {
  MutexLock lock(&mutex_);
  queue_.push_back(std::move(work));
  changed_.NotifyOne();
}

std::function<void()> WorkThread::Next() {
  MutexLock lock(&mutex_);
  while (queue_.empty()) {
    changed_.Wait(&mutex_);
  }
  std::function<void()> work = std::move(queue_.front());
  queue_.pop_front();
  return work;
}

void WorkThread::Loop() {
  NameTraceLane("work");
  // Without the lock, so that work can queue more work.
  while (const std::function<void()> work = Next()) {
    const absl::Status status = OrExhausted([&work] {
      work();
      return absl::OkStatus();
    });
    if (!status.ok()) {
      LOG_ERROR("work goes no further: {}", status.ToString());
    }
  }
}

}  // namespace weir
