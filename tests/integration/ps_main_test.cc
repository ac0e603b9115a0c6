// weir_ps as a process: how it starts and how it ends.
#include <chrono>
#include <csignal>
#include <thread>

#include "client/cc/grpc_transport.h"
#include "gtest/gtest.h"
#include "tests/integration/harness.h"

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
        link(transport->Connect(address)) {}

  bool Serves() {
    return WaitUntil(20, [this] { return link->Hello(kTimeout).ok(); });
  }

  const std::string address;
  Process process;
  const std::unique_ptr<Transport> transport = MakeGrpcTransport();
  const std::unique_ptr<ShardLink> link;
};

TEST(PsMainTest, SigtermEndsItAtOnceWith143) {
  Ps ps("sigterm");
  ASSERT_TRUE(ps.Serves()) << ps.process.Log();
  const auto stream = ps.link->OpenPushPull();
  ps.process.Signal(SIGTERM);
  EXPECT_EQ(ps.process.Wait(5), 143) << ps.process.Log();
}

TEST(PsMainTest, ShutdownIsAnsweredAndEndsItWith0) {
  Ps ps("shutdown");
  ASSERT_TRUE(ps.Serves()) << ps.process.Log();
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
  const auto declared = ps.link->Declare(declare, kTimeout);
  ASSERT_TRUE(declared.ok()) << declared.status();
  ShutdownRequest shutdown;
  shutdown.mutable_sender()->set_job("other");
  EXPECT_FALSE(ps.link->Shutdown(shutdown, kTimeout).ok());
  EXPECT_TRUE(ps.link->Hello(kTimeout).ok());
  shutdown.mutable_sender()->set_job("test");
  shutdown.mutable_sender()->set_history(1);
  shutdown.mutable_sender()->set_layout_fingerprint(
      declared->layout_fingerprint());
  const absl::Status status = ps.link->Shutdown(shutdown, kTimeout);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(ps.process.Wait(10), 0) << ps.process.Log();
}

TEST(PsMainTest, AnAddressInUseIsOneLineAndExitCode2) {
  Ps ps("first");
  ASSERT_TRUE(ps.Serves()) << ps.process.Log();
  const std::string log = FreshDir("second") + "/log";
  Process second({Binary("server/ps/weir_ps"), "--cluster", "ps=" + ps.address,
                  "--task_index", "0"},
                 {}, log);
  EXPECT_EQ(second.Wait(20), 2);
  EXPECT_EQ(ReadFile(log), "weir_ps: ps/0: cannot listen on " + ps.address +
                               ": Address already in use\n");
  EXPECT_TRUE(ps.link->Hello(kTimeout).ok());
}

// Not in grpc_transport_test: a server in the same process would read the
// client's sockets too.
TEST(PsMainTest, APsThatComesUpIsFoundSoon) {
  const std::string address = FreeAddress();
  const auto transport = MakeGrpcTransport();
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
  // As callers do, with a pause between attempts.
  while (!link->Hello(kTimeout).ok()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
  }
  // At most one backoff of 1 s; 5 s when nobody drives the connection.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

}  // namespace
}  // namespace weir
