// Attacks on a ps, its blocks and its shared memory.
#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "proto/wire/grpc_status.h"
#include "proto/wire/wire_version.h"
#include "tests/security/attacks.h"
#include "tests/support/shm_stranger.h"
#include "tests/support/wait_until.h"

namespace weir {
namespace {

std::string Method(const std::string& name) {
  return "/weir.ParameterServer/" + name;
}

absl::Status ReadsTheWeights(const Attacker& attacker) {
  PullRequest request;
  *request.mutable_sender() = attacker.AsReader();
  request.mutable_want()->set_latest(true);
  const auto stub = ParameterServer::NewStub(attacker.Connect(attacker.ps));
  grpc::ClientContext context;
  SetDeadline(&context);
  const auto stream = stub->Pull(&context, request);
  ValueChunk chunk;
  while (stream->Read(&chunk)) {
  }
  return FromGrpcStatus(stream->Finish());
}

// A gradient that is to ruin the model, in the name of worker 0.
absl::Status PoisonsAStep(const Attacker& attacker) {
  GradientChunk chunk;
  *chunk.mutable_sender() = attacker.sender;
  chunk.mutable_sender()->set_slot(0);
  chunk.mutable_sender()->set_generation(1);
  Hyper* const hyper = chunk.mutable_push()->add_hyper();
  hyper->set_learning_rate(1e30);
  return attacker.Call(Method("PushPull"), chunk);
}

// A generation that the chief could never outdo.
absl::Status LocksAWorkerOut(const Attacker& attacker) {
  SetSlotsRequest request;
  *request.mutable_sender() = attacker.AsReader();
  request.add_slot()->set_generation(UINT32_MAX);
  return attacker.Call(Method("SetSlots"), request);
}

absl::Status EndsAPs(const Attacker& attacker) {
  ShutdownRequest request;
  *request.mutable_sender() = attacker.AsReader();
  request.set_code(77);
  request.set_reason("bye\n2026-01-01 00:00:00 chief/0 I forged \x1b[31m");
  return attacker.Call(Method("Shutdown"), request);
}

// How `call` ends for each of several words in place of a checkpoint's name;
// INTERNAL where they do not all end alike.
absl::Status EndOfPaths(
    const Attacker& attacker,
    const std::function<absl::Status(const std::string&)>& call) {
  const std::string elsewhere = attacker.checkpoints + "-elsewhere";
  std::filesystem::create_directory(elsewhere);
  const absl::Status first = call(elsewhere);
  for (const std::string& path :
       {std::string("../checkpoints-elsewhere"), std::string("/proc/self"),
        std::string("/etc/shadow"), std::string("/nonexistent"), std::string(),
        attacker.checkpoint + "/../../checkpoints-elsewhere"}) {
    const absl::Status status = call(path);
    if (status.code() != first.code()) {
      return absl::InternalError(absl::StrCat(first.ToString(), ", and ", path,
                                              ": ", status.ToString()));
    }
  }
  return first;
}

// As the chief would: at a step that comes soon. Repeats it where that step has
// gone by, or the chief's own came first.
absl::Status WritesCheckpoint(const Attacker& attacker,
                              const std::string& checkpoint) {
  absl::Status written;
  WaitUntil([&] {
    PsStatus status;
    (void)attacker.Call(Method("GetStatus"), GetStatusRequest(), &status);
    SnapshotRequest request;
    *request.mutable_sender() = attacker.AsReader();
    request.set_checkpoint(checkpoint);
    request.set_version(status.version_max() + 20);
    const auto stub = ParameterServer::NewStub(attacker.Connect(attacker.ps));
    grpc::ClientContext context;
    SetDeadline(&context);
    const auto stream = stub->Snapshot(&context, request);
    SnapshotReply reply;
    while (stream->Read(&reply)) {
    }
    written = FromGrpcStatus(stream->Finish());
    return !absl::IsAborted(written) && !absl::IsOutOfRange(written);
  });
  return written;
}

absl::Status WritesCheckpointsElsewhere(const Attacker& attacker) {
  return EndOfPaths(attacker, [&](const std::string& path) {
    return WritesCheckpoint(attacker, path);
  });
}

absl::Status OverwritesACheckpoint(const Attacker& attacker) {
  return WritesCheckpoint(attacker, attacker.checkpoint);
}

// What is told of a manifest that is none would tell what is in a file.
absl::Status ReadsFilesByRestoring(const Attacker& attacker) {
  return EndOfPaths(attacker, [&](const std::string& path) {
    RestoreRequest request;
    *request.mutable_declaration() = attacker.declaration;
    request.mutable_declaration()->set_history(9);
    request.set_checkpoint(path);
    return attacker.Call(Method("Restore"), request);
  });
}

absl::Status RollsTheJobBack(const Attacker& attacker) {
  RestoreRequest request;
  *request.mutable_declaration() = attacker.declaration;
  request.mutable_declaration()->set_history(4242);
  request.set_checkpoint(attacker.checkpoint);
  return attacker.Call(Method("Restore"), request);
}

absl::Status DeclaresAnew(const Attacker& attacker) {
  DeclareRequest request;
  *request.mutable_declaration() = attacker.declaration;
  request.mutable_declaration()->set_history(4242);
  return attacker.Call(Method("Declare"), request);
}

absl::Status AssignsValues(const Attacker& attacker) {
  AssignChunk chunk;
  *chunk.mutable_sender() = attacker.AsReader();
  chunk.set_payload(std::string(sizeof(float), '\x7f'));
  return attacker.Call(Method("Assign"), chunk);
}

// Waits for a version that does not come soon, on many streams, until a bound
// is reached. Whoever trains has a share of their own.
absl::Status ParksPulls(const Attacker& attacker) {
  constexpr int kCalls = 1200;  // more than readers or a slot may have parked
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientAsyncReader<ValueChunk>> reader;
    grpc::Status status;
  };
  PullRequest request;
  *request.mutable_sender() = attacker.sender;
  request.add_block(0);
  request.mutable_want()->set_version(attacker.declaration.base_version() +
                                      1'000'000'000);
  request.mutable_want()->set_timeout_ms(4000);
  grpc::CompletionQueue queue;
  std::unique_ptr<ParameterServer::Stub> stub;
  std::deque<Call> calls;
  for (int i = 0; i < kCalls; ++i) {
    if (i % kStreamsPerConnection == 0) {
      stub = ParameterServer::NewStub(attacker.Connect(attacker.ps));
    }
    Call& call = calls.emplace_back();
    SetDeadline(&call.context);
    call.reader = stub->PrepareAsyncPull(&call.context, request, &queue);
    call.reader->StartCall(nullptr);
    call.reader->Finish(&call.status, &call);
  }
  // The first that ends is the one too many; the others are dropped.
  absl::Status first;
  void* tag = nullptr;
  bool ok = false;
  for (size_t ended = 0; ended < calls.size();) {
    queue.Next(&tag, &ok);
    if (tag == nullptr) {
      continue;  // a start
    }
    if (ended++ == 0) {
      first = FromGrpcStatus(static_cast<Call*>(tag)->status);
      for (Call& call : calls) {
        call.context.TryCancel();
      }
    }
  }
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return first;
}

// A ticket for a session of shared memory, which workers alone get.
absl::StatusOr<std::string> Ticket(const Attacker& attacker) {
  HelloRequest request;
  request.set_wire_version(kWireVersion);
  HelloReply reply;
  const absl::Status status = attacker.Call(Method("Hello"), request, &reply);
  if (!status.ok()) {
    return status;
  }
  if (reply.shm_ticket().empty()) {
    return absl::UnauthenticatedError("Hello gave no ticket");
  }
  return reply.shm_ticket();
}

// As much address space as a process has.
absl::Status HandsOverTooMuchMemory(const Attacker& attacker) {
  const auto ticket = Ticket(attacker);
  ShmStranger stranger(attacker.shm_name);
  const absl::Status opened = stranger.Open(ticket.value_or(""));
  if (!ticket.ok()) {
    return opened.ok() ? opened : ticket.status();
  }
  const uint64_t bytes = uint64_t{4} << 40;
  (void)stranger.SendRegion(1, bytes, stranger.memory->fd());
  return absl::Status(stranger.End(), "the session has ended");
}

// Connections that say nothing: those over the bound are turned away, and a
// session opens again once they are gone.
absl::Status TakesAllSessions(const Attacker& attacker) {
  {
    std::deque<UnixSocket> silent;
    for (size_t i = 0; i < kShmSessionsMax + 20; ++i) {
      silent.push_back(*UnixSocket::Connect(attacker.shm_name));
    }
    const auto turned_away = [&] {
      return std::count_if(silent.begin(), silent.end(), [](const auto& one) {
        return one.WaitReadable(std::chrono::milliseconds(0));
      });
    };
    if (!WaitUntil([&] { return turned_away() >= 20; })) {
      return absl::ResourceExhaustedError("silent sessions without bound");
    }
  }
  absl::Status status;
  WaitUntil([&] {
    const auto ticket = Ticket(attacker);
    status = ticket.status();
    if (ticket.ok()) {
      status = ShmStranger(attacker.shm_name).Open(*ticket);
    }
    return status.ok() || !ticket.ok();
  });
  return status;
}

const Attack kAttacks[] = {
    // reader, worker, admin, anyone in insecure mode
    {"ReadsTheWeights", ReadsTheWeights, {kOk, kOk, kRefused, kOk}},
    {"PoisonsAStep", PoisonsAStep, {kRefused, kDenied, kRefused, kDenied}},
    {"LocksAWorkerOut",
     LocksAWorkerOut,
     {kRefused, kRefused, kRefused, kInvalid}},
    // Not even an admin knows the secret of the chief that made the shard.
    {"EndsAPs", EndsAPs, {kRefused, kRefused, kDenied, kDenied}},
    {"WritesCheckpointsElsewhere",
     WritesCheckpointsElsewhere,
     {kRefused, kRefused, kRefused, kInvalid}},
    {"OverwritesACheckpoint",
     OverwritesACheckpoint,
     {kRefused, kRefused, kRefused, kInvalid}},
    {"ReadsFilesByRestoring",
     ReadsFilesByRestoring,
     {kRefused, kRefused, kRefused, kInvalid}},
    // Left out: where nobody proves anything, anyone may do a chief's work.
    {"RollsTheJobBack",
     RollsTheJobBack,
     {kRefused, kRefused, kRefused, std::nullopt}},
    {"DeclaresAnew", DeclaresAnew, {kRefused, kRefused, kRefused, kDenied}},
    {"AssignsValues",
     AssignsValues,
     {kRefused, kRefused, kRefused, absl::StatusCode::kFailedPrecondition}},
    {"ParksPulls", ParksPulls, {kOver, kOver, kRefused, kOver}},
    {"HandsOverTooMuchMemory",
     HandsOverTooMuchMemory,
     {kRefused, kOver, kRefused, kOver}},
    {"TakesAllSessions", TakesAllSessions, {kRefused, kOk, kRefused, kOk}},
};

}  // namespace

std::span<const Attack> AttacksOnPs() { return kAttacks; }

}  // namespace weir
