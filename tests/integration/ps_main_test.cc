// weir_ps as a process: how it starts and how it ends.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cc/transport/grpc_transport.h"
#include "gtest/gtest.h"
#include "tests/integration/harness.h"
#include "tests/support/block_calls.h"

namespace weir {
namespace {

constexpr auto kTimeout = std::chrono::seconds(10);

struct Ps {
  explicit Ps(const std::string& name) : Ps(name, FreeAddress()) {}
  Ps(const std::string& name, const std::string& its_address)
      : address(its_address),
        process({Binary("server/ps/weir_ps"), "--cluster", "ps=" + address,
                 "--task_index", "0"},
                {}, FreshDir(name) + "/log"),
        link(transport->Connect(address)),
        data(transport->ConnectData(address)) {}

  bool Serves() {
    return WaitUntil(20, [this] { return link->Hello(kTimeout).ok(); });
  }

  const std::string address;
  Process process;
  const std::unique_ptr<Transport> transport =
      MakeGrpcTransport({.security = TestSecurity(PeerRole::kWorker)});
  const std::unique_ptr<ControlLink> link;
  const std::unique_ptr<DataLink> data;
};

TEST(PsMainTest, SigtermEndsItAtOnceWith143) {
  Ps ps("sigterm");
  ASSERT_TRUE(ps.Serves()) << ps.process.Log();
  const auto stream = ps.data->OpenPushPull();
  ps.process.Signal(SIGTERM);
  EXPECT_EQ(ps.process.Wait(5), 143) << ps.process.Log();
}

// Declares 1,024 zeros with SGD and one slot, as the chief of job "test" may.
absl::StatusOr<Sender> DeclareTest(ControlLink* link) {
  DeclareRequest declare;
  Declaration* declaration = declare.mutable_declaration();
  declaration->set_job("test");
  declaration->set_history(1);
  declaration->set_shard_count(1);
  declaration->set_block_elements(1024);
  declaration->set_slot_count(1);
  declaration->mutable_update()->mutable_async();
  Variable* variable = declaration->add_variable();
  variable->set_name("w");
  variable->add_shape(1024);
  Group* group = declaration->add_group();
  group->mutable_optimizer()->mutable_sgd();
  group->mutable_schedule()->set_learning_rate(0.1);
  const auto declared = link->Declare(declare, kTimeout);
  if (!declared.ok()) {
    return declared.status();
  }
  Sender sender;
  sender.set_job("test");
  sender.set_history(1);
  sender.set_layout_fingerprint(declared->layout_fingerprint());
  return sender;
}

TEST(PsMainTest, ShutdownIsAnsweredAndEndsItWith0) {
  Ps ps("shutdown");
  ASSERT_TRUE(ps.Serves()) << ps.process.Log();
  const auto sender = DeclareTest(ps.link.get());
  ASSERT_TRUE(sender.ok()) << sender.status();
  ShutdownRequest shutdown;
  shutdown.mutable_sender()->set_job("other");
  EXPECT_FALSE(ps.link->Shutdown(shutdown, kTimeout).ok());
  EXPECT_TRUE(ps.link->Hello(kTimeout).ok());
  *shutdown.mutable_sender() = *sender;
  const absl::Status status = ps.link->Shutdown(shutdown, kTimeout);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(ps.process.Wait(10), 0) << ps.process.Log();
}

TEST(PsMainTest, AShutdownForALostShardEndsItWith138AndSaysWhy) {
  Ps ps("shutdown_lost");
  ASSERT_TRUE(ps.Serves()) << ps.process.Log();
  const auto sender = DeclareTest(ps.link.get());
  ASSERT_TRUE(sender.ok()) << sender.status();
  ShutdownRequest shutdown;
  *shutdown.mutable_sender() = *sender;
  shutdown.set_code(static_cast<uint32_t>(absl::StatusCode::kUnavailable));
  shutdown.set_reason("ps 7 is lost");
  EXPECT_TRUE(ps.link->Shutdown(shutdown, kTimeout).ok());
  EXPECT_EQ(ps.process.Wait(10), 138) << ps.process.Log();
  EXPECT_NE(ps.process.Log().find("ps 7 is lost"), std::string::npos);
}

// A job that was stopped ends its ps by CANCELLED. As after any other Shutdown
// the answers that are under way are waited for: here a stream that is open
// holds the ps up for all of the 200 ms that it grants them.
TEST(PsMainTest, AShutdownOfAStoppedJobLetsAnswersOut) {
  Ps ps("shutdown_stopped");
  ASSERT_TRUE(ps.Serves()) << ps.process.Log();
  const auto sender = DeclareTest(ps.link.get());
  ASSERT_TRUE(sender.ok()) << sender.status();
  GradientChunk ask;
  *ask.mutable_sender() = *sender;
  ask.mutable_want()->set_latest(true);
  const auto stream = ps.data->OpenPushPull();
  stream->Send(ask, {}, nullptr).IgnoreError();
  ValueChunk answer;
  Payload payload;
  const absl::Status received = stream->Receive(&answer, &payload);
  ASSERT_TRUE(received.ok()) << received;
  ShutdownRequest shutdown;
  *shutdown.mutable_sender() = *sender;
  shutdown.set_code(static_cast<uint32_t>(absl::StatusCode::kCancelled));
  shutdown.set_reason("stopped");
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status status = ps.link->Shutdown(shutdown, kTimeout);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(ps.process.Wait(10), 138) << ps.process.Log();
  EXPECT_GE(std::chrono::steady_clock::now() - begin,
            std::chrono::milliseconds(200));
}

TEST(PsMainTest, SigtermEndsAPsThatNoChiefAsks) {
  Ps ps("sigterm_alone");
  ASSERT_TRUE(ps.Serves()) << ps.process.Log();
  ASSERT_TRUE(DeclareTest(ps.link.get()).ok());
  ps.process.Signal(SIGTERM);
  EXPECT_EQ(ps.process.Wait(5), 143) << ps.process.Log();
}

TEST(PsMainTest, SigtermIsToldToTheChiefWhoseShutdownIsWaitedFor) {
  Ps ps("sigterm_chief");
  ASSERT_TRUE(ps.Serves()) << ps.process.Log();
  const auto sender = DeclareTest(ps.link.get());
  ASSERT_TRUE(sender.ok()) << sender.status();
  const auto transport =
      MakeGrpcTransport({.security = TestSecurity(PeerRole::kWorker)});
  const auto chief = transport->Connect(ps.address);
  chief->SpeakAsChief();
  const auto asked = chief->Hello(kTimeout);
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_FALSE(asked->leaving());
  ps.process.Signal(SIGTERM);
  EXPECT_TRUE(WaitUntil(5, [&] {
    const auto hello = chief->Hello(kTimeout);
    return hello.ok() && hello->leaving();
  })) << ps.process.Log();
  ShutdownRequest shutdown;
  *shutdown.mutable_sender() = *sender;
  shutdown.set_code(static_cast<uint32_t>(absl::StatusCode::kCancelled));
  EXPECT_TRUE(chief->Shutdown(shutdown, kTimeout).ok());
  EXPECT_EQ(ps.process.Wait(10), 143) << ps.process.Log();
}

absl::StatusOr<PushedBlocks> PushOne(DataLink* link,
                                     const GradientChunk& header,
                                     const std::vector<float>& gradient) {
  bool sent = false;
  return PushBlocks(
      link, [&](GradientChunk* chunk, std::span<const char>* payload) {
        *chunk = header;
        *payload = {reinterpret_cast<const char*>(gradient.data()),
                    gradient.size() * sizeof(float)};
        return !std::exchange(sent, true);
      });
}

// Expects that a pull gives 1,024 times `expected`.
void ExpectValues(DataLink* link, const Sender& sender, float expected) {
  Want want;
  want.set_latest(true);
  std::vector<float> values(1024, -1.0f);
  const absl::Status status = PullBlocks(
      link, sender, want, 1, [&](const ValueChunk&, const Payload& payload) {
        payload.CopyTo(reinterpret_cast<char*>(values.data()));
      });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(values, std::vector<float>(1024, expected));
}

TEST(PsMainTest, BadChunksAreRefusedByNameAndNothingIsLost) {
  Ps ps("bad_chunks");
  ASSERT_TRUE(ps.Serves()) << ps.process.Log();
  const auto chief = DeclareTest(ps.link.get());
  ASSERT_TRUE(chief.ok()) << chief.status();
  SetSlotsRequest slots;
  *slots.mutable_sender() = *chief;
  slots.add_slot()->set_generation(1);
  ASSERT_TRUE(ps.link->SetSlots(slots, kTimeout).ok());

  GradientChunk good;
  *good.mutable_sender() = *chief;
  good.mutable_sender()->set_generation(1);
  good.mutable_push();
  const std::vector<float> gradient(1024, 1.0f);
  ASSERT_TRUE(PushOne(ps.data.get(), good, gradient).ok());
  good.mutable_push()->set_sequence(1);

  const auto refused = [&](const std::string& words,
                           const std::function<void(GradientChunk*)>& spoil,
                           size_t elements = 1024) {
    SCOPED_TRACE(words);
    GradientChunk chunk = good;
    spoil(&chunk);
    const auto reply =
        PushOne(ps.data.get(), chunk, std::vector<float>(elements, 1.0f));
    ASSERT_FALSE(reply.ok());
    EXPECT_NE(reply.status().message().find(words), std::string::npos)
        << reply.status();
    ExpectValues(ps.data.get(), *chief, -0.1f);
  };
  refused("job", [](auto* c) { c->mutable_sender()->set_job("other"); });
  refused("history", [](auto* c) { c->mutable_sender()->set_history(2); });
  refused("layout",
          [](auto* c) { c->mutable_sender()->set_layout_fingerprint(7); });
  refused("sequence number 1",
          [](auto* c) { c->mutable_push()->set_sequence(5); });
  refused("slot", [](auto* c) { c->mutable_sender()->set_slot(3); });
  refused("generation",
          [](auto* c) { c->mutable_sender()->set_generation(9); });
  refused("block", [](auto* c) { c->set_block(1); });
  refused(
      "bytes", [](auto*) {}, 1023);
  refused(
      "larger than max", [](auto*) {}, (4 << 20) / sizeof(float) + 99999);

  EXPECT_TRUE(PushOne(ps.data.get(), good, gradient).ok());
  ExpectValues(ps.data.get(), *chief, -0.2f);
}

TEST(PsMainTest, AnAddressInUseIsOneLineAndExitCode2) {
  Ps ps("first");
  ASSERT_TRUE(ps.Serves()) << ps.process.Log();
  const std::string log = FreshDir("second") + "/log";
  Process second({Binary("server/ps/weir_ps"), "--cluster", "ps=" + ps.address,
                  "--task_index", "0"},
                 {}, log);
  EXPECT_EQ(second.Wait(20), 2);
  const std::string output = ReadFile(log);
  EXPECT_NE(output.find(" ps/0 E cannot listen on " + ps.address +
                        ": Address already in use\n"),
            std::string::npos)
      << output;
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 1) << output;
  EXPECT_TRUE(ps.link->Hello(kTimeout).ok());
}

// This is not in grpc_transport_test, where a server in the same process would
// also read the client's sockets.
TEST(PsMainTest, APsThatComesUpIsFoundSoon) {
  const std::string address = FreeAddress();
  const auto transport =
      MakeGrpcTransport({.security = TestSecurity(PeerRole::kWorker)});
  const auto link = transport->Connect(address);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(link->Hello(kTimeout).status().code(),
              absl::StatusCode::kUnavailable);
  }
  Ps ps("late", address);
  ASSERT_TRUE(WaitUntil(20, [&ps] {
    return ps.process.Log().find("serving on") != std::string::npos;
  })) << ps.process.Log();
  const auto begin = std::chrono::steady_clock::now();
  // Callers pause between attempts, too.
  while (!link->Hello(kTimeout).ok()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
  }
  // One backoff of 1 s at most. It would be 5 s if nobody drove the connection.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

}  // namespace
}  // namespace weir
