// What a worker may expect of its exchange with the shards, whichever kind of
// parameter it exchanges: the same faults are survived, and the same ones end
// it with the same error. Runs over blocks and over rows, each while it pulls
// and while it pushes, against real stores.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cc/parameters/parameter_client.h"
#include "client/cc/parameters/table_client.h"
#include "tests/support/store_cluster.h"

namespace weir {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

constexpr int kShards = StoreCluster::kShards;
constexpr int kElements = StoreCluster::kElements;
constexpr std::chrono::milliseconds kLostAfter{600};

// One worker's values of one kind.
class Worker {
 public:
  virtual ~Worker() = default;
  virtual absl::Status Pull(const Want& want) = 0;
  // Pushes a gradient of 1 for every value; returns the duplicates.
  virtual absl::StatusOr<uint64_t> Push(uint64_t sequence,
                                        uint32_t index_in_step) = 0;
  // As last pulled.
  virtual std::vector<float> Values() const = 0;
};

class BlockWorker : public Worker {
 public:
  BlockWorker(StoreCluster* cluster, int slot)
      : sender_(cluster->SenderOf(slot)),
        parameters_(cluster->layout->flat_elements(), -99.0f),
        gradients_(parameters_.size(), 1.0f) {
    ParameterClient::Options options;
    static_cast<ShardClientOptions&>(options) = cluster->ClientOptions();
    options.layout = cluster->layout.get();
    options.parameters = parameters_.data();
    options.gradients = gradients_.data();
    options.lost_after = kLostAfter;
    client_ = ParameterClient::Create(std::move(options)).value();
  }

  absl::Status Pull(const Want& want) override {
    absl::Status status = client_->StartPull(sender_, want);
    status.Update(client_->WaitPull());
    return status;
  }

  absl::StatusOr<uint64_t> Push(uint64_t sequence,
                                uint32_t index_in_step) override {
    ContributionPush push;
    push.sender = sender_;
    push.sequence = sequence;
    push.index_in_step = index_in_step;
    if (const auto status = client_->BeginContribution(push); !status.ok()) {
      return status;
    }
    client_->GradientReady(0);
    if (const auto status = client_->FinishContribution(); !status.ok()) {
      return status;
    }
    const auto result = client_->WaitReceipts();
    if (!result.ok()) {
      return result.status();
    }
    return result->duplicates;
  }

  std::vector<float> Values() const override {
    return {parameters_.begin(), parameters_.begin() + kElements};
  }

 private:
  const Sender sender_;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  std::unique_ptr<ParameterClient> client_;
};

class RowWorker : public Worker {
 public:
  RowWorker(StoreCluster* cluster, int slot)
      : sender_(cluster->SenderOf(slot)),
        ids_(kElements),
        rows_(kElements, -99.0f),
        gradients_(kElements, 1.0f) {
    for (size_t i = 0; i < ids_.size(); ++i) {
      ids_[i] = 7 * i;
    }
    TableClient::Options options;
    static_cast<ShardClientOptions&>(options) = cluster->ClientOptions();
    options.tables = cluster->tables();
    options.piece_bytes = 256;
    options.lost_after = kLostAfter;
    client_ = TableClient::Create(std::move(options)).value();
    versions_.assign(kShards, 0);
  }

  absl::Status Pull(const Want& want) override {
    const TableClient::Wanted wanted = {0, ids_, rows_.data()};
    if (const auto status =
            client_->StartLookup(sender_, want, true, {&wanted, 1});
        !status.ok()) {
      return status;
    }
    const auto versions = client_->WaitLookup();
    if (versions.ok()) {
      versions_ = *versions;
    }
    return versions.status();
  }

  absl::StatusOr<uint64_t> Push(uint64_t sequence,
                                uint32_t index_in_step) override {
    ContributionPush push;
    push.sender = sender_;
    push.sequence = sequence;
    push.index_in_step = index_in_step;
    const TableClient::Gradients list = {0, ids_, gradients_.data()};
    if (const auto status = client_->StartUpdate(push, versions_, {&list, 1});
        !status.ok()) {
      return status;
    }
    const auto result = client_->WaitUpdate();
    if (!result.ok()) {
      return result.status();
    }
    return result->duplicates;
  }

  std::vector<float> Values() const override { return rows_; }

 private:
  const Sender sender_;
  std::vector<uint64_t> ids_;
  std::vector<float> rows_;
  std::vector<float> gradients_;
  TableClient::Versions versions_;
  std::unique_ptr<TableClient> client_;
};

Want Latest() {
  Want want;
  want.set_latest(true);
  return want;
}

enum class Kind { kBlocks, kRows };
enum class Phase { kPull, kPush };

class ExchangeContract
    : public testing::TestWithParam<std::tuple<Kind, Phase>> {
 protected:
  static bool rows() { return std::get<0>(GetParam()) == Kind::kRows; }
  static bool pushing() { return std::get<1>(GetParam()) == Phase::kPush; }

  static std::unique_ptr<Worker> MakeWorker(StoreCluster* cluster,
                                            int slot = 0) {
    if (rows()) {
      return std::make_unique<RowWorker>(cluster, slot);
    }
    return std::make_unique<BlockWorker>(cluster, slot);
  }

  // What the parameter of the test is about. Each push adds 1 to *pushed.
  static absl::Status Try(Worker* worker, int* pushed) {
    if (!pushing()) {
      return worker->Pull(Latest());
    }
    const auto sequence = static_cast<uint64_t>(*pushed);
    const absl::Status status = worker->Push(sequence, 0).status();
    *pushed += status.ok() ? 1 : 0;
    return status;
  }

  static void ExpectValues(Worker* worker, int pushed) {
    ASSERT_EQ(worker->Pull(Latest()), absl::OkStatus());
    EXPECT_EQ(worker->Values(),
              std::vector<float>(kElements, static_cast<float>(-pushed)));
  }
};

TEST_P(ExchangeContract, RepeatsWhatTheStatusCodeAllowsAndNothingElse) {
  // By number, so that every code of gRPC but OK is in the test: 1 to 16.
  const bool repeated[] = {
      true,   // OK is no failure
      true,   // CANCELLED
      true,   // UNKNOWN
      false,  // INVALID_ARGUMENT
      true,   // DEADLINE_EXCEEDED
      false,  // NOT_FOUND
      false,  // ALREADY_EXISTS
      false,  // PERMISSION_DENIED
      true,   // RESOURCE_EXHAUSTED
      false,  // FAILED_PRECONDITION
      false,  // ABORTED
      false,  // OUT_OF_RANGE, but see ASkippedSequenceNumber below
      false,  // UNIMPLEMENTED
      false,  // INTERNAL
      true,   // UNAVAILABLE
      true,   // DATA_LOSS
      false,  // UNAUTHENTICATED
  };
  for (int code = 1; code < 17; ++code) {
    if (static_cast<StatusCode>(code) == StatusCode::kOutOfRange) {
      continue;
    }
    StoreCluster cluster("async {}");
    const auto worker = MakeWorker(&cluster);
    int pushed = 0;
    ASSERT_EQ(Try(worker.get(), &pushed), absl::OkStatus());
    cluster.FailNext(1, absl::Status(static_cast<StatusCode>(code), "why"));
    const absl::Status status = Try(worker.get(), &pushed);
    EXPECT_EQ(status.ok(), repeated[code]) << status;
    if (repeated[code]) {
      ExpectValues(worker.get(), pushed);
    } else {
      EXPECT_EQ(static_cast<int>(status.code()), code);
      EXPECT_EQ(status.message(), "ps 1 (host1:1) why");
    }
  }
}

TEST_P(ExchangeContract, EveryContributionCountsOnceThroughFaults) {
  StoreCluster cluster("async {}");
  cluster.transport.SetFaults(
      {.lost_before = 0.03, .lost_after = 0.05, .delayed = 0.2});
  const auto worker = MakeWorker(&cluster);
  constexpr int kSteps = 20;
  for (int step = 0; step < kSteps; ++step) {
    ASSERT_EQ(worker->Pull(Latest()), absl::OkStatus());
    ASSERT_EQ(worker->Push(static_cast<uint64_t>(step), 0).status(),
              absl::OkStatus());
  }
  cluster.transport.SetFaults({});
  ExpectValues(worker.get(), kSteps);
}

TEST_P(ExchangeContract, CountsDuplicates) {
  StoreCluster cluster("async {}");
  const auto worker = MakeWorker(&cluster);
  EXPECT_EQ(worker->Push(0, 0).value(), 0u);
  // The process that comes after this one repeats what it cannot know of.
  const auto next = MakeWorker(&cluster);
  EXPECT_GT(next->Push(0, 0).value(), 0u);
  ExpectValues(next.get(), 1);
}

TEST_P(ExchangeContract, PayloadsThatArriveDamagedAreSentAgainAFewTimes) {
  StoreCluster cluster("async {}");
  const auto worker = MakeWorker(&cluster);
  int pushed = 0;
  ASSERT_EQ(Try(worker.get(), &pushed), absl::OkStatus());
  cluster.FailNext(4, absl::DataLossError("checksum"));
  ASSERT_EQ(Try(worker.get(), &pushed), absl::OkStatus());
  ExpectValues(worker.get(), pushed);
  cluster.FailNext(5, absl::DataLossError("checksum"));
  EXPECT_EQ(Try(worker.get(), &pushed),
            absl::FailedPreconditionError(
                "ps 1 (host1:1) checksum, again and again; check the network "
                "between the hosts, then start this task again"));
}

// The part of a contribution that was lost can be what the shard expects, so
// blocks are sent once more. One call has all rows of a shard.
TEST_P(ExchangeContract, ASkippedSequenceNumberAsksForANewProcess) {
  StoreCluster cluster("async {}");
  const auto worker = MakeWorker(&cluster);
  int pushed = 0;
  ASSERT_EQ(Try(worker.get(), &pushed), absl::OkStatus());
  const bool sent_again = pushing() && !rows();
  cluster.FailNext(1, absl::OutOfRangeError("skipped"));
  EXPECT_EQ(Try(worker.get(), &pushed).ok(), sent_again);
  cluster.FailNext(2, absl::OutOfRangeError("skipped"));
  const absl::Status status = Try(worker.get(), &pushed);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("ps 1 (host1:1) skipped; start this task again"));
}

// The shards have room for one contribution that comes too early, no more.
TEST_P(ExchangeContract, WhatComesTooEarlyIsSentAgainUntilThereIsRoom) {
  StoreCluster cluster("sync { contributions: 2 }", 2);
  const auto first = MakeWorker(&cluster, 0);
  const auto second = MakeWorker(&cluster, 1);
  constexpr uint64_t kSteps = 3;
  std::thread ahead([&] {
    for (uint64_t step = 0; step < kSteps; ++step) {
      Want want;
      want.set_version(step);
      ASSERT_EQ(second->Pull(want), absl::OkStatus());
      ASSERT_EQ(second->Push(step, 1).status(), absl::OkStatus());
    }
  });
  for (uint64_t step = 0; step < kSteps; ++step) {
    // Until its own turn the other one is deferred.
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    Want want;
    want.set_version(step);
    ASSERT_EQ(first->Pull(want), absl::OkStatus());
    ASSERT_EQ(first->Push(step, 0).status(), absl::OkStatus());
  }
  ahead.join();
  Want want;
  want.set_version(kSteps);
  ASSERT_EQ(first->Pull(want), absl::OkStatus());
  EXPECT_EQ(first->Values(),
            std::vector<float>(kElements, -static_cast<float>(kSteps)));
}

TEST_P(ExchangeContract, AShardThatIsGoneIsNamed) {
  StoreCluster cluster("async {}");
  const auto worker = MakeWorker(&cluster);
  int pushed = 0;
  ASSERT_EQ(Try(worker.get(), &pushed), absl::OkStatus());
  cluster.transport.Stop(cluster.addresses[1]);
  const absl::Status status = Try(worker.get(), &pushed);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(status.message()),
            "ps 1 (host1:1) unreachable for 0.6 s: connection refused");
}

TEST_P(ExchangeContract, ARestartedShardIsNamed) {
  StoreCluster cluster("async {}");
  const auto worker = MakeWorker(&cluster);
  int pushed = 0;
  ASSERT_EQ(worker->Pull(Latest()), absl::OkStatus());
  const auto other = cluster.MakeStore(1, 99, 1);
  cluster.transport.Stop(cluster.addresses[1]);
  cluster.transport.Serve(cluster.addresses[1], other.get());
  const absl::Status status = Try(worker.get(), &pushed);
  EXPECT_EQ(status, absl::FailedPreconditionError(
                        "ps 1 (host1:1) the process was "
                        "restarted; its parameters are gone"));
}

INSTANTIATE_TEST_SUITE_P(
    All, ExchangeContract,
    testing::Combine(testing::Values(Kind::kBlocks, Kind::kRows),
                     testing::Values(Phase::kPull, Phase::kPush)),
    [](const auto& info) {
      return absl::StrCat(
          std::get<0>(info.param) == Kind::kRows ? "Rows" : "Blocks",
          std::get<1>(info.param) == Phase::kPush ? "Pushing" : "Pulling");
    });

}  // namespace
}  // namespace weir
