// Tells other processes of this user whether the program of `weir task` runs.
//
// Place: `weir task` opens it, `weir probe` knocks. It is for the roles that
// have no port, and for the time before a port answers. It is a socket in the
// abstract namespace, so it needs no file system that can be written, and goes
// with the process; another user of the host is not answered.
//
// Threads: safe. TaskDoor has a thread of its own.
#ifndef DEPLOY_LAUNCHER_TASK_DOOR_H_
#define DEPLOY_LAUNCHER_TASK_DOOR_H_

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/unix_socket.h"
#include "common/job/cluster_spec.h"

namespace weir {

// The door's name for this task of this cluster.
std::string TaskDoorName(const ClusterSpec& cluster);

class TaskDoor {
 public:
  // Errors: UNAVAILABLE  another process has the name.
  static absl::StatusOr<std::unique_ptr<TaskDoor>> Open(
      const std::string& name);
  ~TaskDoor();

  // What to say from now on. It says no until then.
  void SetRuns(bool runs) { runs_ = runs; }

 private:
  explicit TaskDoor(UnixSocket socket) : socket_(std::move(socket)) {}
  void Answer();

  UnixSocket socket_;
  std::atomic<bool> runs_{false};
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

// OK if the program runs. Errors: UNAVAILABLE  it does not, or nobody answers.
absl::Status KnockAtTask(const std::string& name);

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_TASK_DOOR_H_
