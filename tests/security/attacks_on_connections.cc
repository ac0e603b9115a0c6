// Attacks on the connections of a ps and of a chief.
#include <arpa/inet.h>
#include <grpcpp/generic/generic_stub.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "common/base/limits.h"
#include "common/io/file_descriptor.h"
#include "proto/wire/grpc_status.h"
#include "proto/wire/wire_version.h"
#include "tests/proto/security/raw_call.h"
#include "tests/security/attacks.h"
#include "tests/security/dropped_call.h"

namespace weir {
namespace {

constexpr absl::StatusCode kCut = absl::StatusCode::kAborted;

constexpr char kHello[] = "/weir.ParameterServer/Hello";
constexpr char kChiefStatus[] = "/weir.Chief/GetStatus";

HelloRequest Hello() {
  HelloRequest request;
  request.set_wire_version(kWireVersion);
  return request;
}

FileDescriptor ConnectTo(const std::string& address) {
  const size_t colon = address.find(':');
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port =
      htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
    return FileDescriptor();
  }
  return fd;
}

// Connections that say nothing: while the server has as many of them as it
// keeps, one who may call is served. (That the others are closed is in the
// server's own counts: a handshake that takes too long ends as well.)
absl::Status Floods(const Attacker& attacker, const std::string& address,
                    const std::string& method,
                    const google::protobuf::Message& request) {
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 4 * kConnectionsBase; ++i) {
    silent.push_back(ConnectTo(address));
  }
  return attacker.Call(method, request);
}

absl::Status FloodsThePs(const Attacker& attacker) {
  return Floods(attacker, attacker.ps, kHello, Hello());
}

absl::Status FloodsTheChief(const Attacker& attacker) {
  return Floods(attacker, attacker.chief, kChiefStatus, ChiefStatusRequest());
}

// A call that is begun and left open on a connection, for as long as that is.
class OpenCall {
 public:
  OpenCall(grpc::GenericStub* stub, const std::string& method)
      : call_(stub->PrepareCall(&context_, method, &queue_)) {
    void* tag = nullptr;
    bool ok = false;
    call_->StartCall(nullptr);
    queue_.Next(&tag, &ok);
    call_->Finish(&status_, nullptr);
  }
  ~OpenCall() {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }
  bool ended() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.AsyncNext(&tag, &ok, std::chrono::system_clock::now()) !=
           grpc::CompletionQueue::TIMEOUT;
  }

 private:
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::Status status_;
};

// Makes one call in order, then begins calls and drops them at once. ABORTED:
// the server has cut the connection.
absl::Status Drops(const std::shared_ptr<grpc::Channel>& channel,
                   const std::string& method,
                   const google::protobuf::Message& request,
                   const std::vector<std::string>& dropped) {
  const grpc::Status first =
      RawCall(channel, method, request.SerializeAsString());
  if (!first.ok()) {
    return FromGrpcStatus(first);
  }
  grpc::GenericStub stub(channel);
  OpenCall open(&stub, method);
  grpc::CompletionQueue queue;
  for (size_t i = 0; i < size_t{100} * kEmptyCallsPerSecond; ++i) {
    if (open.ended()) {
      return absl::AbortedError("the connection was cut");
    }
    BeginAndDropCall(&stub, dropped[i % dropped.size()], &queue);
  }
  return absl::OkStatus();
}

absl::Status DropsCalls(const Attacker& attacker) {
  return Drops(attacker.Connect(attacker.ps), kHello, Hello(), {kHello});
}

// With a message to come, without one, and of no method.
absl::Status DropsCallsOfTheChief(const Attacker& attacker) {
  return Drops(attacker.Connect(attacker.chief), kChiefStatus,
               ChiefStatusRequest(),
               {kChiefStatus, "/weir.Chief/Heartbeat", "/weir.Chief/Nothing"});
}

const Attack kAttacks[] = {
    // reader, worker, admin, anyone in insecure mode
    {"FloodsThePs", FloodsThePs, {kOk, kOk, kOk, kOk}},
    {"FloodsTheChief", FloodsTheChief, {kOk, kOk, kOk, kOk}},
    {"DropsCalls", DropsCalls, {kCut, kCut, kCut, kCut}},
    {"DropsCallsOfTheChief", DropsCallsOfTheChief, {kCut, kCut, kCut, kCut}},
};

}  // namespace

std::span<const Attack> AttacksOnConnections() { return kAttacks; }

}  // namespace weir
