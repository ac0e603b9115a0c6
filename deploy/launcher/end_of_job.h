// Tells the launcher of a ps that no chief will end that ps any more: it was
// away while the chief of a finished job shut the others down.
//
// Place: task.cc asks at every turn of the loop that also hands signals on. A
// look at DONE may take minutes, where an object store is away or a share
// hangs, so a thread of its own looks.
//
// Threads: compatible.
#ifndef DEPLOY_LAUNCHER_END_OF_JOB_H_
#define DEPLOY_LAUNCHER_END_OF_JOB_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace weir {

class EndOfJob {
 public:
  // A chief that has written DONE shuts the ps that answer down within 15 s.
  static constexpr std::chrono::nanoseconds kChiefEndMax =
      std::chrono::seconds(30);
  static constexpr std::chrono::milliseconds kEndWait{2000};

  // `is_done`, which says whether DONE of this job is there, is called about
  // once a second.
  explicit EndOfJob(std::function<bool()> is_done);
  // Waits at most kEndWait for a call that is under way. After that the thread
  // is left to itself, and what `is_done` owns stays alive.
  ~EndOfJob();

  // True once the job has been done for kChiefEndMax: no chief is busy with its
  // end any more. Never waits for `is_done`.
  bool IsOver(int64_t now_ns);

 private:
  struct State {
    Mutex mutex;
    CondVar changed;
    bool is_done ABSL_GUARDED_BY(mutex) = false;  // at the newest look
    bool stop ABSL_GUARDED_BY(mutex) = false;
    bool ended ABSL_GUARDED_BY(mutex) = false;
  };
  static void Look(State* state, const std::function<bool()>& is_done);

  const std::shared_ptr<State> state_;
  std::optional<int64_t> done_since_ns_;
};

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_END_OF_JOB_H_
