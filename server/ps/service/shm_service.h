// Offers a store to clients on this host through shared memory.
//
// Place: beside the gRPC server, in ps_server.cc. HelloReply.shm_name says
// where to connect; proto/wire/shm_message.h what is said there.
//
// Threads: one that accepts, two for each client.
// Owns/borrows: borrows store and arena.
#ifndef SERVER_PS_SERVICE_SHM_SERVICE_H_
#define SERVER_PS_SERVICE_SHM_SERVICE_H_

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/io/unix_socket.h"
#include "server/ps/memory/shared_arena.h"
#include "server/ps/service/shm_session.h"
#include "server/ps/store/store.h"

namespace weir {

class ShmService {
 public:
  // Clients at once; a further one is turned away, and takes gRPC.
  static constexpr size_t kSessionsMax = 256;

  static absl::StatusOr<std::unique_ptr<ShmService>> Create(Store* store,
                                                            SharedArena* arena);
  ~ShmService();

  const std::string& name() const { return name_; }

 private:
  struct Session {
    std::shared_ptr<ShmSession> session;
    std::thread thread;
    bool done = false;
  };

  ShmService(Store* store, SharedArena* arena, std::string name,
             UnixSocket socket);
  void AcceptLoop();
  void StartSession(UnixSocket socket);
  // Joins the threads of sessions that are over.
  void Reap();

  Store* const store_;
  SharedArena* const arena_;
  const std::string name_;
  UnixSocket socket_;

  Mutex mutex_;
  CondVar stopped_changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Session> sessions_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace weir

#endif  // SERVER_PS_SERVICE_SHM_SERVICE_H_
