// Takes requests of HTTP on one port, on one thread, within narrow bounds.
//
// Place: AdminServer has one. It knows of HTTP only where a request's head
// ends; HttpCodec knows the rest.
//
// Invariants
//   I1. One thread does all, and over ten seconds it takes at most 5% of a
//       core: after each round it pauses as CpuBudget says, and what comes
//       meanwhile waits in the kernel, which refuses what is too much.
//   I2. No client is waited for: each has a deadline to send its head, which
//       has a largest size, and one to take the answer. Then it is cut off.
//   I3. Each connection carries one request, and no body.
// The bounds are those of the admin port in common/base/limits.h.
//
// Threads: safe. `answer` is called on the listener's own thread, called
//   "weir_admin".
// Errors (Open): INVALID_ARGUMENT  the port is in use, or no such address.
#ifndef PROTO_ADMIN_HTTP_LISTENER_H_
#define PROTO_ADMIN_HTTP_LISTENER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/io/file_descriptor.h"
#include "common/threads/thread.h"
#include "proto/admin/cpu_budget.h"

namespace weir {

class HttpListener {
 public:
  struct Options {
    std::string address = "127.0.0.1";  // of a host, or its name
    int port = 0;                       // 0 takes a free one
    // Makes the answer to the head of a request. It is called on one thread.
    std::function<std::string(absl::string_view)> answer;
    Clock* clock = Clock::Real();
  };

  // Takes the port. Whoever connects waits for Start.
  static absl::StatusOr<std::unique_ptr<HttpListener>> Open(Options options);
  // Answers from now on. Call once.
  absl::Status Start();
  // Ends within the time that an answer takes.
  ~HttpListener();

  int port() const { return port_; }
  // Whether only this host can reach it.
  bool is_loopback() const { return is_loopback_; }

 private:
  struct Connection {
    FileDescriptor socket;
    int64_t deadline_ns = 0;
    std::string in;
    std::string out;  // the answer; "" until the head is there
    size_t sent = 0;
    bool over = false;
  };

  explicit HttpListener(Options options);
  absl::Status Listen();
  void Run();
  // Waits until something can be done, or a deadline.
  void Wait();
  void AcceptAll();
  void Serve(Connection* connection);
  void Receive(Connection* connection);
  void Send(Connection* connection);
  // Sleeps, but for ~HttpListener.
  void Pause(int64_t ns);

  const Options options_;
  FileDescriptor socket_;
  FileDescriptor stop_;  // an eventfd
  int port_ = 0;
  bool is_loopback_ = false;
  std::atomic<bool> stopping_{false};
  Thread thread_;

  // Of the thread alone.
  CpuBudget budget_;
  std::vector<std::unique_ptr<Connection>> connections_;
};

}  // namespace weir

#endif  // PROTO_ADMIN_HTTP_LISTENER_H_
