// The admin port of a task: whether it is well, what it counts, and pages for
// people, over plain HTTP.
//
// Place: the main of every task starts one where it is asked to (TaskMain). The
// task's parts say what is to be seen there; nothing is read before somebody
// asks. See "Admin port" in docs/design_notes.md.
//
// What is there from the start:
//   /healthz  "ok" while the process answers; open to everybody.
//   /readyz   "ok", or 503 and what is missing; open to everybody.
//   /metrics  for Prometheus; open where `metrics_open`, else by token.
//
// Who may see what needs the token shows it in a link, /?token=..., which
// answers with a cookie and the path without the token, or in a header,
// "Authorization: Bearer ...". Where the job is insecure nobody has a token:
// then such a path is open to this host, and to nobody where the port can be
// reached from elsewhere.
//
// Invariants
//   I1. What needs the token is never answered without it, but on the loopback
//       address of an insecure job, to a client that names this host: a page
//       of the web cannot make a browser read it under another name.
//   I2. A token is compared in constant time, and is in no log.
//   I3. After Reset no function that a task gave runs any more.
//
// Threads: safe. The functions are called on the port's one thread, one at a
//   time, and may not call this object. What they may cost in all is bounded by
//   HttpListener, which answers nobody else meanwhile, so they do not wait long
//   for others.
// Errors (Start): INVALID_ARGUMENT  the port is in use, or no such address.
#ifndef PROTO_ADMIN_ADMIN_SERVER_H_
#define PROTO_ADMIN_ADMIN_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "proto/admin/http_codec.h"
#include "proto/admin/http_listener.h"
#include "proto/admin/metric_page.h"
#include "proto/admin/process_metrics.h"

namespace weir {

class AdminServer {
 public:
  struct Options {
    std::string address = "127.0.0.1";
    int port = 0;  // 0 takes a free one
    // Hexadecimal digits. "": nobody can prove who he is.
    std::string token;
    // Of a job whose tasks do not prove who they are, either.
    bool insecure = false;
    // Whether /metrics needs no token.
    bool metrics_open = false;
    TaskInfo task;
    Clock* clock = Clock::Real();
  };
  enum class Access { kOpen, kToken };
  struct Request {
    std::string path;
    std::multimap<std::string, std::string> params;  // decoded
    // The first value of a parameter, or "".
    std::string Param(const std::string& name) const;
  };
  struct Answer {
    std::string content_type;
    std::string body;
  };
  using Handler = std::function<absl::StatusOr<Answer>(const Request&)>;

  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(Options options);

  // Answers GET of exactly `path` from now on. Its errors become codes of HTTP
  // by their meaning, with the message as text.
  void Handle(const std::string& path, Access access, Handler handler);
  // Adds to each page of metrics.
  void AddMetrics(std::function<void(MetricPage*)> add);
  // Says whether the task is ready, or what is missing. Until then it is not.
  void SetReady(std::function<absl::Status()> ready);
  // Forgets all that Handle, AddMetrics and SetReady were given, and waits for
  // what of it is running. A task calls it before what they use ends.
  void Reset();

  int port() const { return listener_->port(); }
  // HOST:PORT as another process reaches it: this host's name stands for an
  // address that means all of its own.
  std::string address() const;

 private:
  struct Page {
    Access access = Access::kToken;
    Handler handler;
  };

  explicit AdminServer(Options options);
  HttpCodec::Response Route(const HttpCodec::Request& request);
  HttpCodec::Response Ask(const Handler& handler,
                          const HttpCodec::Request& request);
  // What to answer in place of the page: a refusal, or the cookie. nullopt: the
  // request may see the page.
  std::optional<HttpCodec::Response> Check(
      const HttpCodec::Request& request) const;
  bool IsToken(absl::string_view shown) const;

  const Options options_;
  const std::string cookie_name_;
  HttpCodec codec_;
  Mutex mutex_;
  std::map<std::string, Page> pages_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void(MetricPage*)>> metrics_
      ABSL_GUARDED_BY(mutex_);
  std::function<absl::Status()> ready_ ABSL_GUARDED_BY(mutex_);
  // The last one, since its thread uses all above.
  std::unique_ptr<HttpListener> listener_;
};

// The scope in which a task serves: it says that the task is ready, or asks
// `ready` for it, and resets the server at its end. It stands below all that
// the functions given to the server use. `server` may be null.
class AdminScope {
 public:
  explicit AdminScope(
      AdminServer* server,
      std::function<absl::Status()> ready = [] { return absl::OkStatus(); })
      : server_(server) {
    if (server_ != nullptr) {
      server_->SetReady(std::move(ready));
    }
  }
  ~AdminScope() {
    if (server_ != nullptr) {
      server_->Reset();
    }
  }
  AdminScope(const AdminScope&) = delete;
  AdminScope& operator=(const AdminScope&) = delete;

 private:
  AdminServer* const server_;
};

}  // namespace weir

#endif  // PROTO_ADMIN_ADMIN_SERVER_H_
