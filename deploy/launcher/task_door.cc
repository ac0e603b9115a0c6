#include "deploy/launcher/task_door.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"

namespace weir {
namespace {

constexpr char kRuns = 1;
constexpr std::chrono::seconds kAnswerPatience{2};
// After an error of accept, such as no descriptor: nobody else can be told.
constexpr std::chrono::milliseconds kPause{100};

}  // namespace

std::string TaskDoorName(const ClusterSpec& cluster) {
  const std::string task =
      cluster.task().has_value() ? cluster.task()->ToString() : "none";
  return absl::StrFormat("weir-task-%d-%016x-%s", getuid(),
                         cluster.fingerprint(), task);
}

absl::StatusOr<std::unique_ptr<TaskDoor>> TaskDoor::Open(
    const std::string& name) {
  WEIR_ASSIGN_OR_RETURN(UnixSocket socket, UnixSocket::Listen(name));
  std::unique_ptr<TaskDoor> door(new TaskDoor(std::move(socket)));
  door->thread_ = std::thread([door = door.get()] { door->Answer(); });
  return door;
}

TaskDoor::~TaskDoor() {
  closing_ = true;
  socket_.Shutdown();
  thread_.join();
}

void TaskDoor::Answer() {
  while (!closing_) {
    auto peer = socket_.Accept();
    if (!peer.ok()) {
      std::this_thread::sleep_for(kPause);
      continue;
    }
    const char answer = runs_ ? kRuns : 0;
    // Who knocks and leaves at once is not waited for.
    peer->Send({&answer, 1}, -1).IgnoreError();
  }
}

absl::Status KnockAtTask(const std::string& name) {
  auto socket = UnixSocket::Connect(name);
  if (!socket.ok()) {
    return absl::UnavailableError(
        absl::StrCat("no weir task runs here: ", socket.status().message()));
  }
  if (!socket->WaitReadable(kAnswerPatience)) {
    return absl::UnavailableError("weir task does not answer");
  }
  char answer = 0;
  WEIR_RETURN_IF_ERROR(socket->Receive({&answer, 1}).status());
  if (answer != kRuns) {
    return absl::UnavailableError(
        "the task's program does not run now; weir task starts it again");
  }
  return absl::OkStatus();
}

}  // namespace weir
