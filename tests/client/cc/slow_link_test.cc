// The clients on links that are slow, silent or held up: scaled down, with
// lost_after of a second and a link on which a block takes longer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "client/cc/parameters/parameter_client.h"
#include "client/cc/parameters/table_client.h"
#include "client/cc/transport/grpc_transport.h"
#include "common/job/layout.h"
#include "tests/support/chaos_proxy.h"
#include "tests/support/loopback_ps.h"

namespace weir {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr milliseconds kLostAfter{1000};
// A block of 1 MiB takes 1.7 s, and two are under way.
constexpr double kSlowBytesPerS = 600e3;
constexpr int64_t kBlockElements = 256 << 10;
constexpr int kDim = 64;

template <class Predicate>
bool Becomes(const Predicate& predicate) {
  const auto end = std::chrono::steady_clock::now() + seconds(30);
  while (!predicate() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  return predicate();
}

LoopbackPs::Options TwoBlocks(int contributions) {
  return {.block_elements = kBlockElements,
          .block_count = 2,
          .sync_contributions = contributions,
          .table_dim = kDim};
}

// A client of `ps` at `address`, by gRPC.
struct Trainer {
  Trainer(const LoopbackPs& ps, const std::string& address,
          milliseconds lost_after = kLostAfter)
      : sender(ps.SenderOf(0)),
        transport(MakeGrpcTransport({.own_connections = true})) {
    std::vector<VariableSpec> variables(1);
    variables[0].name = "w";
    variables[0].shape = {ps.options.block_elements * ps.options.block_count -
                          16};
    layout = std::make_unique<Layout>(
        Layout::Create(variables, 1, ps.options.block_elements).value());
    parameters.resize(static_cast<size_t>(layout->flat_elements()));
    gradients.assign(parameters.size(), 1.0f);
    ParameterClient::Options options;
    options.transport = transport.get();
    options.addresses = {address};
    options.layout = layout.get();
    options.parameters = parameters.data();
    options.gradients = gradients.data();
    options.lost_after = lost_after;
    client = ParameterClient::Create(std::move(options)).value();
    TableClient::Options table_options;
    table_options.transport = transport.get();
    table_options.addresses = {address};
    table_options.tables = {ps.MakeDeclaration().table(0)};
    table_options.lost_after = lost_after;
    tables = TableClient::Create(std::move(table_options)).value();
  }

  absl::Status Step(uint64_t sequence) {
    ContributionPush push;
    push.sender = sender;
    push.sequence = sequence;
    push.then = Version(sequence + 1);
    absl::Status status = client->BeginContribution(push);
    if (status.ok()) {
      client->GradientReady(0);
    }
    status.Update(client->FinishContribution());
    status.Update(client->WaitReceipts().status());
    status.Update(client->WaitPull());
    return status;
  }

  // 2 MiB of rows there and back.
  absl::Status RowStep(uint64_t sequence) {
    std::vector<uint64_t> ids((2 << 20) / (4 * kDim));
    std::iota(ids.begin(), ids.end(), 1);
    std::vector<float> rows(ids.size() * kDim);
    const TableClient::Wanted wanted = {0, ids, rows.data()};
    absl::Status status =
        tables->StartLookup(sender, Version(sequence), true, {&wanted, 1});
    const auto versions = tables->WaitLookup();
    status.Update(versions.status());
    if (!status.ok()) {
      return status;
    }
    EXPECT_EQ(rows[7], -1.0f * static_cast<float>(sequence));
    std::fill(rows.begin(), rows.end(), 1.0f);
    ContributionPush push;
    push.sender = sender;
    push.sequence = sequence;
    const TableClient::Gradients gradients_of = {0, ids, rows.data()};
    status.Update(tables->StartUpdate(push, *versions, {&gradients_of, 1}));
    status.Update(tables->WaitUpdate().status());
    return status;
  }

  static Want Version(uint64_t version) {
    Want want;
    want.set_version(version);
    return want;
  }

  const Sender sender;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Layout> layout;
  std::vector<float> parameters;
  std::vector<float> gradients;
  std::unique_ptr<ParameterClient> client;
  std::unique_ptr<TableClient> tables;
};

TEST(SlowLinkTest, BlocksThatTakeLongerThanLostAfterArrive) {
  LoopbackPs ps(TwoBlocks(1));
  ChaosProxy proxy(ps.address(), {.bytes_per_s = kSlowBytesPerS});
  Trainer trainer(ps, proxy.address());
  for (uint64_t sequence = 0; sequence < 2; ++sequence) {
    const absl::Status status = trainer.Step(sequence);
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(trainer.parameters[9], -2.0f);
  EXPECT_EQ(trainer.client->counters().reconnects, 0u);
}

TEST(SlowLinkTest, RowsThatTakeLongerThanLostAfterArrive) {
  LoopbackPs ps(TwoBlocks(1));
  ChaosProxy proxy(ps.address(), {.bytes_per_s = kSlowBytesPerS});
  Trainer trainer(ps, proxy.address());
  for (uint64_t sequence = 0; sequence < 2; ++sequence) {
    const absl::Status status = trainer.RowStep(sequence);
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(trainer.tables->counters().reconnects, 0u);
}

TEST(SlowLinkTest, ALinkThatFallsSilentIsLost) {
  LoopbackPs ps(TwoBlocks(1));
  ChaosProxy proxy(ps.address(), {.bytes_per_s = kSlowBytesPerS});
  Trainer trainer(ps, proxy.address());
  std::thread cut([&] {
    EXPECT_TRUE(Becomes([&] { return proxy.bytes_up() > 400 << 10; }));
    proxy.SetHeld(true);
  });
  const absl::Status status = trainer.Step(0);
  cut.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(status.message(), HasSubstr("unreachable for 1 s"));
}

// A payload that lies in a connection that the ps does not serve is the
// caller's memory. When that is used for something else it must not be sent any
// more.
TEST(SlowLinkTest, SeveredLinksGiveBackWhatTheyHold) {
  LoopbackPs ps(TwoBlocks(1));
  ChaosProxy proxy(ps.address(), {.bytes_per_s = kSlowBytesPerS});
  const auto transport = MakeGrpcTransport({.own_connections = true});
  const auto link = transport->ConnectData(proxy.address());
  const std::vector<float> gradient(kBlockElements, 1.0f);
  std::atomic<bool> released{false};
  auto stream = link->OpenPushPull();
  std::thread sender([&] {
    stream
        ->Send(ps.Chunk(0, 0, 0), BytesOf(gradient),
               [&released] { released = true; })
        .IgnoreError();
  });
  ASSERT_TRUE(Becomes([&] { return proxy.bytes_up() > 100 << 10; }));
  proxy.SetHeld(true);
  stream->Cancel();
  sender.join();
  stream.reset();
  link->Sever();
  EXPECT_TRUE(Becomes([&] { return released.load(); }));
}

}  // namespace
}  // namespace weir
