// A chief at an address: the runner behind a gRPC server.
//
// Place: weir_chief runs one; worker 0 hosts one where the cluster has no
// chief, at worker 0's own address; tests run one on port 0.
//
//   WEIR_ASSIGN_OR_RETURN(auto chief, ChiefServer::Start(options));
//   ... train ...
//   return chief->Wait();
//
// Threads: safe.
// Errors: INVALID_ARGUMENT  options, work directory or address are wrong; the
//                           message says what to do. If the address cannot be
//                           had, nothing was touched.
//         UNAVAILABLE       another chief works in the work directory.
#ifndef SERVER_CHIEF_CHIEF_SERVER_H_
#define SERVER_CHIEF_CHIEF_SERVER_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/security/access_control.h"
#include "server/chief/chief_runner.h"

namespace grpc {
class Server;
class Service;
}  // namespace grpc

namespace weir {

class ChiefServer {
 public:
  struct Options {
    ChiefRunner::Options runner;
    // Who may call, and how; its listener is set up here.
    AccessControl::Options access;
    // Where to listen, "host:port"; port 0 takes a free one.
    std::string address = "127.0.0.1:0";
  };

  static absl::StatusOr<std::unique_ptr<ChiefServer>> Start(Options options);
  // Ends open calls after a moment.
  ~ChiefServer();

  int port() const { return access_->listener()->port(); }
  // To ask for its reports; it lives as long as this.
  ChiefRunner* runner() { return runner_.get(); }
  // Blocks until the job is over; returns how it ended.
  absl::Status Wait() { return runner_->Wait(); }
  std::optional<absl::Status> WaitFor(std::chrono::milliseconds timeout) {
    return runner_->WaitFor(timeout);
  }
  // Writes a checkpoint and then ends the job.
  void RequestStop(const std::string& reason) { runner_->RequestStop(reason); }

 private:
  ChiefServer() = default;

  std::unique_ptr<AccessControl> access_;
  std::unique_ptr<ChiefRunner> runner_;
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Service> health_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_CHIEF_SERVER_H_
