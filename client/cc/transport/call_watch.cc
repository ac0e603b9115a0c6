#include "client/cc/transport/call_watch.h"

#include <algorithm>
#include <cstdint>

#include "client/cc/transport/tcp_traffic.h"

namespace weir {
namespace {

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
  PeerWatch watch(timeout);
  watch.Heard(Clock::Real()->NowNs());
  MutexLock lock(&mutex_);
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { Run(); });
  }
  calls_.push_back({context, watch, false});
  if (calls_.size() == 1) {
    changed_.NotifyAll();
  }
  return std::prev(calls_.end());
}

CallWatch::Watched::Watched(CallWatch* owner, grpc::ClientContext* context,
                            std::chrono::milliseconds timeout)
    : owner_(owner), call_(owner->Add(context, timeout)) {}

CallWatch::Watched::~Watched() {
  MutexLock lock(&owner_->mutex_);
  owner_->calls_.erase(call_);
}

void CallWatch::Watched::Heard() {
  MutexLock lock(&owner_->mutex_);
  call_->watch.Heard(Clock::Real()->NowNs());
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
      if (call.watch.WantsTraffic(now)) {
        call.watch.NoteTraffic(TcpBytesMoved(call.context->peer()), now);
      }
      if (call.watch.Look(now)) {
        call.lost = true;
        call.context->TryCancel();
      }
    }
    changed_.WaitFor(&mutex_, period);
  }
}

}  // namespace weir
