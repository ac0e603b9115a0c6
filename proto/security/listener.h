// Accepts the connections of a gRPC server.
//
// gRPC 1.51 stops accepting for ever once the process has been out of file
// descriptors (CVE-2023-4785), and takes any number of connections. So the
// server gets its connections from here.
//
// Place: PsServer and ChiefServer make one before they build their server, and
// start it once that runs.
//
// Terms
//   proven  a connection on which a call was admitted. The others may be
//           anybody's: they have sent nothing yet, or are in the handshake.
//
// Invariants
//   I1. At most `connections_max` connections are open, and at most
//       `unproven_max` of them are not proven. A new one that finds no room
//       takes the place of the oldest that is not proven, so that somebody who
//       opens many and says nothing keeps nobody out. If all are proven the new
//       one is closed.
//   I2. Accepting goes on when file descriptors have run out: one is kept in
//       reserve to close a connection that cannot be served.
// Threads: safe. One thread of its own.
// Errors: UNAVAILABLE  cannot listen; the message names the address and why.
#ifndef PROTO_SECURITY_LISTENER_H_
#define PROTO_SECURITY_LISTENER_H_

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/limits.h"
#include "common/base/mutex.h"
#include "common/io/file_descriptor.h"
#include "common/threads/thread.h"

struct addrinfo;

namespace weir {

class Listener {
 public:
  struct Options {
    // Where to listen, "host:port"; port 0 takes a free one.
    std::string address;
    std::shared_ptr<grpc::ServerCredentials> credentials;
    // More of them let more tasks in; each costs a descriptor and some 10 KiB.
    int connections_max = kConnectionsMax;
    int unproven_max = kConnectionsBase;
    // Called with an address when I1 has closed a connection from there. Null:
    // nobody wants to know.
    std::function<void(const std::string&)> on_closed;
  };

  struct Counts {
    uint64_t accepted = 0;
    uint64_t proven = 0;
    uint64_t closed = 0;  // by I1, or by Cut
    // Accepted, not proven and gone: strangers, and handshakes that failed.
    uint64_t failed = 0;
  };

  // Listens, and has `builder` take the connections.
  static absl::StatusOr<std::unique_ptr<Listener>> Create(
      Options options, grpc::ServerBuilder* builder);
  // Stops accepting.
  ~Listener();

  int port() const { return port_; }
  // Accepts from now on. REQUIRES: the server was built and runs.
  void Start();
  // Accepts no more. A second call does nothing.
  void Stop();

  // `peer` is a connection as gRPC names it (ServerContext::peer()): "ipv4:..."
  // or "ipv6:...".
  void MarkProven(const std::string& peer);
  // Counts a call that was ended before it had sent anything. A connection with
  // more than kEmptyCallsPerSecond of them is closed: see CVE-2023-44487.
  void CountEmptyCall(const std::string& peer);

  Counts counts() const;

 private:
  struct Connection {
    std::string peer;
    int fd = -1;          // gRPC's; only looked at while `cookie` fits
    uint64_t cookie = 0;  // the kernel's name of the socket
    bool proven = false;
    int64_t second = 0;  // of empty_calls
    int empty_calls = 0;
  };
  using Connections = std::list<Connection>;  // the oldest first

  explicit Listener(Options options) : options_(std::move(options)) {}
  absl::Status Listen();
  // 0, or the error's number.
  int ListenAt(const addrinfo& at);
  void AcceptLoop();
  void Accept(int listener);
  // Out of descriptors: closes one waiting connection (I2).
  void TurnAway(int listener);
  // Makes room for one more connection; false if there is none (I1).
  bool MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(Connections::iterator connection)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Close(Connections::iterator connection)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets the connections that gRPC has closed.
  void Sweep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  std::vector<FileDescriptor> listeners_;
  FileDescriptor stop_;     // an eventfd
  FileDescriptor reserve_;  // the thread's own after Start
  int port_ = 0;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  Thread thread_;

  mutable Mutex mutex_;
  Connections connections_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Connections::iterator> by_peer_ ABSL_GUARDED_BY(mutex_);
  int unproven_ ABSL_GUARDED_BY(mutex_) = 0;
  Counts counts_ ABSL_GUARDED_BY(mutex_);
};

// Raises the number of descriptors that this process may open to what the
// system allows it.
void RaiseDescriptorLimit();

}  // namespace weir

#endif  // PROTO_SECURITY_LISTENER_H_
