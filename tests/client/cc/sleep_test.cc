// A client in a process that sleeps (SIGSTOP) longer than lost_after.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "client/cc/parameters/parameter_client.h"
#include "client/cc/transport/grpc_transport.h"
#include "tests/support/loopback_ps.h"

namespace weir {
namespace {

constexpr std::chrono::milliseconds kLostAfter{1000};

Want Version(uint64_t version) {
  Want want;
  want.set_version(version);
  return want;
}

LoopbackPs::Options TwoSlots() { return {.sync_contributions = 2}; }

// A worker of the ps whose fingerprint and address come through `from`. It
// pulls version 0, says so through `to`, and then waits for version 1. Ends the
// process with 0 if all of it comes.
[[noreturn]] void RunWorker(int from, int to) {
  const LoopbackPs::Options options = TwoSlots();
  char address[64] = {};
  uint64_t fingerprint = 0;
  bool good = read(from, &fingerprint, sizeof(fingerprint)) > 0 &&
              read(from, address, sizeof(address)) > 0;
  LoopbackPs::Options undeclared = options;
  undeclared.declare = false;
  LoopbackPs shape(undeclared);  // only for the sender and the sizes
  Sender sender = shape.SenderOf(0);
  sender.set_layout_fingerprint(fingerprint);
  std::vector<VariableSpec> variables(1);
  variables[0].name = "w";
  variables[0].shape = {options.block_elements * options.block_count - 16};
  const Layout layout =
      Layout::Create(variables, 1, options.block_elements).value();
  std::vector<float> values(static_cast<size_t>(layout.flat_elements()));
  const auto transport = MakeGrpcTransport();
  ParameterClient::Options own;
  own.transport = transport.get();
  own.addresses = {address};
  own.layout = &layout;
  own.parameters = values.data();
  own.lost_after = kLostAfter;
  auto client = ParameterClient::Create(std::move(own)).value();
  good = good && client->StartPull(sender, Version(0)).ok() &&
         client->WaitPull().ok() && client->StartPull(sender, Version(1)).ok();
  good = good && write(to, "x", 1) == 1;  // waits for others now
  const absl::Status status = client->WaitPull();
  if (!status.ok()) {
    fprintf(stderr, "child: %s\n", status.ToString().c_str());
  }
  _exit(good && status.ok() ? 0 : 1);
}

// One contribution of each slot, over all blocks: version 1 is complete.
void PushAll(LoopbackPs* ps) {
  const std::vector<float> gradient(
      static_cast<size_t>(ps->options.block_elements), 1.0f);
  for (uint32_t slot = 0; slot < 2; ++slot) {
    for (int block = 0; block < ps->options.block_count; ++block) {
      GradientChunk chunk = ps->Chunk(static_cast<int>(slot), 0, block);
      chunk.mutable_push()->set_index_in_step(slot);
      const std::vector<float> part(gradient.begin(),
                                    gradient.begin() + ps->elements(block));
      ASSERT_TRUE(
          ps->store->Push(chunk, Payload::Borrowed(BytesOf(part))).ok());
    }
  }
}

// A process that sleeps longer than lost_after finds its answers in the socket.
// Forked before gRPC has threads.
TEST(SleepTest, AProcessThatSleptGoesOn) {
  int to_child[2];
  int from_child[2];
  ASSERT_EQ(pipe(to_child), 0);
  ASSERT_EQ(pipe(from_child), 0);
  const pid_t child = fork();
  if (child == 0) {
    RunWorker(to_child[0], from_child[1]);
  }
  close(from_child[1]);
  LoopbackPs ps(TwoSlots());
  const uint64_t fingerprint = ps.SenderOf(0).layout_fingerprint();
  ASSERT_EQ(write(to_child[1], &fingerprint, sizeof(fingerprint)), 8);
  char address[64] = {};
  ps.address().copy(address, sizeof(address) - 1);
  ASSERT_EQ(write(to_child[1], address, sizeof(address)), 64);
  char ready = 0;
  ASSERT_EQ(read(from_child[0], &ready, 1), 1);
  kill(child, SIGSTOP);
  std::this_thread::sleep_for(3 * kLostAfter);
  kill(child, SIGCONT);
  // Time in which it could blame the ps.
  std::this_thread::sleep_for(kLostAfter / 2);
  ASSERT_NO_FATAL_FAILURE(PushAll(&ps));
  int code = 0;
  ASSERT_EQ(waitpid(child, &code, 0), child);
  EXPECT_TRUE(WIFEXITED(code));
  EXPECT_EQ(WEXITSTATUS(code), 0);
}

}  // namespace
}  // namespace weir
