// What hostile clients do to a live job, through the wire of the real programs.
//
// Place: hostile_clients_test.cc runs every attack as every kind of client.
//
// An attack returns how the call ended that it is about. Where it tries several
// things it returns the first that was let in, or else how the last one ended.
#ifndef TESTS_SECURITY_ATTACKS_H_
#define TESTS_SECURITY_ATTACKS_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "proto/chief.grpc.pb.h"
#include "proto/ps.grpc.pb.h"

namespace weir {

// A client that means harm. It knows all of the job but what belongs to other
// workers alone, which are their capabilities.
struct Attacker {
  std::string name;
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::string ps;     // address
  std::string chief;  // address
  int rank = 0;
  Sender sender;  // as it was granted a slot; generation 0: it was not
  JobSpec spec;
  Declaration declaration;
  std::string checkpoints;  // directory
  std::string checkpoint;   // one that is committed
  std::string shm_name;

  // A new connection.
  std::shared_ptr<grpc::Channel> Connect(const std::string& address) const;
  // A unary call, or a stream of one message each way, on a new connection.
  absl::Status Call(const std::string& method,
                    const google::protobuf::Message& request,
                    google::protobuf::Message* answer = nullptr) const;
  // Itself as somebody who may only read.
  Sender AsReader() const;
  // What a worker tells the chief at its start.
  RegisterRequest Registration() const;
};

// The ways an attack ends, by short names for the tables.
inline constexpr absl::StatusCode kOk = absl::StatusCode::kOk;
inline constexpr absl::StatusCode kRefused = absl::StatusCode::kUnauthenticated;
inline constexpr absl::StatusCode kDenied = absl::StatusCode::kPermissionDenied;
inline constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
inline constexpr absl::StatusCode kOver = absl::StatusCode::kResourceExhausted;

// How an attack must end by who runs it; unset: it is left out, for the reason
// beside it. A client that proves nothing must get UNAVAILABLE or
// UNAUTHENTICATED, whatever it does.
struct Ends {
  std::optional<absl::StatusCode> reader;
  std::optional<absl::StatusCode> worker;
  std::optional<absl::StatusCode> admin;
  std::optional<absl::StatusCode> anyone;  // in insecure mode
};

struct Attack {
  const char* name;
  absl::Status (*run)(const Attacker&);
  Ends ends;
};

// Of the ps, its blocks and its shared memory.
std::span<const Attack> AttacksOnPs();
// Of the ps's rows. The job's second table has rows of 16 numbers.
std::span<const Attack> AttacksOnRows();
std::span<const Attack> AttacksOnChief();
// Of both servers' connections.
std::span<const Attack> AttacksOnConnections();

// A call may take so long at most.
void SetDeadline(grpc::ClientContext* context);

}  // namespace weir

#endif  // TESTS_SECURITY_ATTACKS_H_
