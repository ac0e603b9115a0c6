#include "common/base/stop_signal.h"

#include <utility>

namespace weir {

StopSignal::StopSignal(const std::vector<int>& signals, Callback on_repeat)
    : on_repeat_(std::move(on_repeat)) {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGUSR1);
  for (const int signal : signals) {
    sigaddset(&signals_, signal);
  }
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  thread_ = Thread([this] { Listen(); });
}

StopSignal::~StopSignal() {
  ending_ = true;
  // sigwait cannot be interrupted, but takes this signal, too.
  pthread_kill(thread_.native_handle(), SIGUSR1);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void StopSignal::Listen() {
  int signal = 0;
  while (sigwait(&signals_, &signal) == 0 && !ending_) {
    if (signal == SIGUSR1) {
      continue;  // from somebody else, for whom it has no meaning here
    }
    if (first_ != 0) {
      ++count_;
      if (on_repeat_ != nullptr) {
        on_repeat_(signal);
      }
      continue;
    }
    MutexLock lock(&mutex_);
    first_ = signal;
    ++count_;
    if (on_stop_ != nullptr) {
      on_stop_(signal);
    }
  }
}

void StopSignal::OnStop(Callback on_stop) {
  MutexLock lock(&mutex_);
  on_stop_ = std::move(on_stop);
  if (first_ != 0 && on_stop_ != nullptr) {
    on_stop_(first_);
  }
}

}  // namespace weir
