// Payloads that are damaged on their way: found, and sent again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "client/cc/parameters/parameter_client.h"
#include "client/cc/parameters/table_client.h"
#include "client/cc/transport/grpc_transport.h"
#include "proto/wire/payload_checksum.h"
#include "tests/support/chaos_proxy.h"
#include "tests/support/loopback_ps.h"

namespace weir {
namespace {

using testing::HasSubstr;

constexpr int64_t kBlockElements = 64 << 10;
constexpr int kDim = 64;
constexpr int kSteps = 6;

Want Version(uint64_t version) {
  Want want;
  want.set_version(version);
  return want;
}

struct Outcome {
  absl::Status status;
  std::vector<float> parameters;
  std::vector<float> rows;
  int flipped = 0;
};

// Some steps in sync mode, dense and rows, over a way that flips a bit about
// every so many bytes. The ps is found by its port at `host`.
Outcome Train(ChecksumChoice checksum, int64_t flip_every,
              const std::string& host = "127.0.0.1") {
  LoopbackPs ps({.block_elements = kBlockElements,
                 .sync_contributions = 1,
                 .table_dim = kDim});
  ChaosProxy proxy(ps.address());
  const std::string address =
      host + proxy.address().substr(proxy.address().rfind(':'));
  const auto transport =
      MakeGrpcTransport({.own_connections = true, .checksum = checksum});
  std::vector<VariableSpec> variables(1);
  variables[0].name = "w";
  variables[0].shape = {kBlockElements * ps.options.block_count - 16};
  const Layout layout = Layout::Create(variables, 1, kBlockElements).value();
  Outcome run;
  run.parameters.resize(static_cast<size_t>(layout.flat_elements()));
  std::vector<float> gradients(run.parameters.size());
  ParameterClient::Options options;
  options.transport = transport.get();
  options.addresses = {address};
  options.layout = &layout;
  options.parameters = run.parameters.data();
  options.gradients = gradients.data();
  const auto client = ParameterClient::Create(std::move(options)).value();
  TableClient::Options of_tables;
  of_tables.transport = transport.get();
  of_tables.addresses = {address};
  of_tables.tables = {ps.MakeDeclaration().table(0)};
  const auto tables = TableClient::Create(std::move(of_tables)).value();
  std::vector<uint64_t> ids((1 << 20) / (4 * kDim));
  std::iota(ids.begin(), ids.end(), 1);
  run.rows.resize(ids.size() * kDim);
  std::vector<float> row_gradients(run.rows.size());
  proxy.FlipBits(flip_every, flip_every);
  for (uint64_t sequence = 0; sequence < kSteps && run.status.ok();
       ++sequence) {
    const float gradient = 0.1f * static_cast<float>(sequence + 1);
    ContributionPush push;
    push.sender = ps.SenderOf(0);
    push.sequence = sequence;
    push.then = Version(sequence + 1);
    run.status.Update(client->BeginContribution(push));
    if (!run.status.ok()) {
      break;
    }
    std::fill(gradients.begin(), gradients.end(), gradient);
    client->GradientReady(0);
    run.status.Update(client->FinishContribution());
    run.status.Update(client->WaitReceipts().status());
    run.status.Update(client->WaitPull());
    const TableClient::Wanted wanted = {0, ids, run.rows.data()};
    run.status.Update(tables->StartLookup(ps.SenderOf(0), Version(sequence),
                                          true, {&wanted, 1}));
    const auto versions = tables->WaitLookup();
    run.status.Update(versions.status());
    if (!run.status.ok()) {
      break;
    }
    std::fill(row_gradients.begin(), row_gradients.end(), gradient);
    ContributionPush update;
    update.sender = ps.SenderOf(0);
    update.sequence = sequence;
    const TableClient::Gradients of_rows = {0, ids, row_gradients.data()};
    run.status.Update(tables->StartUpdate(update, *versions, {&of_rows, 1}));
    run.status.Update(tables->WaitUpdate().status());
  }
  run.flipped = proxy.flipped();
  return run;
}

TEST(DamageTest, ChecksumsKeepTheBitsOfAnUndisturbedRun) {
  const Outcome undisturbed = Train(ChecksumChoice::kOff, 0);
  ASSERT_TRUE(undisturbed.status.ok()) << undisturbed.status;
  const Outcome damaged = Train(ChecksumChoice::kOn, 3 << 20);
  ASSERT_TRUE(damaged.status.ok()) << damaged.status;
  EXPECT_GE(damaged.flipped, 2);
  EXPECT_EQ(damaged.parameters, undisturbed.parameters);
  EXPECT_EQ(damaged.rows, undisturbed.rows);
}

// Shows what the test above is for.
TEST(DamageTest, WithoutChecksumsDamageIsTakenForData) {
  const Outcome undisturbed = Train(ChecksumChoice::kOff, 0);
  const Outcome damaged = Train(ChecksumChoice::kOff, 3 << 20);
  ASSERT_TRUE(damaged.status.ok()) << damaged.status;
  EXPECT_GE(damaged.flipped, 2);
  EXPECT_TRUE(damaged.parameters != undisturbed.parameters ||
              damaged.rows != undisturbed.rows);
}

// 0.0.0.0 leads to this host too, but is no address of it: to a client it is
// another one.
TEST(DamageTest, ByDefaultWhatOtherHostsSendIsCheckedAlone) {
  const Outcome undisturbed = Train(ChecksumChoice::kOff, 0);
  const Outcome other = Train(ChecksumChoice::kAuto, 3 << 20, "0.0.0.0");
  ASSERT_TRUE(other.status.ok()) << other.status;
  EXPECT_GE(other.flipped, 2);
  EXPECT_EQ(other.parameters, undisturbed.parameters);
  EXPECT_EQ(other.rows, undisturbed.rows);
  const Outcome same = Train(ChecksumChoice::kAuto, 3 << 20);
  ASSERT_TRUE(same.status.ok()) << same.status;
  EXPECT_TRUE(same.parameters != undisturbed.parameters ||
              same.rows != undisturbed.rows);
}

TEST(DamageTest, AWayThatDamagesEverythingIsGivenUpByName) {
  const Outcome run = Train(ChecksumChoice::kOn, 1);
  EXPECT_EQ(run.status.code(), absl::StatusCode::kFailedPrecondition)
      << run.status;
  EXPECT_THAT(run.status.message(), HasSubstr("ps 0 (127.0.0.1:"));
  EXPECT_THAT(run.status.message(), HasSubstr("damaged on its way"));
}

TEST(DamageTest, OneBitIsFoundInAnyPiece) {
  std::vector<char> bytes(1000, 3);
  GradientChunk chunk;
  const auto payload = [&bytes] {
    const std::span<const char> all(bytes);
    return Payload({all.subspan(0, 7), all.subspan(7, 600), all.subspan(607)},
                   nullptr);
  };
  EXPECT_TRUE(CheckPayload(chunk, payload()).ok());  // it has none
  chunk.set_crc32c(ChecksumOf(payload()));
  EXPECT_TRUE(CheckPayload(chunk, payload()).ok());
  for (const size_t at : {0u, 6u, 7u, 606u, 607u, 999u}) {
    bytes[at] ^= 1;
    EXPECT_EQ(CheckPayload(chunk, payload()).code(),
              absl::StatusCode::kDataLoss);
    bytes[at] ^= 1;
  }
}

TEST(DamageTest, ChoicesByTheirNames) {
  EXPECT_EQ(*ParseChecksumChoice("auto"), ChecksumChoice::kAuto);
  EXPECT_EQ(*ParseChecksumChoice("on"), ChecksumChoice::kOn);
  EXPECT_EQ(*ParseChecksumChoice("off"), ChecksumChoice::kOff);
  EXPECT_EQ(ParseChecksumChoice("yes").status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir
