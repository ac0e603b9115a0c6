// weir_ps as a process: how it starts and how it ends.
#include <csignal>

#include "client/cc/grpc_transport.h"
#include "gtest/gtest.h"
#include "tests/integration/harness.h"

namespace weir {
namespace {

constexpr auto kTimeout = std::chrono::seconds(10);

struct Ps {
  explicit Ps(const std::string& name)
      : address(FreeAddress()),
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

}  // namespace
}  // namespace weir
