// PullRows and PushRows through a real ps, by gRPC and through shared memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/cc/parameters/table_client.h"
#include "common/math/random.h"
#include "proto/wire/id_list.h"
#include "tests/support/loopback_ps.h"

namespace weir {
namespace {

constexpr auto kTimeout = std::chrono::seconds(20);
constexpr int kDim = 16;

Want Latest() {
  Want want;
  want.set_latest(true);
  return want;
}

// Ids that are anywhere in 64 bits: their list is long.
std::vector<uint64_t> RandomIds(size_t count) {
  RandomStream random(1);
  std::vector<uint64_t> ids(count);
  std::generate(ids.begin(), ids.end(), [&random] { return random.Next64(); });
  ids.front() = 0;
  ids.back() = ~uint64_t{0};
  std::sort(ids.begin(), ids.end());
  return ids;
}

class RowTransportTest : public testing::TestWithParam<bool> {
 protected:
  static LoopbackPs::Options Options(int sync_contributions = 0) {
    return {.sync_contributions = sync_contributions,
            .shared_memory = GetParam(),
            .table_dim = kDim};
  }

  static std::unique_ptr<TableClient> Client(const LoopbackPs& ps,
                                             int64_t piece_bytes) {
    TableClient::Options options;
    options.transport = ps.transport.get();
    options.addresses = {ps.address()};
    options.tables = {ps.MakeDeclaration().table(0)};
    options.piece_bytes = piece_bytes;
    return *TableClient::Create(std::move(options));
  }

  static std::vector<float> Rows(const LoopbackPs& ps, TableClient* client,
                                 const std::vector<uint64_t>& ids) {
    std::vector<float> rows(ids.size() * kDim, 7.0f);
    const TableClient::Wanted wanted = {0, ids, rows.data()};
    EXPECT_TRUE(
        client->StartLookup(ps.SenderOf(0), Latest(), true, {&wanted, 1}).ok());
    EXPECT_TRUE(client->WaitLookup().ok());
    return rows;
  }

  static PullRowsChunk Request(const LoopbackPs& ps) {
    PullRowsChunk request;
    *request.mutable_sender() = ps.SenderOf(0);
    *request.mutable_want() = Latest();
    return request;
  }

  static void AddList(const std::vector<uint64_t>& ids, auto* chunk) {
    IdList* const list = chunk->add_list();
    list->set_count(static_cast<uint32_t>(ids.size()));
    list->set_deltas(EncodeIds(ids));
  }
};

TEST_P(RowTransportTest, ManyPiecesOfLongListsGoBothWays) {
  LoopbackPs ps(Options());
  // 13 pieces of 4,096 rows, whose ids take 28 KiB.
  const std::vector<uint64_t> ids = RandomIds(50000);
  const auto client = Client(ps, 256 << 10);
  EXPECT_EQ(Rows(ps, client.get(), ids),
            std::vector<float>(ids.size() * kDim, 0.0f));
  std::vector<float> sums(ids.size() * kDim);
  // In the transport's memory, and elsewhere.
  const std::shared_ptr<float> buffer = ps.transport->NewBuffer(sums.size());
  std::vector<float> own(sums.size());
  for (uint64_t sequence = 0; sequence < 2; ++sequence) {
    float* const gradients = sequence == 0 ? buffer.get() : own.data();
    for (size_t i = 0; i < sums.size(); ++i) {
      gradients[i] = static_cast<float>(i % 1000 + sequence);
      sums[i] -= gradients[i];
    }
    const TableClient::Gradients one = {0, ids, gradients};
    ContributionPush push;
    push.sender = ps.SenderOf(0);
    push.sequence = sequence;
    ASSERT_TRUE(client->StartUpdate(push, {sequence}, {&one, 1}).ok());
    const auto result = client->WaitUpdate();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->duplicates, 0u);
    EXPECT_EQ(Rows(ps, client.get(), ids), sums);
  }
  EXPECT_EQ(client->counters().reconnects, 0u);
}

TEST_P(RowTransportTest, AnUpdateMayHaveHundredsOfPieces) {
  LoopbackPs ps(Options());
  const std::vector<uint64_t> ids = RandomIds(20000);
  const auto client = Client(ps, 4 << 10);  // 64 rows a piece: 313 pieces
  const std::vector<float> ones(ids.size() * kDim, 1.0f);
  const TableClient::Gradients one = {0, ids, ones.data()};
  ASSERT_TRUE(
      client->StartUpdate({.sender = ps.SenderOf(0)}, {0}, {&one, 1}).ok());
  const auto result = client->WaitUpdate();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Rows(ps, client.get(), ids),
            std::vector<float>(ids.size() * kDim, -1.0f));
}

TEST_P(RowTransportTest, AnUpdateThatBreaksOffChangesNothing) {
  LoopbackPs ps(Options());
  const std::vector<uint64_t> ids = {1, 5};
  const std::vector<float> ones(ids.size() * kDim, 1.0f);
  const auto update = [&](bool refused) {
    int sent = 0;
    return ps.data->PushRows(
        kTimeout, [&](PushRowsChunk* chunk, std::span<const char>* payload) {
          chunk->Clear();
          *chunk->mutable_sender() = ps.SenderOf(0);
          chunk->mutable_push()->set_sequence(0);
          if (sent == 0) {
            AddList(ids, chunk);
            *payload = BytesOf(ones);
          } else {
            *payload = {};
            chunk->mutable_push()->set_sequence(refused ? 3 : 0);
          }
          chunk->set_last(sent == 1);
          return sent++ < 2;
        });
  };
  EXPECT_EQ(update(true).status().code(), absl::StatusCode::kInvalidArgument);
  const auto client = Client(ps, 1 << 20);
  EXPECT_EQ(Rows(ps, client.get(), ids),
            std::vector<float>(size_t{2} * kDim, 0.0f));
  const auto reply = update(false);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->receipt().outcome(), Receipt::ACCEPTED);
  EXPECT_EQ(reply->incarnation(), 77u);
  EXPECT_EQ(reply->rows_applied(), 2u);
  EXPECT_EQ(update(false)->receipt().outcome(), Receipt::DUPLICATE);
  EXPECT_EQ(Rows(ps, client.get(), ids),
            std::vector<float>(size_t{2} * kDim, -1.0f));
}

TEST_P(RowTransportTest, ARefusedLookupEndsItsStreamWithTheReason) {
  LoopbackPs ps(Options());
  const auto stream = ps.data->OpenPullRows();
  PullRowsChunk request = Request(ps);
  AddList({1, 2}, &request);
  request.mutable_list(0)->set_table(9);
  ASSERT_TRUE(stream->Send(request, {}, nullptr).ok());
  RowChunk header;
  Payload payload;
  const absl::Status status = stream->Receive(&header, &payload);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("table 9"), std::string::npos) << status;
  // Another one is served.
  const auto client = Client(ps, 1 << 20);
  EXPECT_EQ(Rows(ps, client.get(), {1}).size(), size_t{kDim});
}

TEST_P(RowTransportTest, AWaitIsAnsweredWhenItsTimeIsUpAndEndsWithTheStream) {
  LoopbackPs ps(Options(1));
  const auto stream = ps.data->OpenPullRows();
  PullRowsChunk request = Request(ps);
  request.mutable_want()->set_version(1);
  request.mutable_want()->set_timeout_ms(1);
  request.set_request(5);
  ASSERT_TRUE(stream->Send(request, {}, nullptr).ok());
  RowChunk header;
  Payload payload;
  ASSERT_TRUE(stream->Receive(&header, &payload).ok());
  EXPECT_TRUE(header.not_yet());
  EXPECT_EQ(header.request(), 5u);
  stream->Cancel();
  EXPECT_EQ(stream->Receive(&header, &payload).code(),
            absl::StatusCode::kCancelled);
}

TEST_P(RowTransportTest, ADeadPsIsUnavailable) {
  LoopbackPs ps(Options());
  const auto stream = ps.data->OpenPullRows();
  PullRowsChunk request = Request(ps);
  ASSERT_TRUE(stream->Send(request, {}, nullptr).ok());
  RowChunk header;
  Payload payload;
  ASSERT_TRUE(stream->Receive(&header, &payload).ok());
  ps.Kill();
  EXPECT_EQ(stream->Receive(&header, &payload).code(),
            absl::StatusCode::kUnavailable);
  int sent = 0;
  EXPECT_EQ(ps.data
                ->PushRows(kTimeout,
                           [&](PushRowsChunk* chunk, std::span<const char>*) {
                             *chunk->mutable_sender() = ps.SenderOf(0);
                             chunk->mutable_push()->set_sequence(0);
                             chunk->set_last(true);
                             return sent++ == 0;
                           })
                .status()
                .code(),
            absl::StatusCode::kUnavailable);
}

INSTANTIATE_TEST_SUITE_P(, RowTransportTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& info) {
                           return info.param ? "Shm" : "Grpc";
                         });

}  // namespace
}  // namespace weir
