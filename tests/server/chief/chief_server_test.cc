#include "server/chief/chief_server.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/chief.grpc.pb.h"
#include "proto/security/access_control.h"
#include "proto/security/security.h"
#include "proto/wire/grpc_deadline.h"
#include "proto/wire/wire_version.h"
#include "server/chief/chief_service.h"
#include "server/ps/store/store.h"
#include "tests/common/temp_dir.h"
#include "tests/security/dropped_call.h"
#include "tests/server/chief/chief_cluster.h"
#include "tests/server/chief/progress_of.h"
#include "tests/support/wait_until.h"

namespace weir {
namespace {

using testing::HasSubstr;

// One store, one chief behind a socket, one client.
class Bench {
 public:
  explicit Bench(std::shared_ptr<const Security> security = nullptr,
                 const std::string& audit_path = "")
      : cluster(MakeTempDir(), OnesSpec(10), 1, 1) {
    ChiefServer::Options options;
    options.runner = cluster.options;
    options.access.security = std::move(security);
    options.access.audit_path = audit_path;
    auto started = ChiefServer::Start(options);
    EXPECT_TRUE(started.ok()) << started.status();
    server = *std::move(started);
    stub = Chief::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", server->port()),
                            grpc::InsecureChannelCredentials()));
  }

  grpc::Status Register(RegisterRequest request, RegisterReply* reply,
                        uint32_t wire_version = kWireVersion) const {
    request.set_wire_version(wire_version);
    for (;;) {
      grpc::ClientContext context;
      const grpc::Status status = stub->Register(&context, request, reply);
      if (!status.ok() || reply->has_grant()) {
        return status;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  ChiefCluster cluster;
  std::unique_ptr<ChiefServer> server;
  std::unique_ptr<Chief::Stub> stub;
};

Progress ProgressOf(const Grant& grant, uint64_t next) {
  Progress progress = ProgressOf(grant);
  progress.set_next_sequence(next);
  return progress;
}

TEST(ChiefServerTest, GrantsStopsAndReportsOverTheWire) {
  Bench bench;
  RegisterReply reply;
  ASSERT_TRUE(
      bench.Register(OnesRequest(bench.cluster.options.spec, 0, 5), &reply)
          .ok());
  EXPECT_EQ(reply.grant().contribution_count(), 10u);
  grpc::ClientContext context;
  auto stream = bench.stub->Heartbeat(&context);
  ASSERT_TRUE(stream->Write(ProgressOf(reply.grant(), 4)));
  Command command;
  ASSERT_TRUE(stream->Read(&command));
  EXPECT_TRUE(command.release());
  ChiefStatus status;
  {
    grpc::ClientContext status_context;
    ASSERT_TRUE(
        bench.stub->GetStatus(&status_context, ChiefStatusRequest(), &status)
            .ok());
  }
  EXPECT_EQ(status.phase(), ChiefStatus::TRAINING);
  EXPECT_EQ(status.step_count(), 10u);
  bench.server->RequestStop("a test");
  bool saw_stop = false;
  while (!saw_stop && stream->Read(&command)) {
    if (command.hold()) {
      Progress holding = ProgressOf(reply.grant(), 4);
      holding.set_holding(true);
      stream->Write(holding);
    }
    saw_stop = command.has_stop();
  }
  ASSERT_TRUE(saw_stop);
  EXPECT_EQ(command.stop().code(),
            static_cast<uint32_t>(absl::StatusCode::kCancelled));
  EXPECT_THAT(command.stop().reason(), HasSubstr("a test"));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(bench.server->Wait().code(), absl::StatusCode::kCancelled);
}

std::shared_ptr<const Security> WithSecret(PeerRole role, int index) {
  Security::Options options;
  options.secret = std::string(32, 's');
  return *Security::Create(options, role, index);
}

TEST(ChiefServerTest, AWorkerIsItselfAlone) {
  Bench bench(WithSecret(PeerRole::kChief, 0));
  const auto register_as = [&](int index, RegisterReply* reply) {
    const auto security = WithSecret(PeerRole::kWorker, index);
    const auto stub = Chief::NewStub(grpc::CreateChannel(
        absl::StrCat("127.0.0.1:", bench.server->port()), security->ToChief()));
    RegisterRequest request = OnesRequest(bench.cluster.options.spec, 0, 5);
    request.set_wire_version(kWireVersion);
    grpc::Status status;
    do {
      grpc::ClientContext context;
      status = stub->Register(&context, request, reply);
    } while (status.ok() && !reply->has_grant());
    return status;
  };
  RegisterReply reply;
  // Worker 1 asks for worker 0's place, without an offer of the chief.
  const grpc::Status refused = register_as(1, &reply);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(refused.error_message(),
              HasSubstr("may not register as worker 0"));
  ASSERT_TRUE(register_as(0, &reply).ok());
  // A heartbeat without the grant's capability is nobody's.
  const auto security = WithSecret(PeerRole::kWorker, 1);
  const auto stub = Chief::NewStub(grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", bench.server->port()), security->ToChief()));
  grpc::ClientContext context;
  auto stream = stub->Heartbeat(&context);
  Progress forged = ProgressOf(reply.grant(), 10);
  forged.set_capability_low(forged.capability_low() + 1);
  ASSERT_TRUE(stream->Write(forged));
  Command command;
  EXPECT_FALSE(stream->Read(&command));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(ChiefServerTest, AClientThatBeginsAndDropsCallsIsCutOff) {
  const std::string audit = MakeTempDir() + "/audit.jsonl";
  Bench bench(nullptr, audit);
  const auto cuts = [&] {
    std::ifstream lines(audit);
    return std::count(std::istreambuf_iterator<char>(lines),
                      std::istreambuf_iterator<char>(), '\n');
  };
  // Whoever sends a message with each call may call as often.
  for (int i = 0; i < 4 * kEmptyCallsPerSecond; ++i) {
    grpc::ClientContext context;
    ChiefStatus status;
    ASSERT_TRUE(
        bench.stub->GetStatus(&context, ChiefStatusRequest(), &status).ok());
  }
  EXPECT_EQ(cuts(), 0);
  grpc::GenericStub stub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", bench.server->port()),
                          grpc::InsecureChannelCredentials()));
  grpc::CompletionQueue queue;
  int expected = 0;
  // With a message to come, with any number of them, and of no method.
  for (const char* method : {"/weir.Chief/GetStatus", "/weir.Chief/Heartbeat",
                             "/weir.Chief/Nothing"}) {
    ++expected;
    // More than a connection may drop within two seconds, as fast as they go.
    for (int i = 0; i < 50 * kEmptyCallsPerSecond && cuts() < expected; ++i) {
      BeginAndDropCall(&stub, method, &queue);
    }
    EXPECT_TRUE(WaitUntil([&] { return cuts() >= expected; })) << method;
  }
}

TEST(ChiefServerTest, ErrorsReachTheWorker) {
  Bench bench;
  RegisterReply reply;
  RegisterRequest request = OnesRequest(bench.cluster.options.spec, 0, 5);
  ASSERT_TRUE(bench.Register(request, &reply).ok());
  const Grant first = reply.grant();
  // A second process takes the slot while the first has its stream open.
  grpc::ClientContext context;
  auto stream = bench.stub->Heartbeat(&context);
  ASSERT_TRUE(stream->Write(ProgressOf(first, 0)));
  Command command;
  ASSERT_TRUE(stream->Read(&command));
  request.set_process(6);
  reply.Clear();
  ASSERT_TRUE(bench.Register(request, &reply).ok());
  EXPECT_FALSE(stream->Read(&command));
  const grpc::Status ended = stream->Finish();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(ended.error_message(), HasSubstr("newer process on here"));
  request.mutable_job_spec()->set_seed(99);
  const grpc::Status refused = bench.Register(request, &reply);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("seed"));
}

// They go into logs, onto terminals and into errors.
TEST(ChiefServerTest, TextsOfAWorkerAreOneLine) {
  Bench bench;
  RegisterReply reply;
  RegisterRequest request = OnesRequest(bench.cluster.options.spec, 0, 5);
  request.set_host("evil\nhost");
  const grpc::Status version = bench.Register(request, &reply, 0);
  EXPECT_THAT(version.error_message(), HasSubstr("worker 0 (evil\\nhost)"));
  ASSERT_TRUE(bench.Register(request, &reply).ok());
  grpc::ClientContext context;
  auto stream = bench.stub->Heartbeat(&context);
  Progress progress = ProgressOf(reply.grant(), 0);
  progress.set_error_code(
      static_cast<uint32_t>(absl::StatusCode::kInvalidArgument));
  progress.set_error("no data\x1b[31m");
  ASSERT_TRUE(stream->Write(progress));
  const auto ended = bench.server->WaitFor(std::chrono::seconds(20));
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->message(), "worker 0 (evil\\nhost): no data\\x1b[31m");
  context.TryCancel();
}

TEST(ChiefServerTest, TheNameOfABadGradientIsOneLine) {
  Bench bench;
  RegisterReply reply;
  ASSERT_TRUE(
      bench.Register(OnesRequest(bench.cluster.options.spec, 0, 5), &reply)
          .ok());
  grpc::ClientContext context;
  auto stream = bench.stub->Heartbeat(&context);
  // More than any job's limit.
  Progress progress = ProgressOf(reply.grant(), 10);
  for (uint64_t i = 0; i < 10; ++i) {
    ContributionReport* const report = progress.add_report();
    report->set_contribution(i);
    report->set_bad(true);
    report->set_bad_variable("w\nforged");
  }
  ASSERT_TRUE(stream->Write(progress));
  const auto ended = bench.server->WaitFor(std::chrono::seconds(20));
  ASSERT_TRUE(ended.has_value());
  EXPECT_THAT(std::string(ended->message()), HasSubstr("'w\\nforged'"));
  context.TryCancel();
}

TEST(ChiefServerTest, AWorkerOfAnotherWireVersionIsRefused) {
  Bench bench;
  RegisterReply reply;
  const RegisterRequest request = OnesRequest(bench.cluster.options.spec, 0, 5);
  for (const uint32_t version : {0u, kWireVersion + 1}) {
    const grpc::Status refused = bench.Register(request, &reply, version);
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(refused.error_message(),
                HasSubstr(absl::StrCat("speaks wire version ", version,
                                       ", this process ", kWireVersion)));
  }
  ASSERT_TRUE(bench.Register(request, &reply).ok());
  EXPECT_EQ(reply.wire_version(), kWireVersion);
}

TEST(ChiefServerTest, AnOpenStreamDoesNotHoldUpTheEnd) {
  auto bench = std::make_unique<Bench>();
  RegisterReply reply;
  ASSERT_TRUE(
      bench->Register(OnesRequest(bench->cluster.options.spec, 0, 5), &reply)
          .ok());
  grpc::ClientContext context;
  auto stream = bench->stub->Heartbeat(&context);
  ASSERT_TRUE(stream->Write(ProgressOf(reply.grant(), 0)));
  bench->server.reset();
  Command command;
  while (stream->Read(&command)) {
  }
  EXPECT_FALSE(stream->Finish().ok());
}

// A checkpoint that the bench's chief is writing.
std::string UnderWay(const Bench& bench) {
  const std::string path =
      bench.cluster.options.workdir + "/checkpoints/ckpt-7";
  EXPECT_TRUE(Files::Real()->MakeDirectories(path).ok());
  EXPECT_TRUE(Files::Real()
                  ->WriteAtomically(path + "/shard-0-of-1.safetensors", "1")
                  .ok());
  return path + "/shard-0-of-1.safetensors";
}

TEST(ChiefServerTest, AnAddressInUseIsSaidAndNothingIsTouched) {
  Bench bench;
  const std::string file = UnderWay(bench);
  ChiefServer::Options options;
  options.runner = bench.cluster.options;
  options.address = absl::StrCat("127.0.0.1:", bench.server->port());
  const auto second = ChiefServer::Start(options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(options.address));
  EXPECT_TRUE(*Files::Real()->Exists(file));
}

TEST(ChiefServerTest, AnotherAddressInTheSameWorkdirTouchesNothingEither) {
  Bench bench;
  const std::string file = UnderWay(bench);
  ChiefServer::Options options;
  options.runner = bench.cluster.options;
  options.runner.claim_wait = std::chrono::milliseconds(100);
  const auto second = ChiefServer::Start(options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("another chief works in"));
  EXPECT_TRUE(*Files::Real()->Exists(file));
}

TEST(ChiefServerTest, WaitsForTheChiefBeforeItToLeave) {
  Bench bench;
  std::thread leaves([&bench] {
    // The chief before keeps its runner until the grace of its server is over.
    bench.server.reset();
  });
  ChiefServer::Options options;
  options.runner = bench.cluster.options;
  options.runner.claim_wait = std::chrono::seconds(60);
  const auto second = ChiefServer::Start(options);
  EXPECT_TRUE(second.ok()) << second.status();
  leaves.join();
}

// What a worker sends while the chief is busy waits on the worker's side: all
// of it in the chief's inbox would leave no room for anybody else.
TEST(ChiefServerTest, AStreamHasOneMessageInTheInbox) {
  ChiefCluster cluster(MakeTempDir(), OnesSpec(10), 1, 1);
  ASSERT_TRUE(cluster.StartChief().ok());
  AccessControl access{AccessControl::Options()};
  ChiefService service(&access);
  service.SetRunner(cluster.chief.get());
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  const auto stub = Chief::NewStub(grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  std::atomic<bool> deciding{false};
  std::atomic<bool> go_on{false};
  cluster.chief->GetStatus([&](const absl::StatusOr<ChiefStatus>&) {
    deciding = true;
    EXPECT_TRUE(WaitUntil([&] { return go_on.load(); }));
  });
  ASSERT_TRUE(WaitUntil([&] { return deciding.load(); }));
  grpc::ClientContext context;
  auto stream = stub->Heartbeat(&context);
  // They fit into one window of HTTP/2, so Write does not wait.
  for (size_t i = 0; i < kChiefInboxMax + 10; ++i) {
    ASSERT_TRUE(stream->Write(Progress()));
  }
  // By the time that some more calls are through, they have arrived.
  int refused = 0;
  for (int i = 0; i < 100; ++i) {
    grpc::ClientContext early;
    ChiefStatus status;
    early.set_deadline(DeadlineAfter(std::chrono::milliseconds(10)));
    if (stub->GetStatus(&early, ChiefStatusRequest(), &status).error_code() ==
        grpc::StatusCode::RESOURCE_EXHAUSTED) {
      ++refused;
    }
  }
  EXPECT_EQ(refused, 0);
  go_on = true;
  context.TryCancel();
  Command command;
  while (stream->Read(&command)) {
  }
  EXPECT_FALSE(stream->Finish().ok());
  server->Shutdown(DeadlineAfter(std::chrono::seconds(1)));
}

TEST(ChiefServerTest, CallsBeforeTheChiefIsThereAreToldToWait) {
  AccessControl access{AccessControl::Options()};
  ChiefService early(&access);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(&early);
  const auto server = builder.BuildAndStart();
  const auto stub = Chief::NewStub(grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  const auto expect_wait = [](const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(status.error_message(), HasSubstr("the chief is starting"));
  };
  {
    grpc::ClientContext context;
    RegisterReply reply;
    expect_wait(stub->Register(&context, RegisterRequest(), &reply));
  }
  {
    grpc::ClientContext context;
    ChiefStatus status;
    expect_wait(stub->GetStatus(&context, ChiefStatusRequest(), &status));
  }
  grpc::ClientContext context;
  auto stream = stub->Heartbeat(&context);
  Command command;
  EXPECT_FALSE(stream->Read(&command));
  expect_wait(stream->Finish());
  server->Shutdown();
}

}  // namespace
}  // namespace weir
