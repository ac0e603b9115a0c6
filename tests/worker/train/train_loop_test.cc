#include "worker/train/train_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <mutex>
#include <set>
#include <thread>

#include "common/math/random.h"
#include "tests/support/fake_shards.h"
#include "tests/worker/model/network_tester.h"
#include "worker/compute/factory.h"

namespace weir {
namespace {

constexpr char kModel[] = R"(
layer { name: "hidden" dense { units: 24 } }
layer { name: "norm" layer_norm {} }
layer { name: "act" relu {} }
layer { name: "drop" dropout { rate: 0.2 } }
layer { name: "logits" dense { units: 5 } }
loss { softmax_cross_entropy {} })";
constexpr int64_t kFeatures = 20;
constexpr int64_t kRows = 8;
constexpr uint64_t kSeed = 11;
constexpr float kRate = -0.05f;

struct Data {
  std::vector<float> features;
  std::vector<float> labels;
};

Data MakeData(uint64_t contribution) {
  Data data;
  RandomStream random(MixKey(77, contribution));
  for (int64_t i = 0; i < kRows * kFeatures; ++i) {
    data.features.push_back(random.NextFloat(-1.0f, 1.0f));
  }
  for (int64_t i = 0; i < kRows; ++i) {
    data.labels.push_back(static_cast<float>(random.NextBelow(5)));
  }
  return data;
}

// Backend, network, layout and buffers of one worker.
struct Machine {
  explicit Machine(int shards, int64_t block_elements = 64) {
    backend = CreateBackend({}).value();
    network =
        Replicas::Create(ParseModel(kModel), {kFeatures}, {backend.get()}, {})
            .value();
    layout = std::make_unique<Layout>(
        Layout::Create(network->network().variables(), shards, block_elements)
            .value());
    parameters.resize(layout->flat_elements());
    gradients.resize(layout->flat_elements());
    EXPECT_TRUE(
        network->Bind(*layout, parameters.data(), gradients.data()).ok());
  }

  std::unique_ptr<Backend> backend;
  std::unique_ptr<Replicas> network;
  std::unique_ptr<Layout> layout;
  std::vector<float> parameters;
  std::vector<float> gradients;
};

std::vector<float> InitialParameters(const Layout& layout) {
  std::vector<float> initial(layout.flat_elements(), 0.0f);
  RandomStream random(5);
  for (size_t v = 0; v < layout.variables().size(); ++v) {
    for (int64_t i = 0; i < layout.variables()[v].elements(); ++i) {
      initial[layout.flat_begin(static_cast<int>(v)) + i] =
          random.NextFloat(-0.4f, 0.4f);
    }
  }
  return initial;
}

class FakeControl : public JobControl {
 public:
  bool EnterContribution() override {
    if (hold) {
      hold();
    }
    return entered++ < enter_max;
  }
  void LeaveContribution(uint64_t next, const ContributionReport& report,
                         const ContributionResult&) override {
    next_sequence = next;
    reports.push_back(report);
  }
  void AddPhases(const Phases& sequence) override {
    phases.push_back(sequence);
  }
  void OutOfWork() override {}

  std::function<void()> hold;
  int enter_max = 1 << 30;
  int entered = 0;
  uint64_t next_sequence = 0;
  std::vector<ContributionReport> reports;
  std::vector<Phases> phases;
};

struct WorkerOptions {
  uint32_t slot = 0;
  uint32_t slots = 1;
  uint32_t per_step = 0;
  uint64_t contributions = 24;
  uint64_t next_sequence = 0;
  int lost_after_ms = 5000;
  Clip clip;
  bool bounded_staleness = false;
  bool prefetch = false;
  int64_t block_elements = 64;
  Clock* clock = Clock::Real();
  std::function<void()> batch_made;
  std::function<DeviceUsage()> device_usage;
};

absl::Status RunWorker(FakeShards* shards, int shard_count,
                       const WorkerOptions& options, FakeControl* control) {
  Machine machine(shard_count, options.block_elements);
  Grant grant;
  grant.mutable_sender()->set_slot(options.slot);
  grant.set_slot_count(options.slots);
  grant.set_contribution_count(options.contributions);
  grant.set_contributions_per_step(options.per_step);
  const WorkList work = WorkList::Create(grant).value();
  WorkerSession::Options session_options;
  session_options.transport = shards;
  session_options.addresses = shards->addresses();
  session_options.layout = machine.layout.get();
  session_options.parameters = machine.parameters.data();
  session_options.gradients = machine.gradients.data();
  session_options.lost_after = std::chrono::milliseconds(options.lost_after_ms);
  session_options.bounded_staleness = options.bounded_staleness;
  const auto session =
      WorkerSession::Create(std::move(session_options)).value();
  Data data;
  std::vector<float> computed_from(machine.parameters.size());
  TrainLoop::Options loop;
  loop.network = machine.network.get();
  loop.session = session.get();
  loop.control = control;
  loop.work = &work;
  loop.layout = machine.layout.get();
  loop.gradients = machine.gradients.data();
  loop.seed = kSeed;
  loop.clip = options.clip;
  loop.device_usage = options.device_usage;
  loop.clock = options.clock;
  if (options.prefetch) {
    EXPECT_TRUE(machine.network
                    ->Bind(*machine.layout, computed_from.data(),
                           machine.gradients.data())
                    .ok());
    loop.pulled = machine.parameters.data();
    loop.computed_from = computed_from.data();
  }
  loop.batch = [&](uint64_t contribution) -> absl::StatusOr<TrainBatch> {
    if (options.batch_made) {
      options.batch_made();
    }
    data = MakeData(contribution);
    return TrainBatch{data.features.data(), data.labels.data(), kRows, 1.0f};
  };
  return TrainLoop::Create(std::move(loop)).value()->Run(options.next_sequence);
}

// What the shards hold, in flat order.
std::vector<float> Flat(FakeShards* shards, const Layout& layout) {
  std::vector<float> flat(layout.flat_elements());
  for (int s = 0; s < layout.shard_count(); ++s) {
    for (int b = 0; b < layout.block_count(s); ++b) {
      const std::vector<float> values = shards->values(s, b);
      std::copy(values.begin(), values.end(),
                flat.begin() + layout.block({s, b}).begin);
    }
  }
  return flat;
}

// Trains the same in one loop without servers: in each step it sums the
// gradients of contributions 0 to n - 1, from the same parameters, in that
// order.
std::vector<float> Reference(uint64_t contributions, uint32_t per_step) {
  Machine machine(1);
  machine.parameters = InitialParameters(*machine.layout);
  EXPECT_TRUE(machine.network
                  ->Bind(*machine.layout, machine.parameters.data(),
                         machine.gradients.data())
                  .ok());
  for (uint64_t c = 0; c < contributions; c += per_step) {
    std::vector<float> sum(machine.parameters.size(), 0.0f);
    for (uint64_t m = c; m < std::min(c + per_step, contributions); ++m) {
      const Data data = MakeData(m);
      EXPECT_TRUE(machine.network
                      ->TrainStep(data.features.data(), data.labels.data(),
                                  kRows, MixKey(kSeed, m), {})
                      .ok());
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] += machine.gradients[i];
      }
    }
    for (size_t i = 0; i < sum.size(); ++i) {
      machine.parameters[i] += kRate * sum[i];
    }
  }
  return machine.parameters;
}

FakeShards::Options ShardOptions(const Layout* layout, int contributions) {
  return {.layout = layout,
          .contributions = contributions,
          .rate = kRate,
          .initial = InitialParameters(*layout)};
}

TEST(TrainLoopTest, SyncEndsWithTheSameBitsForAnyNumberOfWorkersAndShards) {
  constexpr uint32_t kPerStep = 4;
  constexpr uint64_t kContributions = 22;  // the last step is padded
  const std::vector<float> expected = Reference(kContributions, kPerStep);
  for (const int shard_count : {1, 2, 3}) {
    for (const uint32_t workers : {1u, 2u, 4u}) {
      const Machine machine(shard_count);
      FakeShards shards(ShardOptions(machine.layout.get(), kPerStep));
      std::vector<std::thread> threads;
      for (uint32_t w = 0; w < workers; ++w) {
        threads.emplace_back([&, w] {
          FakeControl control;
          WorkerOptions options;
          options.slot = w;
          options.slots = workers;
          options.per_step = kPerStep;
          options.contributions = kContributions;
          EXPECT_TRUE(RunWorker(&shards, shard_count, options, &control).ok());
        });
      }
      for (std::thread& thread : threads) {
        thread.join();
      }
      EXPECT_EQ(Flat(&shards, *machine.layout), expected)
          << shard_count << " shards, " << workers << " workers";
    }
  }
}

TEST(TrainLoopTest, AReplacementLeavesNoTraceInSync) {
  constexpr uint32_t kPerStep = 4;
  const std::vector<float> expected = Reference(24, kPerStep);
  const Machine machine(2);
  FakeShards::Options shard_options =
      ShardOptions(machine.layout.get(), kPerStep);
  // Worker 1's third contribution reaches only some of the blocks, then its
  // connection is cut for good; that of its replacement is not.
  std::atomic<int> chunks{0};
  std::atomic<bool> cut{true};
  shard_options.fault = [&](int, const GradientChunk& request) {
    if (request.sender().slot() == 1 && cut && request.has_push() &&
        request.push().sequence() == 5 && ++chunks > 4) {
      return Fault::kBreakBefore;
    }
    return Fault::kNone;
  };
  FakeShards shards(shard_options);
  WorkerOptions options;
  options.slots = 2;
  options.per_step = kPerStep;
  std::thread other([&] {
    FakeControl control;
    EXPECT_TRUE(RunWorker(&shards, 2, options, &control).ok());
  });
  WorkerOptions dying = options;
  dying.slot = 1;
  dying.lost_after_ms = 300;
  FakeControl control;
  const absl::Status status = RunWorker(&shards, 2, dying, &control);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_EQ(control.next_sequence, 5u);
  cut = false;
  dying.next_sequence = 5;
  dying.lost_after_ms = 5000;
  EXPECT_TRUE(RunWorker(&shards, 2, dying, &control).ok());
  other.join();
  EXPECT_GT(shards.duplicates(), 0u);
  EXPECT_EQ(Flat(&shards, *machine.layout), expected);
}

TEST(TrainLoopTest, AsyncAloneEqualsPlainSgd) {
  const std::vector<float> expected = Reference(24, 1);
  const Machine machine(2);
  FakeShards shards(ShardOptions(machine.layout.get(), 0));
  FakeControl control;
  ASSERT_TRUE(RunWorker(&shards, 2, {}, &control).ok());
  EXPECT_EQ(Flat(&shards, *machine.layout), expected);
  ASSERT_EQ(control.reports.size(), 24u);
  std::set<uint64_t> done;
  for (const ContributionReport& report : control.reports) {
    done.insert(report.contribution());
    EXPECT_EQ(report.rows(), kRows);
    EXPECT_GT(report.loss(), 0.0f);
  }
  EXPECT_EQ(done.size(), 24u);
}

// Every contribution's gradient is that of the version which its push names:
// replayed from those versions alone, training ends with the same bits. The
// model is one block, so that a version is one set of values.
TEST(TrainLoopTest, PrefetchComputesFromTheVersionThatItsPushNames) {
  constexpr uint64_t kContributions = 40;
  Machine machine(1, 4096);
  ASSERT_EQ(machine.layout->block_count(0), 1);
  FakeShards::Options shard_options = ShardOptions(machine.layout.get(), 0);
  std::vector<uint64_t> base_versions;
  shard_options.fault = [&](int, const GradientChunk& request) {
    if (request.has_push()) {
      base_versions.push_back(request.push().base_version());
    }
    return Fault::kNone;
  };
  FakeShards shards(shard_options);
  FakeControl control;
  WorkerOptions options;
  options.contributions = kContributions;
  options.prefetch = true;
  options.block_elements = 4096;
  ASSERT_TRUE(RunWorker(&shards, 1, options, &control).ok());
  ASSERT_EQ(base_versions.size(), kContributions);

  std::vector<std::vector<float>> versions = {
      InitialParameters(*machine.layout)};
  for (uint64_t sequence = 0; sequence < kContributions; ++sequence) {
    const uint64_t base = base_versions[sequence];
    ASSERT_LE(base, sequence);
    ASSERT_GE(base + 1, sequence) << "more than one step of staleness";
    machine.parameters = versions[base];
    ASSERT_TRUE(machine.network
                    ->Bind(*machine.layout, machine.parameters.data(),
                           machine.gradients.data())
                    .ok());
    const Data data = MakeData(sequence);
    ASSERT_TRUE(machine.network
                    ->TrainStep(data.features.data(), data.labels.data(), kRows,
                                MixKey(kSeed, sequence), {})
                    .ok());
    std::vector<float> next = versions.back();
    for (size_t i = 0; i < next.size(); ++i) {
      next[i] += kRate * machine.gradients[i];
    }
    versions.push_back(std::move(next));
  }
  EXPECT_EQ(Flat(&shards, *machine.layout), versions.back());
}

TEST(TrainLoopTest, ClipByNormPushesTheClippedGradient) {
  const Machine machine(1);
  FakeShards shards(ShardOptions(machine.layout.get(), 0));
  FakeControl control;
  WorkerOptions options;
  options.contributions = 1;
  options.clip.set_norm(0.001f);
  ASSERT_TRUE(RunWorker(&shards, 1, options, &control).ok());
  const std::vector<float> before = InitialParameters(*machine.layout);
  const std::vector<float> after = Flat(&shards, *machine.layout);
  double sum = 0.0;
  for (size_t i = 0; i < before.size(); ++i) {
    const double change = (double{after[i]} - before[i]) / kRate;
    sum += change * change;
  }
  // Rounding of values near 0.4 dominates: 2^-26 / 0.05 an element.
  EXPECT_NEAR(std::sqrt(sum), 0.001, 1e-4);
}

TEST(TrainLoopTest, AStopBeforeAContributionLeavesNothingOfIt) {
  const Machine machine(2);
  FakeShards shards(ShardOptions(machine.layout.get(), 0));
  FakeControl control;
  control.enter_max = 3;
  const absl::Status status = RunWorker(&shards, 2, {}, &control);
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  for (int s = 0; s < 2; ++s) {
    for (int b = 0; b < machine.layout->block_count(s); ++b) {
      EXPECT_EQ(shards.next_sequence(s, b, 0), 3u);
    }
  }
}

// The clock moves only in the batch and while held.
TEST(TrainLoopTest, EveryContributionTellsWhereItsTimeWent) {
  for (const bool on_gpu : {false, true}) {
    FakeClock clock;
    const Machine machine(1);
    FakeShards shards(ShardOptions(machine.layout.get(), 0));
    FakeControl control;
    control.hold = [&] { clock.Advance(std::chrono::seconds(9)); };
    WorkerOptions options;
    options.contributions = 5;
    options.clock = &clock;
    options.batch_made = [&] { clock.Advance(std::chrono::nanoseconds(3000)); };
    int64_t busy_ns = 100;
    if (on_gpu) {
      options.device_usage = [&] {
        return DeviceUsage{.busy_ns = busy_ns += 1000, .bytes_used = 7};
      };
    }
    ASSERT_TRUE(RunWorker(&shards, 1, options, &control).ok());
    ASSERT_EQ(control.phases.size(), 5u);
    for (const Phases& phases : control.phases) {
      EXPECT_EQ(phases.contributions(), 1u);
      EXPECT_EQ(phases.on_gpu(), on_gpu);
      EXPECT_EQ(phases.device_bytes_used(), on_gpu ? 7u : 0u);
      EXPECT_EQ(phases.step_ns(), 3000u);
      // The device was busy during the only wait that there is.
      EXPECT_EQ(phases.compute_ns(), on_gpu ? 1000u : 0u);
      EXPECT_EQ(phases.data_wait_ns(), on_gpu ? 2000u : 3000u);
    }
  }
}

// A clock that moves by 1 ns when it is read shows what is measured, and that
// nothing else reads it.
TEST(TrainLoopTest, AContributionCostsTwoClockReadsAndTwoAWait) {
  class : public FakeClock {
   public:
    int64_t NowNs() override {
      Advance(std::chrono::nanoseconds(1));
      return FakeClock::NowNs();
    }
  } clock;
  const Machine machine(1);
  FakeShards shards(ShardOptions(machine.layout.get(), 0));
  FakeControl control;
  WorkerOptions options;
  options.contributions = 3;
  options.clock = &clock;
  ASSERT_TRUE(RunWorker(&shards, 1, options, &control).ok());
  ASSERT_EQ(control.phases.size(), 3u);
  const uint64_t variables = machine.layout->variables().size();
  for (const Phases& phases : control.phases) {
    EXPECT_EQ(phases.data_wait_ns(), 1u);
    EXPECT_EQ(phases.pull_wait_ns(), variables + 1);  // and BeginContribution
    EXPECT_EQ(phases.push_wait_ns(), 1u);
    // Two reads for each wait, and two for a hold, of which one is not part of
    // the step.
    EXPECT_EQ(phases.step_ns(), 2 * (variables + 3) + 2);
    EXPECT_EQ(phases.compute_ns(), variables + 5);
  }
}

TEST(TrainLoopTest, BoundedStalenessSendsItsClockWithEveryWant) {
  const Machine machine(1);
  FakeShards::Options shard_options = ShardOptions(machine.layout.get(), 0);
  std::set<uint64_t> clocks;
  shard_options.fault = [&](int, const GradientChunk& request) {
    if (request.has_want()) {
      clocks.insert(request.want().clock());
    }
    return Fault::kNone;
  };
  FakeShards shards(shard_options);
  FakeControl control;
  WorkerOptions options;
  options.contributions = 4;
  options.bounded_staleness = true;
  ASSERT_TRUE(RunWorker(&shards, 1, options, &control).ok());
  EXPECT_EQ(clocks, (std::set<uint64_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace weir
