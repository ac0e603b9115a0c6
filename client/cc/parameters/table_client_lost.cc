// TableClient when a connection breaks: which requests it repeats, and when a
// shard counts as lost.
#include <algorithm>
#include <chrono>

#include "client/cc/parameters/table_client.h"
#include "client/cc/transport/retry_policy.h"
#include "common/base/logging.h"

namespace weir {

// A thread may be blocked in a stream to a ps that is gone; Sever wakes it.
void TableClient::Look(Shard* shard) {
  const std::shared_ptr<PullRowsStream> stream = shard->stream;
  const int64_t now = options_.clock->NowNs();
  if (stream != nullptr && shard->watch.WantsTraffic(now)) {
    mutex_.Unlock();  // system calls for each descriptor of the process
    const int64_t bytes = stream->BytesMoved();
    mutex_.Lock();
    shard->watch.NoteTraffic(bytes, now);
  }
  if (shard->watch.Look(now) && stream != nullptr) {
    shard->lost = true;
    stream->Sever();
  }
}

absl::Status TableClient::Named(int s, const absl::Status& status) const {
  return NamedPs(s, options_.addresses[static_cast<size_t>(s)], status);
}

bool TableClient::SaysHello(int s) {
  const std::chrono::milliseconds patience = options_.lost_after / 2;
  const int64_t end_ns =
      options_.clock->NowNs() + std::chrono::nanoseconds(patience).count();
  while (true) {
    if (shards_[static_cast<size_t>(s)]->link->Hello(patience).ok()) {
      return true;
    }
    MutexLock lock(&mutex_);
    if (stop_ || options_.clock->NowNs() >= end_ns) {
      return false;
    }
    stopping_.WaitFor(&mutex_, RetryPolicy::kBackoffMin);
  }
}

absl::Status TableClient::BeforeRetry(int s, const absl::Status& status,
                                      RetryPolicy* retry) {
  // An update waits on the ps while a checkpoint writes the tables, for as long
  // as that takes. A ps that still answers Hello is not lost, so the count of
  // tries begins anew.
  bool lost = false;
  if (absl::IsDeadlineExceeded(status)) {
    lost = !SaysHello(s);
    retry->OnAnswer();
  }
  MutexLock lock(&mutex_);
  if (stop_) {
    return absl::CancelledError("the table client ends");
  }
  if (!interrupted_.ok()) {
    return interrupted_;
  }
  const int64_t now_ns = options_.clock->NowNs();
  if (!retry->MayRepeat(status, now_ns)) {
    // OUT_OF_RANGE too: unlike a stream of blocks, one call has all of a
    // shard's update, so no other part of it is the one that the shard expects.
    return Named(s, ForThisTask(status));
  }
  if (lost || shards_[static_cast<size_t>(s)]->lost || retry->lost(now_ns)) {
    return Named(s, LostError(UnreachableFor(options_.lost_after), status));
  }
  if (absl::IsDataLoss(status)) {
    LOG_WARN("{}; it is sent again", status.ToString());
  }
  ++counters_.reconnects;
  stopping_.WaitFor(&mutex_, retry->pause());
  return absl::OkStatus();
}

absl::Status TableClient::CheckIncarnation(int s, uint64_t incarnation) {
  MutexLock lock(&mutex_);
  // I1 holds within one process of a ps: the marks of another are gone.
  uint64_t& known = shards_[static_cast<size_t>(s)]->incarnation;
  if (known != 0 && known != incarnation) {
    return absl::FailedPreconditionError(
        "the process was restarted; its parameters are gone");
  }
  known = incarnation;
  return absl::OkStatus();
}

}  // namespace weir
