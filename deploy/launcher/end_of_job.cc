#include "deploy/launcher/end_of_job.h"

#include <utility>

#include "common/base/clock.h"
#include "common/threads/thread.h"

namespace weir {
namespace {

constexpr std::chrono::milliseconds kLookEvery{1000};

}  // namespace

EndOfJob::EndOfJob(std::function<bool()> is_done)
    : state_(std::make_shared<State>()) {
  // Detached: a call that never returns must not keep the process from ending.
  Thread([state = state_, is_done = std::move(is_done)] {
    Look(state.get(), is_done);
  }).detach();
}

EndOfJob::~EndOfJob() {
  MutexLock lock(&state_->mutex);
  state_->stop = true;
  state_->changed.NotifyAll();
  const auto deadline = MonotonicClock::now() + kEndWait;
  while (!state_->ended && MonotonicClock::now() < deadline) {
    state_->changed.WaitFor(&state_->mutex, std::chrono::milliseconds(100));
  }
}

void EndOfJob::Look(State* state, const std::function<bool()>& is_done) {
  for (;;) {
    const bool done = is_done();  // without the lock: it may take minutes
    MutexLock lock(&state->mutex);
    state->is_done = done;
    const auto next = MonotonicClock::now() + kLookEvery;
    while (!state->stop && MonotonicClock::now() < next) {
      state->changed.WaitFor(&state->mutex, kLookEvery);
    }
    if (state->stop) {
      state->ended = true;
      state->changed.NotifyAll();
      return;
    }
  }
}

bool EndOfJob::IsOver(int64_t now_ns) {
  MutexLock lock(&state_->mutex);
  if (!state_->is_done) {
    done_since_ns_.reset();
  } else if (!done_since_ns_.has_value()) {
    done_since_ns_ = now_ns;
  }
  return done_since_ns_.has_value() &&
         now_ns - *done_since_ns_ >= kChiefEndMax.count();
}

}  // namespace weir
