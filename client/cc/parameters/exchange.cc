#include "client/cc/parameters/exchange.h"

#include <algorithm>
#include <utility>

namespace weir {

Exchange::Exchange(ConnectionOptions options)
    : connection_(std::move(options)),
      retry_(connection_.lost_after),
      watch_(connection_.lost_after) {}

void Exchange::NoteWork() {
  if (!Waits()) {
    watch_.Heard(now_ns());  // I2
  }
}

bool Exchange::NextOfConnection(bool sending, bool receiving,
                                Step* step) const {
  if (!status_.ok()) {
    step->kind = Step::kFailed;
    return true;
  }
  if (connected_ && draining_) {
    // What arrived before the stream broke is still read: receipts among it
    // save a repeat.
    step->kind = receiving ? Step::kIdle : Step::kReceive;
  }
  if (connected_) {
    return draining_;
  }
  // Not before the other thread has left the stream that broke.
  if (HasWork() && !sending && !receiving) {
    const bool now = now_ns() >= connect_at_ns_;
    step->kind = now ? Step::kConnect : Step::kSleep;
    step->until_ns = connect_at_ns_;
  }
  return true;
}

bool Exchange::Heard(uint64_t incarnation) {
  if (!status_.ok()) {
    return false;
  }
  // An answer shows that the connection works: count and pauses begin anew.
  watch_.Heard(now_ns());
  retry_.OnAnswer();
  uint64_t& known = *connection_.incarnation;
  if (known != 0 && known != incarnation) {
    Fail(absl::FailedPreconditionError(
        "the process was restarted; its parameters are gone"));
    return false;
  }
  known = incarnation;
  return true;
}

bool Exchange::Broken(const absl::Status& status, bool resend) {
  connected_ = draining_ = false;
  if (!status_.ok()) {
    return false;
  }
  if (!retry_.MayRepeat(status, now_ns()) && !resend) {
    Fail(ForThisTask(status));
    return false;
  }
  connect_at_ns_ = now_ns() + std::chrono::nanoseconds(retry_.pause()).count();
  return true;
}

void Exchange::BrokenCall(const absl::Status& status, bool silent) {
  if (absl::IsDeadlineExceeded(status) && !silent) {
    retry_.OnAnswer();  // it said Hello
  }
  if (Broken(status) && (silent || retry_.lost(now_ns()))) {
    Fail(LostError(UnreachableFor(connection_.lost_after), status));
  }
}

bool Exchange::CheckLost() {
  if (!status_.ok() || !Waits()) {
    // I1, I2: one that has failed is reported again, for a thread that was
    // blocked in its stream meanwhile.
    watch_.LookIdle(now_ns());
    return !status_.ok();
  }
  if (!watch_.Look(now_ns())) {
    return false;
  }
  Fail(LostError(watch_.Reason(), retry_.last_error()));
  return true;
}

uint32_t Exchange::want_timeout_ms() const {
  return static_cast<uint32_t>(
      std::clamp<int64_t>(connection_.lost_after.count() / 4, 1, 2000));
}

void Exchange::Fail(const absl::Status& status) {
  status_ = NamedPs(connection_.shard, connection_.address, status);
}

}  // namespace weir
