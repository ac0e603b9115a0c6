#include "client/cc/transport/call_watch.h"

#include <algorithm>
#include <cstdint>

#include "client/cc/transport/tcp_traffic.h"
#include "common/base/clock.h"
#include "common/threads/thread.h"

namespace weir {
namespace {

// How often calls are looked at, also those with a long timeout.
constexpr std::chrono::milliseconds kPeriodMax{250};

}  // namespace

CallWatch::~CallWatch() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    changed_.NotifyAll();
    if (!thread_.joinable()) {
      return;
    }
  }
  thread_.join();
}

std::list<CallWatch::Call>::iterator CallWatch::Add(
    grpc::ClientContext* context, std::chrono::milliseconds timeout) {
  // The silence is counted from the start of the call.
  PeerWatch watch(timeout);
  watch.Heard(Clock::Real()->NowNs());
  MutexLock lock(&mutex_);
  // Programs that make no watched call (most tools) have no thread for it.
  if (!thread_.joinable()) {
    thread_ = Thread([this] { Run(); });
  }
  // A list: Watched keeps an iterator while others come and go. The thread is
  // woken only from its sleep without calls; else it looks again soon.
  calls_.push_back({context, watch, false});
  if (calls_.size() == 1) {
    changed_.NotifyAll();
  }
  return std::prev(calls_.end());
}

CallWatch::Watched::Watched(CallWatch* owner, grpc::ClientContext* context,
                            std::chrono::milliseconds timeout)
    : owner_(owner), call_(owner->Add(context, timeout)) {}

// The thread uses a context only under the lock, so after this it does not
// touch the call's any more.
CallWatch::Watched::~Watched() {
  MutexLock lock(&owner_->mutex_);
  owner_->calls_.erase(call_);
}

bool CallWatch::Watched::lost() const {
  MutexLock lock(&owner_->mutex_);
  return call_->lost;
}

void CallWatch::Run() {
  MutexLock lock(&mutex_);
  while (!stop_) {
    if (calls_.empty()) {
      changed_.Wait(&mutex_);
      continue;
    }
    std::chrono::milliseconds period = kPeriodMax;
    const int64_t now = Clock::Real()->NowNs();
    for (Call& call : calls_) {
      period = std::min(period, call.watch.period());
      if (call.lost) {
        continue;
      }
      // A slow link that moves bytes is alive. To ask costs system calls, so
      // the watch wants to know only when an answer is late.
      if (call.watch.WantsTraffic(now)) {
        call.watch.NoteTraffic(TcpBytesMoved(call.context->peer()), now);
      }
      if (call.watch.Look(now)) {
        call.lost = true;  // tells Named why the call is cancelled
        call.context->TryCancel();
      }
    }
    changed_.WaitFor(&mutex_, period);
  }
}

}  // namespace weir
