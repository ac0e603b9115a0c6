// Offers a store to clients on this host through shared memory.
//
// Place: beside the gRPC server, in ps_server.cc. HelloReply.shm_name says
// where to connect; proto/wire/shm_message.h what is said there.
//
// Invariants
//   I1. A session that is over holds no descriptor, no memory and no place
//       among kShmSessionsMax.
//   I2. What one client does keeps no other from its session, but for the
//       places that it takes.
// Threads: one that accepts, two for each client.
// Owns/borrows: borrows store and arena.
#ifndef SERVER_PS_SERVICE_SHM_SERVICE_H_
#define SERVER_PS_SERVICE_SHM_SERVICE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/limits.h"
#include "common/base/mutex.h"
#include "common/io/unix_socket.h"
#include "common/threads/thread.h"
#include "server/ps/memory/shared_arena.h"
#include "server/ps/service/shm_session.h"
#include "server/ps/service/shm_tickets.h"
#include "server/ps/store/store.h"

namespace weir {

class ShmService {
 public:
  struct Options {
    // How long a client may take to say who it is.
    std::chrono::milliseconds opening_wait = kShmOpeningWait;
  };

  static absl::StatusOr<std::unique_ptr<ShmService>> Create(Store* store,
                                                            SharedArena* arena,
                                                            Options options);
  ~ShmService();

  const std::string& name() const { return name_; }
  // Of which every client must bring one.
  ShmTickets* tickets() { return &tickets_; }

 private:
  struct Session {
    std::shared_ptr<ShmSession> session;
    Thread thread;
  };

  ShmService(Store* store, SharedArena* arena, Options options,
             std::string name, UnixSocket socket);
  void AcceptLoop();
  absl::Status StartSession(UnixSocket socket);
  // Serves, and then takes the session out of the map.
  void RunSession(uint64_t id, ShmSession* session);

  ShmTickets tickets_;
  Store* const store_;
  SharedArena* const arena_;
  const Options options_;
  const std::string name_;
  UnixSocket socket_;
  Thread thread_;

  Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Session> sessions_ ABSL_GUARDED_BY(mutex_);
  // The thread of the session that ended last: the next one that ends joins it,
  // and the destructor joins the last of all.
  Thread ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // SERVER_PS_SERVICE_SHM_SERVICE_H_
