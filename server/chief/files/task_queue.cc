#include "server/chief/files/task_queue.h"

#include <utility>

#include "common/base/clock.h"
#include "common/threads/thread.h"
#include "common/trace/trace.h"

namespace weir {

TaskQueue::TaskQueue(std::string name) : state_(std::make_shared<State>()) {
  // Detached: a call that never returns must not keep the process from ending.
  Thread([state = state_, name = std::move(name)] {
    Run(state, name);
  }).detach();
}

TaskQueue::~TaskQueue() {
  // Declared before the lock, so that what the closures own is destroyed after
  // it is released: a destructor may call anything.
  std::deque<std::function<void()>> dropped;
  MutexLock lock(&state_->mutex);
  state_->stop = true;
  dropped.swap(state_->tasks);
  state_->changed.NotifyAll();
  // A task that writes a file is nearly done; one that calls a dead ps is not.
  const auto deadline = MonotonicClock::now() + kEndWait;
  while (!state_->ended && MonotonicClock::now() < deadline) {
    state_->changed.WaitFor(&state_->mutex, std::chrono::milliseconds(100));
  }
}

void TaskQueue::Post(std::function<void()> task) {
  MutexLock lock(&state_->mutex);
  if (!state_->stop) {
    state_->tasks.push_back(std::move(task));
    state_->changed.NotifyAll();
  }
}

void TaskQueue::Run(const std::shared_ptr<State>& state, std::string name) {
  NameTraceLane(std::move(name));
  for (;;) {
    std::function<void()> task;
    {
      MutexLock lock(&state->mutex);
      while (!state->stop && state->tasks.empty()) {
        state->changed.Wait(&state->mutex);
      }
      // Before the next task: the owner of a stopped queue is gone.
      if (state->stop) {
        state->ended = true;
        state->changed.NotifyAll();
        return;
      }
      task = std::move(state->tasks.front());
      state->tasks.pop_front();
    }
    task();
  }
}

}  // namespace weir
