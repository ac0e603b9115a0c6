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
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/kind_worker.h"
#include "tests/support/store_cluster.h"
#include "tests/support/wait_until.h"

namespace weir {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

constexpr int kElements = 300;
// A variable and a table of as many values.
constexpr char kJob[] =
    "variable { name: 'w' shape: 300 } table { name: 't' dim: 1 } ";
constexpr std::chrono::milliseconds kLostAfter{600};

Want Latest() {
  Want want;
  want.set_latest(true);
  return want;
}

enum class Phase { kPull, kPush };

class ExchangeContract
    : public testing::TestWithParam<std::tuple<ParameterKind, Phase>> {
 protected:
  static bool rows() { return std::get<0>(GetParam()) == ParameterKind::kRows; }
  static bool pushing() { return std::get<1>(GetParam()) == Phase::kPush; }

  static std::unique_ptr<KindWorker> MakeWorker(StoreCluster* cluster,
                                                int slot = 0) {
    KindWorker::Options options;
    static_cast<ShardClientOptions&>(options) = cluster->ClientOptions();
    options.sender = cluster->SenderOf(slot);
    options.lost_after = kLostAfter;
    options.layout = cluster->layout.get();
    options.tables = cluster->tables();
    options.values = kElements;
    options.piece_bytes = 256;
    return KindWorker::Create(std::get<0>(GetParam()), std::move(options));
  }

  // Pushes a gradient of 1 for every value.
  static absl::StatusOr<ContributionResult> Push(KindWorker* worker,
                                                 uint64_t sequence,
                                                 uint32_t index_in_step = 0) {
    ContributionPush push;
    push.sequence = sequence;
    push.index_in_step = index_in_step;
    return worker->Push(push, 1.0f);
  }

  // What the parameter of the test is about. Each push adds 1 to *pushed.
  static absl::Status Try(KindWorker* worker, int* pushed) {
    if (!pushing()) {
      return worker->Pull(Latest());
    }
    const auto sequence = static_cast<uint64_t>(*pushed);
    const absl::Status status = Push(worker, sequence).status();
    *pushed += status.ok() ? 1 : 0;
    return status;
  }

  static void ExpectValues(KindWorker* worker, int pushed) {
    ASSERT_EQ(worker->Pull(Latest()), absl::OkStatus());
    EXPECT_EQ(worker->values(),
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
    StoreCluster cluster(kJob);
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
  StoreCluster cluster(kJob);
  cluster.transport.SetFaults(
      {.lost_before = 0.03, .lost_after = 0.05, .delayed = 0.2});
  const auto worker = MakeWorker(&cluster);
  constexpr int kSteps = 20;
  for (int step = 0; step < kSteps; ++step) {
    ASSERT_EQ(worker->Pull(Latest()), absl::OkStatus());
    ASSERT_EQ(Push(worker.get(), static_cast<uint64_t>(step)).status(),
              absl::OkStatus());
  }
  cluster.transport.SetFaults({});
  ExpectValues(worker.get(), kSteps);
}

TEST_P(ExchangeContract, CountsDuplicates) {
  StoreCluster cluster(kJob);
  const auto worker = MakeWorker(&cluster);
  EXPECT_EQ(Push(worker.get(), 0)->duplicates, 0u);
  // The process that comes after this one repeats what it cannot know of.
  const auto next = MakeWorker(&cluster);
  EXPECT_GT(Push(next.get(), 0)->duplicates, 0u);
  ExpectValues(next.get(), 1);
}

TEST_P(ExchangeContract, PayloadsThatArriveDamagedAreSentAgainAFewTimes) {
  StoreCluster cluster(kJob);
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
  StoreCluster cluster(kJob);
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

// The shards have no room for blocks that come too early, and room for one push
// of rows.
TEST_P(ExchangeContract, WhatComesTooEarlyIsSentAgainUntilThereIsRoom) {
  StoreCluster cluster(absl::StrCat(kJob,
                                    "update { sync { contributions: 2 } } "
                                    "slot_count: 2 out_of_order_bytes: 1"));
  const auto first = MakeWorker(&cluster, 0);
  const auto second = MakeWorker(&cluster, 1);
  constexpr uint64_t kSteps = 3;
  std::thread ahead([&] {
    for (uint64_t step = 0; step < kSteps; ++step) {
      Want want;
      want.set_version(step);
      ASSERT_EQ(second->Pull(want), absl::OkStatus());
      ASSERT_EQ(Push(second.get(), step, 1).status(), absl::OkStatus());
    }
  });
  for (uint64_t step = 0; step < kSteps; ++step) {
    // The other one comes too early: its blocks are deferred, its rows kept.
    const uint64_t deferred = cluster.Sum(&PsStatus::chunks_deferred);
    EXPECT_TRUE(WaitUntil([&] {
      return cluster.Sum(&PsStatus::chunks_deferred) > deferred ||
             cluster.Sum(&PsStatus::out_of_order_bytes) > 0;
    }));
    Want want;
    want.set_version(step);
    ASSERT_EQ(first->Pull(want), absl::OkStatus());
    ASSERT_EQ(Push(first.get(), step).status(), absl::OkStatus());
  }
  ahead.join();
  Want want;
  want.set_version(kSteps);
  ASSERT_EQ(first->Pull(want), absl::OkStatus());
  EXPECT_EQ(first->values(),
            std::vector<float>(kElements, -static_cast<float>(kSteps)));
}

TEST_P(ExchangeContract, AShardThatIsGoneIsNamed) {
  StoreCluster cluster(kJob);
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
  StoreCluster cluster(kJob);
  const auto worker = MakeWorker(&cluster);
  int pushed = 0;
  ASSERT_EQ(worker->Pull(Latest()), absl::OkStatus());
  cluster.Replace(1, cluster.MakeStore(1, 99));
  const absl::Status status = Try(worker.get(), &pushed);
  EXPECT_EQ(status, absl::FailedPreconditionError(
                        "ps 1 (host1:1) the process was "
                        "restarted; its parameters are gone"));
}

INSTANTIATE_TEST_SUITE_P(
    All, ExchangeContract,
    testing::Combine(testing::Values(ParameterKind::kBlocks,
                                     ParameterKind::kRows),
                     testing::Values(Phase::kPull, Phase::kPush)),
    [](const auto& info) {
      return absl::StrCat(
          NameOf(std::get<0>(info.param)),
          std::get<1>(info.param) == Phase::kPush ? "Pushing" : "Pulling");
    });

}  // namespace
}  // namespace weir
