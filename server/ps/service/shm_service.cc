#include "server/ps/service/shm_service.h"

#include <chrono>
#include <utility>

#include "common/base/identity.h"
#include "common/base/logging.h"
#include "common/base/status.h"

namespace weir {
namespace {

// After an accept that failed, as without file descriptors: trying again at
// once would only burn a core and fill the log.
constexpr std::chrono::milliseconds kAcceptPause{100};

}  // namespace

absl::StatusOr<std::unique_ptr<ShmService>> ShmService::Create(
    Store* store, SharedArena* arena) {
  std::string name = "weir-" + RandomHex(32);
  WEIR_ASSIGN_OR_RETURN(UnixSocket socket, UnixSocket::Listen(name));
  return std::unique_ptr<ShmService>(
      new ShmService(store, arena, std::move(name), std::move(socket)));
}

ShmService::ShmService(Store* store, SharedArena* arena, std::string name,
                       UnixSocket socket)
    : store_(store),
      arena_(arena),
      name_(std::move(name)),
      socket_(std::move(socket)),
      thread_([this] { AcceptLoop(); }) {}

ShmService::~ShmService() {
  std::map<uint64_t, Session> sessions;
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    stopped_changed_.NotifyAll();
  }
  socket_.Shutdown();
  thread_.join();
  // No session begins any more. They are joined without the lock, which each of
  // them takes at its end.
  {
    MutexLock lock(&mutex_);
    for (auto& [id, session] : sessions_) {
      session.session->Stop();
    }
    sessions.swap(sessions_);
  }
  for (auto& [id, session] : sessions) {
    session.thread.join();
  }
}

void ShmService::AcceptLoop() {
  for (;;) {
    absl::StatusOr<UnixSocket> socket = socket_.Accept();
    {
      MutexLock lock(&mutex_);
      if (!stopped_ && !socket.ok()) {
        LOG_WARN("shared memory: {}", socket.status().ToString());
        stopped_changed_.WaitFor(&mutex_, kAcceptPause);
      }
      if (stopped_) {
        return;
      }
    }
    // Before the next one, so that sessions that are over do not count.
    Reap();
    if (socket.ok()) {
      StartSession(*std::move(socket));
    }
  }
}

void ShmService::StartSession(UnixSocket socket) {
  MutexLock lock(&mutex_);
  if (sessions_.size() >= kSessionsMax) {
    LOG_WARN("shared memory: {} clients already; one more is turned away",
             kSessionsMax);
    return;
  }
  const uint64_t id = next_id_++;
  Session& session = sessions_[id];
  session.session =
      std::make_shared<ShmSession>(store_, arena_, std::move(socket));
  session.thread = std::thread([this, id, raw = session.session] {
    raw->Run();
    MutexLock done(&mutex_);
    // The destructor has taken the map away when the service ends.
    if (const auto it = sessions_.find(id); it != sessions_.end()) {
      it->second.done = true;
    }
  });
}

void ShmService::Reap() {
  std::vector<std::thread> over;
  {
    MutexLock lock(&mutex_);
    for (auto it = sessions_.begin(); it != sessions_.end();) {
      if (it->second.done) {
        over.push_back(std::move(it->second.thread));
        it = sessions_.erase(it);
      } else {
        ++it;
      }
    }
  }
  for (std::thread& thread : over) {
    thread.join();
  }
}

}  // namespace weir
