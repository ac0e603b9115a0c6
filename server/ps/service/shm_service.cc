#include "server/ps/service/shm_service.h"

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/exhausted.h"
#include "common/base/identity.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "common/threads/thread.h"

namespace weir {
namespace {

// After an accept that failed, as without file descriptors: trying again at
// once would only burn a core and fill the log.
constexpr std::chrono::milliseconds kAcceptPause{100};
// Between two lines about clients that were turned away: any user of this host
// can cause them.
constexpr std::chrono::seconds kRefusedPause{10};

// Says when the log may have another line of a kind.
class Seldom {
 public:
  bool Due() {
    const auto now = MonotonicClock::now();
    if (now < next_) {
      return false;
    }
    next_ = now + kRefusedPause;
    return true;
  }

 private:
  MonotonicClock::time_point next_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ShmService>> ShmService::Create(
    Store* store, SharedArena* arena, Options options) {
  std::string name = "weir-" + RandomHex(32);
  WEIR_ASSIGN_OR_RETURN(UnixSocket socket, UnixSocket::Listen(name));
  std::unique_ptr<ShmService> service(new ShmService(
      store, arena, options, std::move(name), std::move(socket)));
  WEIR_ASSIGN_OR_RETURN(service->thread_, StartThread([raw = service.get()] {
                          raw->AcceptLoop();
                        }));
  return service;
}

ShmService::ShmService(Store* store, SharedArena* arena, Options options,
                       std::string name, UnixSocket socket)
    : store_(store),
      arena_(arena),
      options_(options),
      name_(std::move(name)),
      socket_(std::move(socket)) {}

ShmService::~ShmService() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  socket_.Shutdown();
  if (thread_.joinable()) {
    thread_.join();
  }
  // No session begins any more.
  Thread last;
  {
    MutexLock lock(&mutex_);
    for (auto& [id, session] : sessions_) {
      session.session->Stop();
    }
    while (!sessions_.empty()) {
      changed_.Wait(&mutex_);
    }
    last = std::move(ended_);
  }
  if (last.joinable()) {
    last.join();
  }
}

void ShmService::AcceptLoop() {
  Seldom refused;
  for (;;) {
    absl::StatusOr<UnixSocket> socket = socket_.Accept();
    absl::Status status = socket.status();
    {
      MutexLock lock(&mutex_);
      if (stopped_) {
        return;
      }
      if (!status.ok() && !absl::IsPermissionDenied(status)) {
        LOG_WARN("shared memory: {}", status.ToString());
        changed_.WaitFor(&mutex_, kAcceptPause);
        continue;
      }
    }
    if (status.ok()) {
      status = OrExhausted([&] { return StartSession(*std::move(socket)); });
    }
    // I2: another user's process must not make the others wait.
    if (!status.ok() && refused.Due()) {
      LOG_WARN("shared memory: a client is turned away: {}", status.ToString());
    }
  }
}

absl::Status ShmService::StartSession(UnixSocket socket) {
  const auto session = std::make_shared<ShmSession>(
      store_, arena_, std::move(socket), options_.opening_wait, &tickets_);
  // The session's thread takes the session out of the map at its end, and needs
  // the lock for that.
  MutexLock lock(&mutex_);
  if (sessions_.size() >= kShmSessionsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", kShmSessionsMax, " clients already"));
  }
  const uint64_t id = next_id_++;
  std::function<void()> run = [this, id, session] {
    RunSession(id, session.get());
  };
  const auto it = sessions_.try_emplace(id).first;
  absl::StatusOr<Thread> thread = StartThread(std::move(run));
  if (!thread.ok()) {
    sessions_.erase(it);
    return thread.status();
  }
  it->second = {session, *std::move(thread)};
  return absl::OkStatus();
}

void ShmService::RunSession(uint64_t id, ShmSession* session) {
  session->Run();
  Thread before;
  {
    MutexLock lock(&mutex_);
    const auto it = sessions_.find(id);
    before = std::exchange(ended_, std::move(it->second.thread));
    sessions_.erase(it);  // I1
    changed_.NotifyAll();
  }
  if (before.joinable()) {
    before.join();
  }
}

}  // namespace weir
