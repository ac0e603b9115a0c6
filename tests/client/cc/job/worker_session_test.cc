#include "client/cc/job/worker_session.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/store_cluster.h"

namespace weir {
namespace {

constexpr char kJob[] =
    "variable { name: 'w' shape: 300 } table { name: 't' dim: 1 } ";

// A worker of slot 0 with buffers of its own.
struct Worker {
  explicit Worker(StoreCluster* cluster, bool bounded_staleness = false)
      : sender(cluster->SenderOf(0)),
        parameters(cluster->layout->flat_elements()),
        gradients(cluster->layout->flat_elements(), 1.0f) {
    WorkerSession::Options options;
    static_cast<ShardClientOptions&>(options) = cluster->ClientOptions();
    options.layout = cluster->layout.get();
    options.parameters = parameters.data();
    options.gradients = gradients.data();
    options.compression.set_pull(BF16);
    options.tables = cluster->tables();
    options.bounded_staleness = bounded_staleness;
    session = WorkerSession::Create(std::move(options)).value();
  }

  // Pushes blocks, and `row_gradient` for the rows 1 and 2.
  absl::StatusOr<ContributionResult> Push(uint64_t sequence,
                                          float row_gradient) {
    ContributionPush push;
    push.sender = sender;
    push.sequence = sequence;
    EXPECT_TRUE(session->blocks()->BeginContribution(push).ok());
    session->blocks()->GradientReady(0);
    EXPECT_TRUE(session->blocks()->FinishContribution().ok());
    const std::vector<uint64_t> ids = {1, 2};
    const std::vector<float> of_rows(ids.size(), row_gradient);
    const TableClient::Gradients list = {0, ids, of_rows.data()};
    EXPECT_TRUE(session->rows()->StartUpdate(push, {0, 0}, {&list, 1}).ok());
    return session->WaitReceipts();
  }

  const Sender sender;
  std::vector<float> parameters;
  std::vector<float> gradients;
  std::unique_ptr<WorkerSession> session;
};

TEST(WorkerSessionTest, OneResultTellsOfBlocksAndRows) {
  StoreCluster cluster(kJob);
  Worker worker(&cluster);
  const auto result = worker.Push(0, 1.0f);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->bad);
  // One receipt for each block, and one for the rows of each shard.
  EXPECT_EQ(result->staleness_count,
            static_cast<uint64_t>(cluster.layout->block_count(0) +
                                  cluster.layout->block_count(1) + 2));
  const uint64_t bytes =
      static_cast<uint64_t>(cluster.layout->flat_elements() + 2) * 4;
  EXPECT_EQ(result->bytes_sent, bytes);
  const auto repeated = worker.Push(0, 1.0f);
  ASSERT_TRUE(repeated.ok()) << repeated.status();
  EXPECT_EQ(repeated->duplicates, result->staleness_count);
  EXPECT_EQ(repeated->bytes_sent, bytes);  // not those of the first
  EXPECT_EQ(worker.session->counters().bytes_sent, 2 * bytes);
}

TEST(WorkerSessionTest, ABadRowMakesTheContributionBad) {
  StoreCluster cluster(kJob);
  Worker worker(&cluster);
  const auto result = worker.Push(0, std::numeric_limits<float>::quiet_NaN());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->bad);
  EXPECT_EQ(result->bad_name, "t");
}

TEST(WorkerSessionTest, WantsFollowTheConsistencyMode) {
  StoreCluster cluster(kJob);
  Worker worker(&cluster);
  Want want = worker.session->WantFor(3, 7);
  EXPECT_EQ(want.version(), 7u);
  EXPECT_EQ(want.encoding(), BF16);
  want = worker.session->WantFor(3, std::nullopt);
  EXPECT_TRUE(want.latest());
  EXPECT_EQ(want.clock(), 0u);
  Worker bounded(&cluster, /*bounded_staleness=*/true);
  EXPECT_EQ(bounded.session->WantFor(3, std::nullopt).clock(), 3u);
}

TEST(WorkerSessionTest, AnInterruptEndsWaitsOfBothKinds) {
  StoreCluster cluster(
      absl::StrCat(kJob, "update { sync { contributions: 1 } }"));
  Worker worker(&cluster);
  const Want never = worker.session->WantFor(0, 1);
  ASSERT_TRUE(worker.session->blocks()->StartPull(worker.sender, never).ok());
  const std::vector<uint64_t> id = {5};
  float row = 0;
  const TableClient::Wanted wanted = {0, id, &row};
  ASSERT_TRUE(worker.session->rows()
                  ->StartLookup(worker.sender, never, true, {&wanted, 1})
                  .ok());
  const absl::Status stopped = absl::CancelledError("the job stopped");
  worker.session->Interrupt(stopped);
  EXPECT_EQ(worker.session->blocks()->WaitPull(), stopped);
  EXPECT_EQ(worker.session->rows()->WaitLookup().status(), stopped);
}

}  // namespace
}  // namespace weir
