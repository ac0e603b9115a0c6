// What a job may expect of its parameters on the whole way from a worker's
// client to the store and back: over every wire, for both kinds of parameters
// and in every consistency mode.
//
// A cell is one wire, one kind and one mode. Each test runs a real server with
// real clients, and nothing between them is faked but an answer that gets lost.
// Plain SGD with rate 1 applies whole numbers, so the values are exact.
//
// Left out, since it makes no sense there:
//   WireWaitContract in async: no pull of async ever waits.
//   WireStepContract in async and in bounded staleness: only a step of sync is
//   made of contributions that wait for their turn.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/wire/layout_io.h"
#include "server/ps/rows/id_list_cache.h"
#include "tests/support/kind_worker.h"
#include "tests/support/loopback_ps.h"
#include "tests/support/tapped_transport.h"
#include "tests/support/wait_until.h"

namespace weir {
namespace {

enum class Wire : int { kGrpc, kSharedMemory };
enum class Mode : int { kAsync, kSync, kBoundedStaleness };
using Cell = std::tuple<Wire, ParameterKind, Mode>;

constexpr size_t kBlockElements = 1024;
constexpr size_t kBlocks = 4;
// The last block is not full. There are as many floats of rows.
constexpr size_t kValues = kBlocks * kBlockElements - 16;
constexpr uint64_t kBytes = kValues * sizeof(float);
constexpr int kTableDim = 16;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kBound = 1;  // of bounded staleness
// After so long a worker waits no more, and the test fails.
constexpr std::chrono::seconds kPatience{20};

std::vector<float> All(float value) {
  return std::vector<float>(kValues, value);
}

Want Latest() {
  Want want;
  want.set_latest(true);
  return want;
}

// Contribution `sequence` of the slot: in sync, one to the step of that number.
ContributionPush Contribution(int slot, uint64_t sequence) {
  ContributionPush push;
  push.sequence = sequence;
  push.index_in_step = static_cast<uint32_t>(slot);
  return push;
}

// Pushes it, with the same gradient for every value.
ContributionResult Push(KindWorker* worker, int slot, uint64_t sequence,
                        float gradient) {
  const auto pushed = worker->Push(Contribution(slot, sequence), gradient);
  EXPECT_EQ(pushed.status(), absl::OkStatus());
  return pushed.value_or(ContributionResult());
}

// What one early contribution takes while it waits: rows have their ids, too.
uint64_t WaitingBytesOf(const Cell& cell) {
  if (std::get<ParameterKind>(cell) == ParameterKind::kBlocks) {
    return kBytes;
  }
  const Ids ids =
      std::make_shared<const std::vector<uint64_t>>(kValues / kTableDim);
  return kBytes + static_cast<uint64_t>(BytesOf(ids));
}

// `early`: the contributions for which out_of_order_bytes has room.
LoopbackPs::Options PsOf(const Cell& cell, int slots, int early) {
  LoopbackPs::Options options;
  options.block_elements = kBlockElements;
  options.block_count = kBlocks;
  options.slot_count = slots;
  options.out_of_order_bytes =
      static_cast<uint64_t>(early) * WaitingBytesOf(cell);
  options.shared_memory = std::get<Wire>(cell) == Wire::kSharedMemory;
  options.table_dim = kTableDim;
  if (std::get<Mode>(cell) == Mode::kSync) {
    options.sync_contributions = slots;
  } else if (std::get<Mode>(cell) == Mode::kBoundedStaleness) {
    options.staleness_bound = kBound;
  }
  return options;
}

// A job of one shard. In sync, every slot has one contribution to each step.
struct Job {
  explicit Job(const Cell& cell, int slots = 1, int early = 2)
      : kind(std::get<ParameterKind>(cell)),
        mode(std::get<Mode>(cell)),
        waiting_bytes(WaitingBytesOf(cell)),
        ps(PsOf(cell, slots, early)),
        tap(ps.transport.get()),
        layout(*LayoutFromDeclaration(ps.MakeDeclaration())) {}

  // Starts a process that speaks for the slot.
  std::unique_ptr<KindWorker> WorkerOf(
      int slot, uint32_t generation = 1,
      std::chrono::milliseconds lost_after = std::chrono::seconds(10)) {
    KindWorker::Options options;
    options.transport = &tap;
    options.addresses = {ps.address()};
    options.sender = ps.SenderOf(slot, generation);
    options.lost_after = lost_after;
    options.on_wait = [end = std::chrono::steady_clock::now() + kPatience] {
      return std::chrono::steady_clock::now() < end
                 ? absl::OkStatus()
                 : absl::DeadlineExceededError("the test waited too long");
    };
    options.layout = &layout;
    options.tables = {ps.MakeDeclaration().table(0)};
    options.values = kValues;
    return KindWorker::Create(kind, std::move(options));
  }

  bool sync() const { return mode == Mode::kSync; }
  bool rows() const { return kind == ParameterKind::kRows; }
  // What counts contributions for itself: each block, or all rows together.
  uint64_t units() const { return rows() ? 1 : kBlocks; }

  // What a slot pulls before its contribution `sequence`.
  Want WantFor(uint64_t sequence) const {
    Want want = Latest();
    if (sync()) {
      want.set_version(sequence);
    } else if (mode == Mode::kBoundedStaleness) {
      want.set_clock(sequence);
    }
    return want;
  }

  // How many contributions a slot may push before a pull has to wait for the
  // other slot.
  uint64_t ahead() const { return sync() ? 1 : kBound + 1; }
  // Pushes so many with gradient 1, and starts the pull that has to wait.
  void RunAhead(KindWorker* worker, int slot) const {
    for (uint64_t i = 0; i < ahead(); ++i) {
      Push(worker, slot, i, 1.0f);
    }
    EXPECT_EQ(worker->StartPull(WantFor(ahead())), absl::OkStatus());
    EXPECT_TRUE(IsParked());
  }
  // Waits until every unit has a pull that waits.
  bool IsParked() const {
    return WaitUntil(
        [&] { return ps.store->GetStatus().waits_parked() >= units(); });
  }
  // The values after RunAhead of one slot and a gradient of 3 by the other one.
  float both() const {
    return sync() ? -(1.0f + 3.0f) / 2 : -static_cast<float>(ahead()) - 3;
  }

  const ParameterKind kind;
  const Mode mode;
  const uint64_t waiting_bytes;
  LoopbackPs ps;
  TappedTransport tap;
  const Layout layout;
};

void ExpectValues(KindWorker* worker, const Want& want,
                  const std::vector<float>& values) {
  ASSERT_EQ(worker->Pull(want), absl::OkStatus());
  EXPECT_EQ(worker->values(), values);
}

// ----------------------------------------------------- all wires, kinds, modes

class WireContract : public testing::TestWithParam<Cell> {};

TEST_P(WireContract, ARepeatByAnotherProcessIsADuplicate) {
  Job job(GetParam());
  EXPECT_EQ(Push(job.WorkerOf(0).get(), 0, 0, 1.0f).duplicates, 0u);
  const auto other = job.WorkerOf(0);
  EXPECT_EQ(Push(other.get(), 0, 0, 5.0f).duplicates, job.units());
  ExpectValues(other.get(), job.WantFor(1), All(-1.0f));
}

TEST_P(WireContract, AContributionWhoseReceiptIsLostCountsOnce) {
  Job job(GetParam());
  const auto worker = job.WorkerOf(0);
  job.tap.LoseNextReceipt();
  EXPECT_GE(Push(worker.get(), 0, 0, 1.0f).duplicates, 1u);
  EXPECT_EQ(worker->counters().reconnects, 1u);
  ExpectValues(worker.get(), job.WantFor(1), All(-1.0f));
  EXPECT_EQ(Push(worker.get(), 0, 1, 1.0f).duplicates, 0u);
  ExpectValues(worker.get(), job.WantFor(2), All(-2.0f));
}

TEST_P(WireContract, BrokenConnectionsLoseNothingAndDoubleNothing) {
  Job job(GetParam());
  const auto worker = job.WorkerOf(0);
  constexpr uint64_t kSteps = 3;
  for (uint64_t step = 0; step < kSteps; ++step) {
    ASSERT_EQ(worker->StartPull(job.WantFor(step)), absl::OkStatus());
    job.ps.BreakConnections();
    ASSERT_EQ(worker->WaitPull(), absl::OkStatus());
    EXPECT_EQ(worker->values(), All(-static_cast<float>(step)));
    ASSERT_EQ(worker->StartPush(Contribution(0, step), 1.0f), absl::OkStatus());
    job.ps.BreakConnections();
    ASSERT_EQ(worker->WaitPush().status(), absl::OkStatus());
  }
  ExpectValues(worker.get(), job.WantFor(kSteps),
               All(-static_cast<float>(kSteps)));
  // The pulls of two steps found the stream of the step before broken.
  EXPECT_GE(worker->counters().reconnects, kSteps - 1);
}

TEST_P(WireContract, AReplacedProcessIsRefusedAndChangesNothing) {
  Job job(GetParam());
  const auto old = job.WorkerOf(0, /*generation=*/1);
  Push(old.get(), 0, 0, 1.0f);
  ExpectValues(old.get(), job.WantFor(1), All(-1.0f));
  job.ps.SetSlot(0, /*generation=*/2, /*retired=*/false);
  EXPECT_EQ(old->Push(Contribution(0, 1), 1.0f).status().code(),
            absl::StatusCode::kPermissionDenied);
  const auto successor = job.WorkerOf(0, /*generation=*/2);
  ExpectValues(successor.get(), job.WantFor(1), All(-1.0f));
  EXPECT_EQ(Push(successor.get(), 0, 1, 1.0f).duplicates, 0u);
  ExpectValues(successor.get(), job.WantFor(2), All(-2.0f));
}

TEST_P(WireContract, OneProcessMaySpeakForTwoSlots) {
  Job job(GetParam(), /*slots=*/2);
  const auto worker = job.WorkerOf(0);
  EXPECT_EQ(Push(worker.get(), 0, 0, 1.0f).duplicates, 0u);
  worker->SpeakFor(job.ps.SenderOf(1));
  EXPECT_EQ(Push(worker.get(), 1, 0, 3.0f).duplicates, 0u);
  ExpectValues(worker.get(), job.WantFor(1), All(job.sync() ? -2.0f : -4.0f));
}

TEST_P(WireContract, AGradientWithNanIsLeftOutAndNamed) {
  Job job(GetParam());
  const auto worker = job.WorkerOf(0);
  std::ranges::fill(worker->gradients(), 1.0f);
  worker->gradients()[7] = kNan;
  ASSERT_EQ(worker->StartPush(Contribution(0, 0)), absl::OkStatus());
  const auto pushed = worker->WaitPush();
  ASSERT_EQ(pushed.status(), absl::OkStatus());
  EXPECT_TRUE(pushed->bad);
  EXPECT_EQ(pushed->bad_name, job.rows() ? "t" : "w");
  // The unit that has it is left out as a whole; the other blocks are not.
  std::vector<float> values = All(job.rows() ? 0.0f : -1.0f);
  std::fill_n(values.begin(), kBlockElements, 0.0f);
  ExpectValues(worker.get(), job.WantFor(1), values);
  EXPECT_FALSE(Push(worker.get(), 0, 1, 1.0f).bad);
  for (float& value : values) {
    value -= 1.0f;
  }
  ExpectValues(worker.get(), job.WantFor(2), values);
}

// ----------------------------------------- pulls that wait for the other slot

class WireWaitContract : public testing::TestWithParam<Cell> {};

TEST_P(WireWaitContract, APullWaitsForTheOtherSlotWhicheverIsFirst) {
  for (const int first : {0, 1}) {
    Job job(GetParam(), /*slots=*/2);
    const auto fast = job.WorkerOf(first);
    const auto slow = job.WorkerOf(1 - first);
    job.RunAhead(fast.get(), first);
    // A step without all of its contributions changes nothing.
    const float before = job.sync() ? 0.0f : -static_cast<float>(job.ahead());
    ExpectValues(slow.get(), Latest(), All(before));
    Push(slow.get(), 1 - first, 0, 3.0f);
    ASSERT_EQ(fast->WaitPull(), absl::OkStatus());
    EXPECT_EQ(fast->values(), All(job.both()));
  }
}

TEST_P(WireWaitContract, ARetiredSlotHoldsNobodyBack) {
  Job job(GetParam(), /*slots=*/2);
  const auto fast = job.WorkerOf(0);
  job.RunAhead(fast.get(), 0);
  job.ps.SetSlot(1, /*generation=*/1, /*retired=*/true);
  ASSERT_EQ(fast->WaitPull(), absl::OkStatus());
  EXPECT_EQ(fast->values(), All(-static_cast<float>(job.ahead())));
}

TEST_P(WireWaitContract, APullThatTheServerEndsTooEarlyIsRepeated) {
  Job job(GetParam(), /*slots=*/2);
  // A quarter of this is how long the server lets a pull wait.
  const auto fast = job.WorkerOf(0, /*generation=*/1, std::chrono::seconds(1));
  const auto slow = job.WorkerOf(1);
  job.RunAhead(fast.get(), 0);
  ASSERT_TRUE(WaitUntil(
      [&] { return job.tap.not_yets() >= static_cast<int>(job.units()); }));
  EXPECT_TRUE(job.IsParked());
  Push(slow.get(), 1, 0, 3.0f);
  ASSERT_EQ(fast->WaitPull(), absl::OkStatus());
  EXPECT_EQ(fast->values(), All(job.both()));
}

TEST_P(WireWaitContract, APullGoesOnWaitingAfterItsConnectionBroke) {
  Job job(GetParam(), /*slots=*/2);
  const auto fast = job.WorkerOf(0);
  const auto slow = job.WorkerOf(1);
  job.RunAhead(fast.get(), 0);
  job.ps.BreakConnections();
  Push(slow.get(), 1, 0, 3.0f);
  ASSERT_EQ(fast->WaitPull(), absl::OkStatus());
  EXPECT_EQ(fast->values(), All(job.both()));
}

TEST_P(WireWaitContract, AnInterruptEndsAPullAndLosesNothing) {
  Job job(GetParam(), /*slots=*/2);
  const absl::Status stopped = absl::CancelledError("the job stopped");
  {
    const auto fast = job.WorkerOf(0);
    job.RunAhead(fast.get(), 0);
    fast->Interrupt(stopped);
    EXPECT_EQ(fast->WaitPull(), stopped);
    EXPECT_EQ(fast->WaitPull(), stopped);  // as every wait from now on
  }
  const auto slow = job.WorkerOf(1);
  Push(slow.get(), 1, 0, 3.0f);
  ExpectValues(job.WorkerOf(0).get(), job.WantFor(job.ahead()),
               All(job.both()));
}

// --------------------------------------------------------------- steps of sync

class WireStepContract : public testing::TestWithParam<Cell> {};

TEST_P(WireStepContract, TheBitsDoNotDependOnTheOrderOfArrival) {
  Job job(GetParam(), /*slots=*/3);
  // In index order the 1 is lost in the sum, which is 24. If the second and the
  // third change places, it is 25.
  constexpr float kLarge = 1 << 26;
  constexpr float kGradients[] = {kLarge, 1, 24 - kLarge};
  std::vector<std::unique_ptr<KindWorker>> workers;
  for (int slot = 0; slot < 3; ++slot) {
    workers.push_back(job.WorkerOf(slot));
  }
  std::vector<int> order = {0, 1, 2};
  uint64_t step = 0;
  do {
    for (const int slot : order) {
      KindWorker* const worker = workers[static_cast<size_t>(slot)].get();
      ExpectValues(worker, job.WantFor(step),
                   All(-8.0f * static_cast<float>(step)));
      Push(worker, slot, step, kGradients[slot]);
    }
    ++step;
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(step, 6u);
  ExpectValues(workers[0].get(), job.WantFor(step), All(-48.0f));
}

TEST_P(WireStepContract, AStepGoesOnWithoutAContributionThatHasNan) {
  Job job(GetParam(), /*slots=*/2);
  const auto good = job.WorkerOf(0);
  const auto bad = job.WorkerOf(1);
  EXPECT_TRUE(Push(bad.get(), 1, 0, kNan).bad);
  Push(good.get(), 0, 0, 1.0f);
  // The mean is over those that have no NaN.
  ExpectValues(good.get(), job.WantFor(1), All(-1.0f));
}

TEST_P(WireStepContract,
       WhatComesTooEarlyIsKeptWithinTheBudgetAndDeferredBeyondIt) {
  Job job(GetParam(), /*slots=*/3, /*early=*/1);
  const auto first = job.WorkerOf(0);
  const auto second = job.WorkerOf(1);
  const auto third = job.WorkerOf(2);
  Push(second.get(), 1, 0, 2.0f);
  EXPECT_EQ(job.tap.receipts(Receipt::DEFERRED), 0);
  EXPECT_EQ(job.ps.store->GetStatus().out_of_order_bytes(), job.waiting_bytes);
  ASSERT_EQ(third->StartPush(Contribution(2, 0), 6.0f), absl::OkStatus());
  ASSERT_TRUE(WaitUntil([&] {
    return job.tap.receipts(Receipt::DEFERRED) >= static_cast<int>(job.units());
  }));
  EXPECT_EQ(job.ps.store->GetStatus().out_of_order_bytes(), job.waiting_bytes);
  Push(first.get(), 0, 0, 1.0f);
  ASSERT_EQ(third->WaitPush().status(), absl::OkStatus());
  ExpectValues(third.get(), job.WantFor(1), All(-(1.0f + 2.0f + 6.0f) / 3));
  EXPECT_EQ(job.ps.store->GetStatus().out_of_order_bytes(), 0u);
}

// ------------------------------------------------------------------- the cells

auto Over(const std::vector<Mode>& modes) {
  return testing::Combine(
      testing::Values(Wire::kGrpc, Wire::kSharedMemory),
      testing::Values(ParameterKind::kBlocks, ParameterKind::kRows),
      testing::ValuesIn(modes));
}

std::string NameOfCell(const testing::TestParamInfo<Cell>& info) {
  constexpr const char* kModes[] = {"Async", "Sync", "BoundedStaleness"};
  return absl::StrCat(
      std::get<Wire>(info.param) == Wire::kGrpc ? "Grpc" : "SharedMemory",
      NameOf(std::get<ParameterKind>(info.param)),
      kModes[static_cast<int>(std::get<Mode>(info.param))]);
}

INSTANTIATE_TEST_SUITE_P(, WireContract,
                         Over({Mode::kAsync, Mode::kSync,
                               Mode::kBoundedStaleness}),
                         NameOfCell);
INSTANTIATE_TEST_SUITE_P(, WireWaitContract,
                         Over({Mode::kSync, Mode::kBoundedStaleness}),
                         NameOfCell);
INSTANTIATE_TEST_SUITE_P(, WireStepContract, Over({Mode::kSync}), NameOfCell);

}  // namespace
}  // namespace weir
