// A thread that runs closures one after the other.
//
// Place: the shell of the chief has one for its files and one for each shard,
// so that a slow disk or ps never blocks the others.
//
// Threads: safe. Post never blocks.
#ifndef SERVER_CHIEF_FILES_TASK_QUEUE_H_
#define SERVER_CHIEF_FILES_TASK_QUEUE_H_

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "common/base/mutex.h"

namespace weir {

class TaskQueue {
 public:
  // `name` is that of its thread in timelines.
  explicit TaskQueue(std::string name = "");
  // Drops the closures that have not begun, and waits at most kEndWait for the
  // one that has. After that the thread is left to itself, and what its closure
  // owns stays alive.
  ~TaskQueue();

  // Runs `task` after those that were posted before.
  void Post(std::function<void()> task);

  static constexpr std::chrono::milliseconds kEndWait{2000};

 private:
  struct State {
    Mutex mutex;
    CondVar changed;
    std::deque<std::function<void()>> tasks ABSL_GUARDED_BY(mutex);
    bool stop ABSL_GUARDED_BY(mutex) = false;
    bool ended ABSL_GUARDED_BY(mutex) = false;
  };
  static void Run(const std::shared_ptr<State>& state, std::string name);

  const std::shared_ptr<State> state_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_FILES_TASK_QUEUE_H_
