// A store behind a gRPC server: sockets, threads and their settings.
//
// Place: ps_main.cc runs one for a task; tests run it in their own process, on
// port 0.
//
// Threads: one for each completion queue, those of the service
//   (parameter_service.h) and of shared memory (shm_service.h), and one that
//   ends parked waits whose time is over.
// Errors: UNAVAILABLE  cannot listen; the message names the address and why.
#ifndef SERVER_PS_PS_SERVER_H_
#define SERVER_PS_PS_SERVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/metrics/host_usage.h"
#include "common/threads/thread.h"
#include "proto/security/access_control.h"
#include "server/ps/memory/shared_arena.h"
#include "server/ps/service/call_queue.h"
#include "server/ps/service/leaving.h"
#include "server/ps/service/parameter_service.h"
#include "server/ps/service/shm_service.h"
#include "server/ps/store/store.h"

namespace grpc {
class Server;
}

namespace weir {

class PsServer {
 public:
  struct Options {
    // Where to listen, "host:port"; port 0 takes a free one.
    std::string address = "127.0.0.1:0";
    // Completion queues, each with a thread. More of them serve more workers at
    // once, and cost switches between threads.
    int queue_count = 1;
    // The memory that gRPC may use for messages on their way, over all
    // connections.
    int64_t wire_bytes_max = int64_t{512} << 20;
    // The memory of `store`'s blocks, when clients on this host may map it;
    // null: they take gRPC. Borrowed.
    SharedArena* shared_arena = nullptr;
    // Decides who may call what, and gives the server's credentials; null:
    // anybody may do everything. Borrowed.
    AccessControl* access = nullptr;
    // Tells chiefs that this process is to end; null: they hear nothing.
    // Borrowed.
    Leaving* leaving = nullptr;
    // Of this process, for GetStatus; null: not known. Borrowed.
    const HostMeter* host = nullptr;
    // Called with the reason for the job's end after Shutdown was answered, on
    // a queue's thread; must not block.
    std::function<void(const absl::Status&)> on_shutdown;

    absl::Status Validate() const;
  };

  // Borrows `store`.
  static absl::StatusOr<std::unique_ptr<PsServer>> Create(Options options,
                                                          Store* store);
  ~PsServer();

  int port() { return access()->listener()->port(); }

  // As GetStatus answers a chief, but without the declaration.
  PsStatus Status();

  // Takes no more calls and ends the open ones after `grace`. A second call
  // does nothing.
  void Stop(std::chrono::milliseconds grace);

 private:
  PsServer(Options options, Store* store);
  AccessControl* access();
  absl::Status Start();
  void ExpireLoop();

  const Options options_;
  Store* const store_;
  AccessControl open_;  // where the options have none
  ParameterService service_;
  std::unique_ptr<ShmService> shm_service_;  // null: not offered
  std::vector<std::unique_ptr<CallQueue>> queues_;
  std::unique_ptr<grpc::Server> server_;

  Mutex mutex_;
  CondVar stopped_changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  Thread expire_thread_;
};

}  // namespace weir

#endif  // SERVER_PS_PS_SERVER_H_
