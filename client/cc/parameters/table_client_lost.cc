// TableClient when a connection breaks: which requests it repeats, and when a
// shard counts as lost.
#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/cc/parameters/stream_errors.h"
#include "client/cc/parameters/table_client.h"
#include "common/base/logging.h"

namespace weir {
namespace {

constexpr std::chrono::milliseconds kBackoffMin{50};
constexpr std::chrono::milliseconds kBackoffMax{1000};
// Tries in a row that end with a damaged payload: such a connection is useless.
constexpr int kDamagedMax = 5;

// Narrower than IsRetriable: calls of rows never end with OK without an answer,
// and UNKNOWN is left to the caller.
bool MayRetry(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status);
}

int64_t Ns(std::chrono::milliseconds time) { return time.count() * 1000000; }

}  // namespace

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
    stream->Sever();
  }
}

// `status` with the shard's number. The transport's messages begin with the
// address, which must not stand there twice.
absl::Status TableClient::Named(int s, const absl::Status& status) const {
  const std::string& address = options_.addresses[static_cast<size_t>(s)];
  const std::string message(
      absl::StripPrefix(status.message(), absl::StrCat("ps ", address, ": ")));
  return absl::Status(status.code(),
                      absl::StrCat("ps ", s, " (", address, ") ", message));
}

absl::Status TableClient::Unreachable(int s, const absl::Status& status) const {
  return Named(s,
               absl::FailedPreconditionError(absl::StrCat(
                   "unreachable for ",
                   std::chrono::duration<double>(options_.lost_after).count(),
                   " s: ", status.message())));
}

bool TableClient::SaysHello(int s) {
  const std::chrono::milliseconds patience = options_.lost_after / 2;
  const int64_t end_ns = options_.clock->NowNs() + Ns(patience);
  while (true) {
    if (shards_[static_cast<size_t>(s)]->link->Hello(patience).ok()) {
      return true;
    }
    MutexLock lock(&mutex_);
    if (stop_ || options_.clock->NowNs() >= end_ns) {
      return false;
    }
    stopping_.WaitFor(&mutex_, kBackoffMin);
  }
}

absl::Status TableClient::BeforeRetry(int s, const absl::Status& status,
                                      Trouble* trouble) {
  if (trouble->tries++ == 0) {
    trouble->since_ns = options_.clock->NowNs();
  }
  // An update waits on the ps while a checkpoint writes the tables, for as long
  // as that takes. A ps that still answers Hello is not lost, so the count of
  // tries begins anew.
  bool lost = false;
  if (absl::IsDeadlineExceeded(status)) {
    lost = !SaysHello(s);
    *trouble = {.tries = 1, .since_ns = options_.clock->NowNs()};
  }
  MutexLock lock(&mutex_);
  if (stop_) {
    return absl::CancelledError("the table client ends");
  }
  if (!interrupted_.ok()) {
    return interrupted_;
  }
  const bool cancelled = absl::IsCancelled(status);  // by Look
  const bool damaged = absl::IsDataLoss(status);
  if (damaged) {
    LOG_WARN("{}; it is sent again", status.ToString());
    if (trouble->tries >= kDamagedMax) {
      return Named(s, ForThisTask(status));
    }
  }
  if (absl::IsOutOfRange(status)) {
    // Unlike a stream of blocks, one call has all of a shard's update: no other
    // part of it can be the one that the shard expects.
    return Named(s, ForThisTask(status));
  }
  if (!cancelled && !damaged && !MayRetry(status)) {
    return Named(s, status);
  }
  // Look cancels a stream only when the shard is lost.
  if (cancelled || lost ||
      options_.clock->NowNs() - trouble->since_ns >= Ns(options_.lost_after)) {
    return Unreachable(s, status);
  }
  ++counters_.reconnects;
  // 50 ms, doubled with every try, at most 1 s. The exponent is bounded too, so
  // that the shift is defined however long lost_after is.
  stopping_.WaitFor(
      &mutex_,
      std::min<std::chrono::milliseconds>(
          kBackoffMin * (1 << std::min(trouble->tries - 1, 10)), kBackoffMax));
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
