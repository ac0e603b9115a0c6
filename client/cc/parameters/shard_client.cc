#include "client/cc/parameters/shard_client.h"

#include <algorithm>
#include <utility>

#include "client/cc/transport/peer_watch.h"
#include "common/base/logging.h"
#include "common/threads/thread.h"
#include "common/trace/trace.h"

namespace weir {
namespace {

// How often on_wait is called, so that a signal in a Python program ends the
// wait soon.
constexpr std::chrono::milliseconds kOnWaitEvery{100};

}  // namespace

Exchange::ConnectionOptions ShardClient::ConnectionTo(int shard) const {
  Exchange::ConnectionOptions options;
  options.shard = shard;
  options.address = common_.addresses[static_cast<size_t>(shard)];
  options.lost_after = common_.lost_after;
  options.clock = common_.clock;
  return options;
}

void ShardClient::StartThreads(std::vector<Lane*> lanes, int threads) {
  lanes_ = std::move(lanes);
  for (Lane* const lane : lanes_) {
    for (int i = 0; i < threads; ++i) {
      lane->threads.emplace_back([this, lane] { Run(lane); });
    }
  }
  watcher_ = Thread([this] { Watch(); });
}

void ShardClient::StopThreads() {
  std::vector<std::shared_ptr<DataCall>> calls;
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    for (Lane* const lane : lanes_) {
      lane->wake.NotifyAll();
      calls.push_back(lane->call());
    }
    watch_.NotifyAll();
  }
  // A thread may be blocked in its stream; Cancel makes that call return.
  for (const auto& call : calls) {
    if (call != nullptr) {
      call->Cancel();
    }
  }
  for (Lane* const lane : lanes_) {
    for (Thread& thread : lane->threads) {
      thread.join();
    }
  }
  if (watcher_.joinable()) {
    watcher_.join();
  }
}

void ShardClient::Run(Lane* lane) {
  NameTraceLane(lane->name);
  MutexLock lock(&mutex_);
  while (!stop_) {
    const Exchange::Step step = DoNext(lane);  // I1
    if (stop_) {
      break;
    }
    if (step.kind == Exchange::Step::kSleep) {
      // At least 1 us, so that this does not spin on a clock that a test holds
      // still.
      lane->wake.WaitFor(&mutex_,
                         std::chrono::nanoseconds(std::max<int64_t>(
                             step.until_ns - common_.clock->NowNs(), 1000)));
    } else if (step.kind == Exchange::Step::kIdle ||
               step.kind == Exchange::Step::kFailed) {
      lane->wake.Wait(&mutex_);
    }
  }
}

void ShardClient::NoteBreak(const absl::Status& status) {
  ++counters_.reconnects;
  if (absl::IsDataLoss(status)) {
    LOG_WARN("{}; it is sent again", status.ToString());
  }
}

void ShardClient::NoteFailure(Lane* lane) {
  const absl::Status& status = lane->decides->status();
  if (!status.ok() && status_.ok()) {  // I2
    status_ = status;
    changed_.NotifyAll();
  }
}

void ShardClient::Watch() {
  const std::chrono::milliseconds period =
      PeerWatch(common_.lost_after).period();
  MutexLock lock(&mutex_);
  while (!stop_) {
    watch_.WaitFor(&mutex_, period);
    // Also without work: PeerWatch must know when it was last asked, or the
    // time in between would count as silence of the ps.
    for (Lane* const lane : lanes_) {
      Look(lane);
    }
  }
}

void ShardClient::Look(Lane* lane) {
  Exchange* const exchange = lane->decides;
  std::shared_ptr<DataCall> call = lane->call();
  if (call != nullptr && exchange->WantsTraffic()) {
    mutex_.Unlock();
    const int64_t bytes = call->BytesMoved();
    mutex_.Lock();
    exchange->NoteTraffic(bytes);
  }
  // The lock was dropped for the system calls above; CheckLost sees the state
  // as it is now.
  const bool lost = exchange->CheckLost();
  if (lost) {
    NoteFailure(lane);
  }
  mutex_.Unlock();
  if (lost && call != nullptr) {
    // A thread may be blocked in a stream to a ps that hangs, and a connection
    // that still takes bytes would keep payloads of ours.
    call->Sever();
  }
  // The last reference ends the stream, which must not happen under the lock.
  call.reset();
  mutex_.Lock();
}

void ShardClient::CountWait(int64_t ns, int variable) {
  counters_.wait_ns += ns;
  std::vector<int64_t>& shards = counters_.shard_wait_ns;
  shards.resize(common_.addresses.size());
  if (answered_ < shards.size()) {
    shards[answered_] += ns;
  }
  if (variable >= 0 && variable < kVariableWaitsMax) {
    std::vector<int64_t>& variables = counters_.variable_wait_ns;
    const auto number = static_cast<size_t>(variable);
    if (variables.size() <= number) {
      variables.resize(number + 1);
    }
    variables[number] += ns;
  }
}

absl::Status ShardClient::WaitOnce() {
  if (common_.on_wait == nullptr) {
    changed_.Wait(&mutex_);
  } else if (!changed_.WaitFor(&mutex_, kOnWaitEvery)) {
    // Without the lock: on_wait may take ChiefClient's, which comes before this
    // one in the order of locks, or run Python.
    mutex_.Unlock();
    absl::Status ended = common_.on_wait();
    mutex_.Lock();
    return ended;
  }
  return absl::OkStatus();
}

void ShardClient::Interrupt(const absl::Status& status) {
  MutexLock lock(&mutex_);
  if (interrupted_.ok()) {
    interrupted_ = status;
  }
  OnInterrupt();
  changed_.NotifyAll();
}

ClientCounters ShardClient::counters() const {
  MutexLock lock(&mutex_);
  return counters_;
}

}  // namespace weir
