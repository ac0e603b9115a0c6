#include "client/cc/job/chief_client.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "client/cc/job/chief_link.h"
#include "proto/chief.grpc.pb.h"
#include "proto/wire/wire_version.h"

namespace weir {
namespace {

// A chief that says what the test tells it to.
class FakeChief : public Chief::Service {
 public:
  FakeChief() { Listen("127.0.0.1:0"); }
  ~FakeChief() override { Shutdown(); }

  void Listen(const std::string& address) {
    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    int port = 0;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      down_ = false;
    }
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    address_ = "127.0.0.1:" + std::to_string(port);
  }

  void Shutdown() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      down_ = true;
      changed_.notify_all();
    }
    if (server_ != nullptr) {
      server_->Shutdown(std::chrono::system_clock::now());
      server_.reset();
    }
  }

  const std::string& address() const { return address_; }

  void Send(const Command& command) {
    std::lock_guard<std::mutex> lock(mutex_);
    commands_.push_back(command);
    changed_.notify_all();
  }

  void EndHeartbeats(const grpc::Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    end_ = status;
    changed_.notify_all();
  }

  // Waits until some progress message fits.
  bool Saw(const std::function<bool(const Progress&)>& fits) {
    std::unique_lock<std::mutex> lock(mutex_);
    size_t next = 0;
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] {
      for (; next < progress_.size(); ++next) {
        if (fits(progress_[next])) {
          return true;
        }
      }
      return false;
    });
  }

  std::vector<Progress> progress() {
    std::lock_guard<std::mutex> lock(mutex_);
    return progress_;
  }

  int contributions() {
    std::lock_guard<std::mutex> lock(mutex_);
    int contributions = 0;
    for (const Progress& progress : progress_) {
      contributions += progress.report_size();
    }
    return contributions;
  }

  grpc::Status Register(grpc::ServerContext*, const RegisterRequest* request,
                        RegisterReply* reply) override {
    std::lock_guard<std::mutex> lock(mutex_);
    requests_.push_back(*request);
    reply->set_wire_version(wire_version_);
    changed_.notify_all();
    if (!refusal_.ok()) {
      return refusal_;
    }
    if (over_.has_value()) {
      *reply->mutable_over() = *over_;
      return grpc::Status::OK;
    }
    if (waits_ > 0) {
      --waits_;
      reply->mutable_wait()->set_retry_ms(10);
      reply->mutable_wait()->set_reason("declaring");
      return grpc::Status::OK;
    }
    if (assign_ != request->assigned_history()) {
      reply->mutable_assign()->set_history(assign_);
      return grpc::Status::OK;
    }
    *reply->mutable_grant() = grant_;
    return grpc::Status::OK;
  }

  grpc::Status Heartbeat(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<Command, Progress>* stream) override {
    std::thread writer([&] {
      std::unique_lock<std::mutex> lock(mutex_);
      while (!down_ && end_.ok()) {
        if (commands_.empty()) {
          changed_.wait_for(lock, std::chrono::milliseconds(20));
          continue;
        }
        const Command command = commands_.front();
        commands_.pop_front();
        stream->Write(command);
      }
    });
    Progress progress;
    while (stream->Read(&progress)) {
      std::lock_guard<std::mutex> lock(mutex_);
      progress_.push_back(progress);
      if (acknowledges_ && progress.message_number() > 0) {
        commands_.emplace_back().set_heard(progress.message_number());
      }
      changed_.notify_all();
      if (!end_.ok() || down_) {
        break;
      }
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (end_.ok()) {
        end_ = grpc::Status(grpc::StatusCode::UNAVAILABLE, "stream ends");
      }
    }
    writer.join();
    std::lock_guard<std::mutex> lock(mutex_);
    const grpc::Status end = end_;
    end_ = grpc::Status::OK;
    return end;
  }

  std::mutex mutex_;
  Grant grant_;
  grpc::Status refusal_;
  std::optional<Stop> over_;
  bool acknowledges_ = false;
  int waits_ = 0;
  uint32_t wire_version_ = kWireVersion;
  uint64_t assign_ = 0;  // the history whose values it asks for
  std::vector<RegisterRequest> requests_;

 private:
  std::condition_variable changed_;
  std::string address_;
  std::deque<Command> commands_;
  std::vector<Progress> progress_;
  grpc::Status end_;
  bool down_ = false;
  std::unique_ptr<grpc::Server> server_;
};

std::unique_ptr<ChiefClient> Client(
    const FakeChief& chief, int lost_after_ms = 5000,
    std::function<void(Phases*)> read_device = nullptr,
    std::function<bool()> job_is_done = nullptr) {
  ChiefClient::Options options;
  options.link = MakeGrpcChiefLink(chief.address(), nullptr);
  options.request.set_rank(2);
  options.request.set_process(99);
  options.lost_after = std::chrono::milliseconds(lost_after_ms);
  options.progress_every = std::chrono::milliseconds(20);
  options.read_device = std::move(read_device);
  options.read_device_every = std::chrono::minutes(1);
  options.job_is_done = std::move(job_is_done);
  options.register_timeout = std::chrono::milliseconds(1000);
  return ChiefClient::Create(std::move(options)).value();
}

void MakeGrant(FakeChief* chief) {
  chief->grant_.mutable_sender()->set_slot(2);
  chief->grant_.mutable_sender()->set_generation(4);
  chief->grant_.mutable_sender()->set_history(1234);
  chief->grant_.set_next_sequence(7);
}

TEST(ChiefClientTest, WaitsUntilItIsGranted) {
  FakeChief chief;
  MakeGrant(&chief);
  chief.waits_ = 3;
  const auto client = Client(chief);
  const auto grant = client->Register();
  ASSERT_TRUE(grant.ok()) << grant.status();
  EXPECT_EQ(grant->next_sequence(), 7u);
  EXPECT_EQ(chief.requests_.size(), 4u);
  EXPECT_EQ(chief.requests_[0].held_generation(), 0u);
}

TEST(ChiefClientTest, AProxyForTheWebIsNotTaken) {
  FakeChief chief;
  MakeGrant(&chief);
  setenv("grpc_proxy", "http://127.0.0.1:1", 1);  // NOLINT: no other thread
  const auto grant = Client(chief, /*lost_after_ms=*/1000)->Register();
  unsetenv("grpc_proxy");  // NOLINT
  EXPECT_TRUE(grant.ok()) << grant.status();
}

TEST(ChiefClientTest, RegistersAgainWithTheValuesThatItAssigned) {
  FakeChief chief;
  MakeGrant(&chief);
  chief.assign_ = 77;
  const auto client = Client(chief);
  int assigned = 0;
  ChiefClient::Joining joining;
  joining.assign = [&](const Sender& sender) {
    EXPECT_EQ(sender.history(), 77u);
    ++assigned;
    return absl::OkStatus();
  };
  EXPECT_TRUE(client->Register(joining).ok());
  EXPECT_EQ(assigned, 1);
  ASSERT_EQ(chief.requests_.size(), 2u);
  EXPECT_EQ(chief.requests_[1].assigned_history(), 77u);
}

TEST(ChiefClientTest, AHeldContributionGivesUpWhenItsTimeIsOver) {
  FakeChief chief;
  MakeGrant(&chief);
  const auto client = Client(chief);
  client->Start(client->Register().value(), [] {});
  Command hold;
  hold.set_hold(true);
  chief.Send(hold);
  ASSERT_TRUE(chief.Saw([](const Progress& p) { return p.holding(); }));
  EXPECT_FALSE(client->EnterContributionWithin(std::chrono::milliseconds(10))
                   .has_value());
  hold.set_release(true);
  chief.Send(hold);
  EXPECT_EQ(client->EnterContributionWithin(std::chrono::seconds(10)), true);
}

TEST(ChiefClientTest, ARefusalIsFinalAndNamed) {
  FakeChief chief;
  chief.refusal_ = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                "train.batch_size: 64 -> 32");
  const auto grant = Client(chief)->Register();
  EXPECT_EQ(grant.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(grant.status().message()).find("train.batch_size"),
            std::string::npos);
}

TEST(ChiefClientTest, AChiefOfAnotherWireVersionIsRefused) {
  FakeChief chief;
  chief.wire_version_ = kWireVersion + 1;
  const auto grant = Client(chief)->Register();
  EXPECT_EQ(grant.status(),
            absl::InvalidArgumentError(absl::StrCat(
                "chief (", chief.address(), "): the chief speaks wire version ",
                kWireVersion + 1, ", this process ", kWireVersion,
                ": run the same release of Weir in every task")));
}

TEST(ChiefClientTest, AChiefThatNeverComesIsLost) {
  FakeChief chief;
  chief.Shutdown();
  const auto grant = Client(chief, /*lost_after_ms=*/300)->Register();
  EXPECT_EQ(grant.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(grant.status().message()).find("unreachable for 0.3 s"),
            std::string::npos);
}

TEST(ChiefClientTest, AHoldWaitsForTheContributionInFlightAndEndsWithRelease) {
  FakeChief chief;
  MakeGrant(&chief);
  const auto client = Client(chief);
  client->Start(client->Register().value(), [] {});
  ASSERT_TRUE(client->EnterContribution());
  Command hold;
  hold.set_hold(true);
  chief.Send(hold);
  ASSERT_TRUE(chief.Saw([](const Progress& p) {
    return p.slot() == 2 && p.generation() == 4 && p.next_sequence() == 7;
  }));
  ContributionReport report;
  report.set_contribution(41);
  ContributionResult result;
  result.staleness_sum = 6;
  result.staleness_max = 3;
  client->LeaveContribution(8, report, result);
  ASSERT_TRUE(chief.Saw(
      [](const Progress& p) { return p.holding() && p.next_sequence() == 8; }));
  EXPECT_EQ(chief.contributions(), 1);
  std::thread release([&] {
    Command command;
    command.set_release(true);
    chief.Send(command);
  });
  EXPECT_TRUE(client->EnterContribution());
  release.join();
}

TEST(ChiefClientTest, PhasesAddUpAndTheDeviceIsReadWithThem) {
  FakeChief chief;
  MakeGrant(&chief);
  std::atomic<int> reads{0};
  const auto client = Client(chief, 5000, [&](Phases* phases) {
    phases->set_nvml_watts(400 + ++reads);
  });
  client->Start(client->Register().value(), [] {});
  // Nothing is read before there is something to report.
  ASSERT_TRUE(chief.Saw([](const Progress&) { return true; }));
  EXPECT_EQ(reads, 0);
  Phases phases;
  phases.set_contributions(1);
  phases.set_step_ns(100);
  phases.set_data_wait_ns(1);
  phases.set_pull_wait_ns(2);
  phases.set_push_wait_ns(3);
  phases.set_compute_ns(90);
  phases.set_on_gpu(true);
  phases.set_device_bytes_used(50);
  uint64_t contributions = 0;
  uint64_t rest_ns = 0;
  for (uint64_t sequence = 8; sequence < 8 + 5; ++sequence) {
    ASSERT_TRUE(client->EnterContribution());
    client->AddPhases(phases);
    client->LeaveContribution(sequence, {}, {});
  }
  client->Close(absl::OkStatus());
  for (const Progress& progress : chief.progress()) {
    if (!progress.has_phases()) {
      continue;
    }
    const Phases& sum = progress.phases();
    EXPECT_TRUE(sum.on_gpu());
    EXPECT_EQ(sum.device_bytes_used(), 50u);
    EXPECT_EQ(sum.compute_ns(), 90 * sum.contributions());
    EXPECT_EQ(sum.nvml_watts(), contributions == 0 ? 401.0 : 0.0);
    contributions += sum.contributions();
    rest_ns += sum.step_ns() - sum.compute_ns() - sum.data_wait_ns() -
               sum.pull_wait_ns() - sum.push_wait_ns();
  }
  EXPECT_EQ(contributions, 5u);
  EXPECT_EQ(rest_ns, 5 * 4u);
  EXPECT_EQ(reads, 1);  // at most one a minute, here
}

TEST(ChiefClientTest, AStopEndsTheWaitAndCarriesItsReason) {
  FakeChief chief;
  MakeGrant(&chief);
  const auto client = Client(chief);
  std::atomic<int> stops{0};
  client->Start(client->Register().value(), [&] { ++stops; });
  Command stop;
  stop.mutable_stop()->set_code(
      static_cast<uint32_t>(absl::StatusCode::kOutOfRange));
  stop.mutable_stop()->set_reason("2 bad contributions\nand a forged line");
  chief.Send(stop);
  client->OutOfWork();
  EXPECT_FALSE(client->EnterContribution());
  // A log must not take a peer's text for two lines.
  EXPECT_EQ(client->stop_status().message(),
            "2 bad contributions\\nand a forged line");
  client->Close(absl::OkStatus());
  EXPECT_EQ(stops, 1);
}

TEST(ChiefClientTest, TheLastWordReachesTheChief) {
  FakeChief chief;
  MakeGrant(&chief);
  const auto client = Client(chief);
  client->Start(client->Register().value(), [] {});
  ASSERT_TRUE(client->EnterContribution());
  client->LeaveContribution(8, {}, {});
  client->Close(absl::FailedPreconditionError("ps 1 is gone"));
  ASSERT_TRUE(chief.Saw([](const Progress& p) {
    return p.error() == "ps 1 is gone" && p.next_sequence() == 8;
  }));
}

TEST(ChiefClientTest, AReplacedWorkerStops) {
  FakeChief chief;
  MakeGrant(&chief);
  const auto client = Client(chief);
  client->Start(client->Register().value(), [] {});
  ASSERT_TRUE(chief.Saw([](const Progress&) { return true; }));
  chief.EndHeartbeats(
      grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "replaced"));
  client->OutOfWork();
  EXPECT_EQ(client->stop_status().code(), absl::StatusCode::kPermissionDenied);
}

TEST(ChiefClientTest, ARestartedChiefIsJoinedWithTheGrantHeld) {
  FakeChief chief;
  MakeGrant(&chief);
  const auto client = Client(chief);
  client->Start(client->Register().value(), [] {});
  ASSERT_TRUE(chief.Saw([](const Progress&) { return true; }));
  chief.Shutdown();
  ASSERT_TRUE(client->EnterContribution());  // training goes on meanwhile
  client->LeaveContribution(8, {}, {});
  chief.Listen(chief.address());
  ASSERT_TRUE(
      chief.Saw([](const Progress& p) { return p.next_sequence() == 8; }));
  EXPECT_EQ(chief.requests_.back().held_history(), 1234u);
  EXPECT_EQ(chief.requests_.back().held_generation(), 4u);
  EXPECT_FALSE(client->stopping());
}

TEST(ChiefClientTest, AnotherHistoryEndsTheWorker) {
  FakeChief chief;
  MakeGrant(&chief);
  const auto client = Client(chief);
  client->Start(client->Register().value(), [] {});
  ASSERT_TRUE(chief.Saw([](const Progress&) { return true; }));
  {
    std::lock_guard<std::mutex> lock(chief.mutex_);
    chief.grant_.mutable_sender()->set_history(5);
  }
  chief.EndHeartbeats(grpc::Status(grpc::StatusCode::UNAVAILABLE, "restart"));
  client->OutOfWork();
  EXPECT_EQ(client->stop_status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// All ps were lost before the first checkpoint: the chief wants the values of a
// fresh program, and would wait for this one for ever.
TEST(ChiefClientTest, AChiefThatAsksForInitialValuesAgainEndsTheWorker) {
  FakeChief chief;
  MakeGrant(&chief);
  const auto client = Client(chief);
  client->Start(client->Register().value(), [] {});
  ASSERT_TRUE(chief.Saw([](const Progress&) { return true; }));
  {
    std::lock_guard<std::mutex> lock(chief.mutex_);
    chief.assign_ = 77;
  }
  chief.EndHeartbeats(grpc::Status(grpc::StatusCode::UNAVAILABLE, "restart"));
  client->OutOfWork();
  EXPECT_EQ(client->stop_status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(ChiefClientTest, WhoComesWhenTheJobIsDoneEndsWell) {
  FakeChief chief;
  chief.over_.emplace();
  const auto client = Client(chief);
  EXPECT_FALSE(client->Register().ok());
  EXPECT_TRUE(client->stopping());
  EXPECT_TRUE(client->stop_status().ok());
}

// The code may be one by which a call is repeated, too.
TEST(ChiefClientTest, WhoComesWhenTheJobHasFailedHearsWhy) {
  FakeChief chief;
  chief.over_.emplace().set_code(
      static_cast<uint32_t>(absl::StatusCode::kUnavailable));
  chief.over_->set_reason("ps 1 is gone");
  const auto client = Client(chief);
  EXPECT_FALSE(client->Register().ok());
  EXPECT_EQ(client->stop_status().message(), "ps 1 is gone");
}

TEST(ChiefClientTest, AWorkerBetweenTwoStreamsHearsThatTheJobIsDone) {
  FakeChief chief;
  MakeGrant(&chief);
  const auto client = Client(chief);
  client->Start(client->Register().value(), [] {});
  ASSERT_TRUE(chief.Saw([](const Progress&) { return true; }));
  {
    std::lock_guard<std::mutex> lock(chief.mutex_);
    chief.over_.emplace();
  }
  chief.EndHeartbeats(grpc::Status(grpc::StatusCode::UNAVAILABLE, "broken"));
  client->OutOfWork();
  EXPECT_TRUE(client->stopping());
  EXPECT_TRUE(client->stop_status().ok());
}

TEST(ChiefClientTest, DoneIsLookedForWhileTheChiefIsAway) {
  FakeChief chief;
  MakeGrant(&chief);
  const auto client =
      Client(chief, /*lost_after_ms=*/60000, nullptr, [] { return true; });
  client->Start(client->Register().value(), [] {});
  ASSERT_TRUE(chief.Saw([](const Progress&) { return true; }));
  chief.Shutdown();
  client->OutOfWork();
  EXPECT_TRUE(client->stop_status().ok()) << client->stop_status();
}

TEST(ChiefClientTest, ReportsOfAStreamThatBrokeComeAgain) {
  FakeChief chief;
  MakeGrant(&chief);
  const auto client = Client(chief);
  client->Start(client->Register().value(), [] {});
  ContributionReport bad;
  bad.set_contribution(7);
  bad.set_bad(true);
  ASSERT_TRUE(client->EnterContribution());
  client->LeaveContribution(8, bad, {});
  ASSERT_TRUE(
      chief.Saw([](const Progress& p) { return p.report_size() == 1; }));
  const auto number = [&chief](size_t nth) {
    size_t seen = 0;
    for (const Progress& progress : chief.progress()) {
      if (progress.report_size() == 1 && progress.report(0).bad() &&
          seen++ == nth) {
        return progress.message_number();
      }
    }
    return uint64_t{0};
  };
  EXPECT_EQ(number(0), 1u);
  // The chief that took it died before it said so.
  {
    std::lock_guard<std::mutex> lock(chief.mutex_);
    chief.acknowledges_ = true;
  }
  chief.EndHeartbeats(grpc::Status(grpc::StatusCode::UNAVAILABLE, "broken"));
  ASSERT_TRUE(chief.Saw([seen = 0](const Progress& p) mutable {
    return p.report_size() == 1 && ++seen == 2;
  }));
  EXPECT_EQ(number(1), 1u);
  // Now it is acknowledged.
  ASSERT_TRUE(client->EnterContribution());
  client->LeaveContribution(9, bad, {});
  ASSERT_TRUE(
      chief.Saw([](const Progress& p) { return p.message_number() == 2; }));
  client->Close(absl::OkStatus());
  EXPECT_EQ(chief.contributions(), 3);
}

TEST(ChiefClientTest, ManyReportsTakeSeveralMessages) {
  FakeChief chief;
  MakeGrant(&chief);
  chief.acknowledges_ = true;
  const auto client = Client(chief);
  client->Start(client->Register().value(), [] {});
  ASSERT_TRUE(chief.Saw([](const Progress&) { return true; }));
  chief.Shutdown();
  constexpr int kContributions = 25000;
  for (uint64_t sequence = 8; sequence < 8 + kContributions; ++sequence) {
    client->LeaveContribution(sequence, {}, {});
  }
  chief.Listen(chief.address());
  ASSERT_TRUE(chief.Saw([](const Progress& p) {
    return p.next_sequence() == 7 + static_cast<uint64_t>(kContributions);
  }));
  client->Close(absl::OkStatus());
  EXPECT_EQ(chief.contributions(), kContributions);
  uint64_t told = 7;
  for (const Progress& progress : chief.progress()) {
    EXPECT_LE(progress.report_size(), 10000);
    told += static_cast<uint64_t>(progress.report_size());
    EXPECT_EQ(progress.next_sequence(), told);
  }
}

TEST(ChiefClientTest, ASignalStopsAtTheNextSequence) {
  FakeChief chief;
  MakeGrant(&chief);
  const auto client = Client(chief);
  client->Start(client->Register().value(), [] {});
  client->RequestStop(absl::CancelledError("SIGTERM"));
  EXPECT_FALSE(client->EnterContribution());
  EXPECT_EQ(client->stop_status().message(), "SIGTERM");
}

TEST(ChiefClientTest, ASignalLetsTheContributionInFlightEnd) {
  FakeChief chief;
  MakeGrant(&chief);
  const auto client = Client(chief);
  bool interrupted = false;
  client->Start(client->Register().value(), [&] { interrupted = true; });
  ASSERT_TRUE(client->EnterContribution());
  client->RequestStop(absl::CancelledError("SIGTERM"));
  EXPECT_FALSE(interrupted);
  EXPECT_FALSE(client->stopping());
  client->LeaveContribution(8, ContributionReport(), ContributionResult());
  EXPECT_TRUE(interrupted);
  EXPECT_FALSE(client->EnterContribution());
  EXPECT_EQ(client->stop_status().message(), "SIGTERM");
  client->Close(client->stop_status());
  EXPECT_TRUE(chief.Saw([](const Progress& p) {
    return p.next_sequence() == 8 && p.error() == "SIGTERM";
  }));
}

TEST(ChiefClientTest, AnotherSlotIsTakenAfterTheContributionInFlight) {
  FakeChief chief;
  MakeGrant(&chief);
  const auto client = Client(chief);
  client->Start(client->Register().value(), [] {});
  ASSERT_TRUE(client->EnterContribution());
  Command take;
  take.set_take_slot(3);
  chief.Send(take);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(client->stopping());
  EXPECT_FALSE(client->slot_to_take().has_value());
  client->LeaveContribution(8, ContributionReport(), ContributionResult());
  for (int i = 0; i < 500 && !client->stopping(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_TRUE(client->slot_to_take().has_value());
  EXPECT_EQ(client->slot_to_take()->slot, 3);
}

TEST(ChiefClientTest, AStopWinsOverAnotherSlot) {
  FakeChief chief;
  MakeGrant(&chief);
  const auto client = Client(chief);
  client->Start(client->Register().value(), [] {});
  ASSERT_TRUE(client->EnterContribution());
  Command take;
  take.set_take_slot(3);
  chief.Send(take);
  Command stop;
  stop.mutable_stop()->set_reason("done");
  chief.Send(stop);
  for (int i = 0; i < 500 && !client->stopping(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(client->stopping());
  EXPECT_FALSE(client->slot_to_take().has_value());
}

TEST(ChiefClientTest, WhoIsToStopTakesNoOtherSlot) {
  FakeChief chief;
  MakeGrant(&chief);
  const auto client = Client(chief);
  client->Start(client->Register().value(), [] {});
  ASSERT_TRUE(client->EnterContribution());
  client->RequestStop(absl::CancelledError("SIGTERM"));
  Command take;
  take.set_take_slot(3);
  chief.Send(take);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  client->LeaveContribution(8, ContributionReport(), ContributionResult());
  client->Close(client->stop_status());
  EXPECT_FALSE(client->slot_to_take().has_value());
}

// A chief that held it may never come back.
TEST(ChiefClientTest, AHoldEndsWithTheStreamThatBroughtIt) {
  FakeChief chief;
  MakeGrant(&chief);
  const auto client = Client(chief, /*lost_after_ms=*/60000);
  client->Start(client->Register().value(), [] {});
  Command hold;
  hold.set_hold(true);
  chief.Send(hold);
  ASSERT_TRUE(chief.Saw([](const Progress& p) { return p.holding(); }));
  chief.Shutdown();
  const auto entered =
      client->EnterContributionWithin(std::chrono::seconds(20));
  ASSERT_TRUE(entered.has_value());
  EXPECT_TRUE(*entered);
}

}  // namespace
}  // namespace weir
