#include "worker/train/train_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <mutex>
#include <numeric>
#include <set>
#include <span>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/math/random.h"
#include "google/protobuf/text_format.h"
#include "proto/wire/layout_io.h"
#include "tests/support/store_cluster.h"
#include "tests/worker/model/network_tester.h"
#include "worker/compute/factory.h"
#include "worker/train/histograms.h"

namespace weir {
namespace {

using Fate = InProcessTransport::Fate;

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
constexpr float kRate = 0.05f;

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
  void AddHistograms(ContributionHistograms made) override {
    histograms.push_back(std::move(made));
  }
  void OutOfWork() override {}

  std::function<void()> hold;
  int enter_max = 1 << 30;
  int entered = 0;
  uint64_t next_sequence = 0;
  std::vector<ContributionReport> reports;
  std::vector<Phases> phases;
  std::vector<ContributionHistograms> histograms;
};

// A declaration of the model's variables, of plain SGD with rate kRate, and of
// `more`.
Declaration JobWith(const std::string& more) {
  Declaration job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(more, &job));
  Group* const group = job.add_group();
  group->mutable_optimizer()->mutable_sgd();
  group->mutable_schedule()->set_learning_rate(kRate);
  const Machine machine(1);
  for (const VariableSpec& variable : machine.layout->variables()) {
    *job.add_variable() = VariableToProto(variable);
  }
  return job;
}

// What the shards of any such job begin with, in flat order.
std::vector<float> InitialParameters() {
  return StoreCluster(JobWith("")).Values();
}

struct WorkerOptions {
  int slot = 0;
  uint64_t contributions = 24;
  uint64_t next_sequence = 0;
  int lost_after_ms = 5000;
  Clip clip;
  std::vector<int> left_out;
  bool prefetch = false;
  uint32_t histograms_every_steps = 0;
  Clock* clock = Clock::Real();
  std::function<void()> batch_made;
  std::function<bool()> batch_ready;
  std::function<DeviceUsage()> device_usage;
};

absl::Status RunWorker(StoreCluster* cluster, const WorkerOptions& options,
                       FakeControl* control) {
  const Declaration& job = cluster->declaration;
  Machine machine(cluster->layout->shard_count(),
                  static_cast<int64_t>(job.block_elements()));
  Grant grant;
  *grant.mutable_sender() = cluster->SenderOf(options.slot);
  grant.set_slot_count(job.slot_count());
  grant.set_contribution_count(options.contributions);
  grant.set_contributions_per_step(job.update().sync().contributions());
  const WorkList work = WorkList::Create(grant).value();
  WorkerSession::Options session_options;
  static_cast<ShardClientOptions&>(session_options) = cluster->ClientOptions();
  session_options.layout = machine.layout.get();
  session_options.parameters = machine.parameters.data();
  session_options.gradients = machine.gradients.data();
  session_options.lost_after = std::chrono::milliseconds(options.lost_after_ms);
  session_options.bounded_staleness = job.update().has_bounded_staleness();
  const auto session =
      WorkerSession::Create(std::move(session_options)).value();
  Data batches[2];  // a batch lives until the call after the next
  int made = 0;
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
  loop.left_out = options.left_out;
  loop.device_usage = options.device_usage;
  loop.clock = options.clock;
  loop.histograms_every_steps = options.histograms_every_steps;
  loop.values =
      options.prefetch ? computed_from.data() : machine.parameters.data();
  if (options.prefetch) {
    EXPECT_TRUE(machine.network
                    ->Bind(*machine.layout, computed_from.data(),
                           machine.gradients.data())
                    .ok());
    loop.pulled = machine.parameters.data();
    loop.computed_from = computed_from.data();
  }
  loop.batch_ready = options.batch_ready;
  loop.batch = [&](uint64_t contribution) -> absl::StatusOr<TrainBatch> {
    if (options.batch_made) {
      options.batch_made();
    }
    Data& data = batches[made ^= 1];
    data = MakeData(contribution);
    return TrainBatch{data.features.data(), data.labels.data(), kRows, 1.0f};
  };
  return TrainLoop::Create(std::move(loop)).value()->Run(options.next_sequence);
}

// Trains the same in one loop without servers: in each step it takes the mean
// of the gradients of contributions 0 to n - 1, from the same parameters. They
// are summed in that order.
std::vector<float> Reference(uint64_t contributions, uint32_t per_step) {
  Machine machine(1);
  machine.parameters = InitialParameters();
  EXPECT_TRUE(machine.network
                  ->Bind(*machine.layout, machine.parameters.data(),
                         machine.gradients.data())
                  .ok());
  for (uint64_t c = 0; c < contributions; c += per_step) {
    std::vector<float> sum(machine.parameters.size(), 0.0f);
    const uint64_t end = std::min(c + per_step, contributions);
    for (uint64_t m = c; m < end; ++m) {
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
      machine.parameters[i] -= kRate * (sum[i] / static_cast<float>(end - c));
    }
  }
  return machine.parameters;
}

constexpr char kSyncOf4[] = "update { sync { contributions: 4 } } ";

TEST(TrainLoopTest, SyncEndsWithTheSameBitsForAnyNumberOfWorkersAndShards) {
  constexpr uint64_t kContributions = 22;  // the last step is padded
  const std::vector<float> expected = Reference(kContributions, 4);
  for (const int shard_count : {1, 2, 3}) {
    for (const int workers : {1, 2, 4}) {
      StoreCluster shards(JobWith(absl::StrCat(
          kSyncOf4, "shard_count: ", shard_count, " slot_count: ", workers)));
      std::vector<std::thread> threads;
      for (int w = 0; w < workers; ++w) {
        threads.emplace_back([&, w] {
          FakeControl control;
          WorkerOptions options;
          options.slot = w;
          options.contributions = kContributions;
          EXPECT_TRUE(RunWorker(&shards, options, &control).ok());
        });
      }
      for (std::thread& thread : threads) {
        thread.join();
      }
      EXPECT_EQ(shards.Values(), expected)
          << shard_count << " shards, " << workers << " workers";
    }
  }
}

TEST(TrainLoopTest, AReplacementLeavesNoTraceInSync) {
  const std::vector<float> expected = Reference(24, 4);
  StoreCluster shards(JobWith(absl::StrCat(kSyncOf4, "slot_count: 2")));
  // Worker 1's third contribution reaches only some of the blocks, then its
  // connection is cut for good; that of its replacement is not.
  std::atomic<int> chunks{0};
  std::atomic<bool> cut{true};
  shards.transport.SetFate(
      [&](const std::string&, const GradientChunk& request) {
        return request.sender().slot() == 1 && cut && request.has_push() &&
                       request.push().sequence() == 5 && ++chunks > 4
                   ? Fate::kLostBefore
                   : Fate::kNormal;
      });
  WorkerOptions options;
  std::thread other([&] {
    FakeControl control;
    EXPECT_TRUE(RunWorker(&shards, options, &control).ok());
  });
  WorkerOptions dying = options;
  dying.slot = 1;
  dying.lost_after_ms = 300;
  FakeControl control;
  const absl::Status status = RunWorker(&shards, dying, &control);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_EQ(control.next_sequence, 5u);
  cut = false;
  dying.next_sequence = 5;
  dying.lost_after_ms = 5000;
  EXPECT_TRUE(RunWorker(&shards, dying, &control).ok());
  other.join();
  EXPECT_GT(shards.Sum(&PsStatus::chunks_duplicate), 0u);
  EXPECT_EQ(shards.Values(), expected);
}

TEST(TrainLoopTest, AsyncAloneEqualsPlainSgd) {
  const std::vector<float> expected = Reference(24, 1);
  StoreCluster shards(JobWith(""));
  FakeControl control;
  ASSERT_TRUE(RunWorker(&shards, {}, &control).ok());
  EXPECT_EQ(shards.Values(), expected);
  ASSERT_EQ(control.reports.size(), 24u);
  std::set<uint64_t> done;
  for (const ContributionReport& report : control.reports) {
    done.insert(report.contribution());
    EXPECT_EQ(report.rows(), kRows);
    EXPECT_GT(report.loss(), 0.0f);
  }
  EXPECT_EQ(done.size(), 24u);
}

// Taken a step early or in its turn, with a clip or without, every batch is
// that of its contribution.
TEST(TrainLoopTest, TakesBatchesAheadWhereTheyAreReady) {
  for (const bool clip : {false, true}) {
    std::vector<std::vector<float>> ends;
    for (const int every : {0, 1, 3}) {
      StoreCluster shards(JobWith(""));
      FakeControl control;
      WorkerOptions options;
      int made = 0;
      int asked = 0;
      int ready = 0;
      options.batch_made = [&] { ++made; };
      if (every > 0) {
        options.batch_ready = [&] {
          const bool now = ++asked % every == 0;
          ready += now ? 1 : 0;
          return now;
        };
      }
      if (clip) {
        options.clip.set_norm(0.5f);
      }
      ASSERT_TRUE(RunWorker(&shards, options, &control).ok());
      EXPECT_EQ(made, 24);
      // Once in a contribution, the last one has none behind it.
      EXPECT_EQ(asked, every > 0 ? 23 : 0);
      EXPECT_EQ(ready, every > 0 ? 23 / every : 0);
      ends.push_back(shards.Values());
    }
    EXPECT_EQ(ends[1], ends[0]);
    EXPECT_EQ(ends[2], ends[0]);
    if (!clip) {
      EXPECT_EQ(ends[0], Reference(24, 1));
    }
  }
}

// Every contribution's gradient is that of the version which its push names:
// replayed from those versions alone, training ends with the same bits. The
// model is one block, so that a version is one set of values.
TEST(TrainLoopTest, PrefetchComputesFromTheVersionThatItsPushNames) {
  constexpr uint64_t kContributions = 40;
  StoreCluster shards(JobWith("shard_count: 1 block_elements: 4096"));
  ASSERT_EQ(shards.layout->block_count(0), 1);
  std::vector<uint64_t> base_versions;
  shards.transport.SetFate(
      [&](const std::string&, const GradientChunk& request) {
        if (request.has_push()) {
          base_versions.push_back(request.push().base_version());
        }
        return Fate::kNormal;
      });
  FakeControl control;
  WorkerOptions options;
  options.contributions = kContributions;
  options.prefetch = true;
  ASSERT_TRUE(RunWorker(&shards, options, &control).ok());
  ASSERT_EQ(base_versions.size(), kContributions);

  Machine machine(1);
  std::vector<std::vector<float>> versions = {InitialParameters()};
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
      next[i] -= kRate * machine.gradients[i];
    }
    versions.push_back(std::move(next));
  }
  EXPECT_EQ(shards.Values(), versions.back());
}

// The norm of what one contribution pushes, whose gradient is clipped to 0.001.
double ClippedNorm(const std::vector<int>& left_out) {
  StoreCluster shards(JobWith(""));
  FakeControl control;
  WorkerOptions options;
  options.contributions = 1;
  options.clip.set_norm(0.001f);
  options.left_out = left_out;
  EXPECT_TRUE(RunWorker(&shards, options, &control).ok());
  const std::vector<float> before = InitialParameters();
  const std::vector<float> after = shards.Values();
  double sum = 0.0;
  for (size_t i = 0; i < before.size(); ++i) {
    const double change = (double{after[i]} - before[i]) / kRate;
    sum += change * change;
  }
  return std::sqrt(sum);
}

TEST(TrainLoopTest, ClipByNormPushesTheClippedGradient) {
  // Rounding of values up to 1 dominates: 2^-24 / 0.05 an element.
  EXPECT_NEAR(ClippedNorm({}), 0.001, 1e-4);
}

// Whoever trains a head on a frozen model means the head's gradient.
TEST(TrainLoopTest, ClipByNormLooksAtWhatIsPushedAlone) {
  std::vector<int> all_but_last(Machine(1).layout->variables().size() - 1);
  std::iota(all_but_last.begin(), all_but_last.end(), 0);
  EXPECT_NEAR(ClippedNorm(all_but_last), 0.001, 1e-4);
}

TEST(TrainLoopTest, AStopBeforeAContributionLeavesNothingOfIt) {
  StoreCluster shards(JobWith(""));
  FakeControl control;
  control.enter_max = 3;
  const absl::Status status = RunWorker(&shards, {}, &control);
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  for (const auto& store : shards.stores) {
    const SlotStatus slot = store->Hello().slot(0);
    EXPECT_EQ(slot.next_sequence_min(), 3u);
    EXPECT_EQ(slot.next_sequence_max(), 3u);
  }
}

// The clock moves only in the batch and while held.
TEST(TrainLoopTest, EveryContributionTellsWhereItsTimeWent) {
  for (const bool on_gpu : {false, true}) {
    FakeClock clock;
    StoreCluster shards(JobWith(""));
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
    ASSERT_TRUE(RunWorker(&shards, options, &control).ok());
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
  StoreCluster shards(JobWith(""));
  FakeControl control;
  WorkerOptions options;
  options.contributions = 3;
  options.clock = &clock;
  ASSERT_TRUE(RunWorker(&shards, options, &control).ok());
  ASSERT_EQ(control.phases.size(), 3u);
  const uint64_t variables = shards.layout->variables().size();
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
  StoreCluster shards(
      JobWith("update { bounded_staleness { bound: 1 } } shard_count: 1"));
  std::set<uint64_t> clocks;
  shards.transport.SetFate(
      [&](const std::string&, const GradientChunk& request) {
        if (request.has_want()) {
          clocks.insert(request.want().clock());
        }
        return Fate::kNormal;
      });
  FakeControl control;
  WorkerOptions options;
  options.contributions = 4;
  ASSERT_TRUE(RunWorker(&shards, options, &control).ok());
  EXPECT_EQ(clocks, (std::set<uint64_t>{0, 1, 2, 3}));
}

TEST(TrainLoopTest, HistogramsAreOfWhatAStepComputesFromAndPushes) {
  StoreCluster shards(JobWith("update { sync { contributions: 2 } }"));
  FakeControl control;
  WorkerOptions options;
  options.contributions = 24;
  options.histograms_every_steps = 5;
  ASSERT_TRUE(RunWorker(&shards, options, &control).ok());
  ASSERT_EQ(control.histograms.size(), 2u);
  for (const ContributionHistograms& histograms : control.histograms) {
    const uint64_t contribution = histograms.contribution();
    EXPECT_TRUE(contribution == 8 || contribution == 18) << contribution;
    // The same, by a loop without servers.
    Machine machine(1);
    machine.parameters = Reference(contribution, 2);
    const Data data = MakeData(contribution);
    ASSERT_TRUE(machine.network
                    ->Bind(*machine.layout, machine.parameters.data(),
                           machine.gradients.data())
                    .ok());
    ASSERT_TRUE(machine.network
                    ->TrainStep(data.features.data(), data.labels.data(), kRows,
                                MixKey(kSeed, contribution), {})
                    .ok());
    const auto& variables = machine.layout->variables();
    ASSERT_EQ(histograms.variable_size(), static_cast<int>(variables.size()));
    for (const VariableHistograms& of : histograms.variable()) {
      const auto v = static_cast<int>(of.variable());
      const auto part = [&](const std::vector<float>& flat) {
        return std::span(flat).subspan(
            machine.layout->flat_begin(v),
            static_cast<size_t>(variables[v].elements()));
      };
      EXPECT_EQ(of.values().SerializeAsString(),
                HistogramOf(part(machine.parameters)).SerializeAsString());
      EXPECT_EQ(of.gradients().SerializeAsString(),
                HistogramOf(part(machine.gradients)).SerializeAsString());
    }
  }
}

TEST(TrainLoopTest, HistogramsWithPrefetchAndClippedGradients) {
  StoreCluster shards(JobWith(""));
  FakeControl control;
  WorkerOptions options;
  options.contributions = 9;
  options.prefetch = true;
  options.clip.set_value(1e-4f);
  options.histograms_every_steps = 4;
  ASSERT_TRUE(RunWorker(&shards, options, &control).ok());
  ASSERT_EQ(control.histograms.size(), 2u);
  EXPECT_EQ(control.histograms[1].contribution(), 7u);
  for (const VariableHistograms& of : control.histograms[1].variable()) {
    EXPECT_GT(of.values().count_size(), 0);
    EXPECT_GE(of.gradients().min(), -1e-4f);  // as they are pushed
    EXPECT_LE(of.gradients().max(), 1e-4f);
  }
  options.histograms_every_steps = 0;
  FakeControl none;
  ASSERT_TRUE(RunWorker(&shards, options, &none).ok());
  EXPECT_TRUE(none.histograms.empty());
}

}  // namespace
}  // namespace weir
