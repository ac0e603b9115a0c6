// How much of the exchange a sync step hides behind its compute, where the
// network needs as long as the compute.
//
//   weir bench overlap [--json FILE] [--ps 1,4] [--turns 4] [--accelerator]
//
// One worker and P ps, each on a host of its own (bench/support/test_hosts.h),
// train 16 equal dense layers in sync mode. The compute of a step is measured
// first; then the links are shaped so that (bytes up + bytes down) / link =
// compute, with link = the goodput that iperf3 finds. The figure is the median
// step time over the median compute time, both taken in turns in one process.
// A step that hides nothing has 2. The links allow a little over 1 at best: the
// first layer's gradient is the last to be ready and its values are the first
// to be needed, so two sixteenths of half a compute cannot be hidden. Where the
// network's time has drifted from the compute's by more than a tenth in every
// attempt, there is no figure: the machine is not quiet.
// With --accelerator layers sleep in place of computing, as if another device
// did that, and the cores work for the exchange alone. This is also the way to
// measure on a machine that is not idle.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/support/bench_main.h"
#include "bench/support/cluster.h"
#include "bench/support/test_hosts.h"
#include "bench/support/timing.h"
#include "client/cc/job/worker_session.h"
#include "client/cc/parameters/parameter_client.h"
#include "client/cc/transport/shm_transport.h"
#include "common/base/malloc_settings.h"
#include "common/base/status.h"
#include "common/math/random.h"
#include "nlohmann/json.hpp"
#include "proto/wire/layout_io.h"
#include "worker/compute/factory.h"
#include "worker/model/replicas.h"
#include "worker/train/train_loop.h"

namespace weir {
namespace {

constexpr int kLayers = 16;
constexpr double kTarget = 1.15;
// A turn has steps with the ps, then steps alone. The first ones of each do not
// count: the exchange of the one still runs when the other begins.
constexpr int kTurnSteps = 6;
constexpr int kLocalSteps = 4;
constexpr int kSkippedSteps = 2;
constexpr int kPort = 2222;
// The compute may drift by so much between the choice of the rate and the
// measurement; beyond it, all is measured again.
constexpr double kDriftMax = 0.1;
constexpr int kAttemptsMax = 3;
constexpr double kMeetSeconds = 120;
constexpr char kLogPath[] = "/tmp/weir_overlap_bench.log";

struct Flags {
  std::string json;
  std::vector<int> ps = {1, 4};
  int turns = 4;
  int width = 1024;
  double compute_ms = 1000;
  bool accelerator = false;
  std::string mode = "sync";  // the job's, where layers sleep
  // These are set in the worker's process only.
  std::string directory;
  std::vector<std::string> addresses;
};

// ------------------------------------------------------------------ the worker

class FreeRun : public JobControl {
 public:
  bool EnterContribution() override { return true; }
  void LeaveContribution(uint64_t, const ContributionReport&,
                         const ContributionResult&) override {}
  void AddPhases(const Phases&) override {}
  void AddHistograms(ContributionHistograms) override {}
  void OutOfWork() override {}
};

Model DenseModel(int width) {
  Model model;
  for (int i = 0; i < kLayers; ++i) {
    Layer* const layer = model.add_layer();
    layer->set_name(absl::StrCat("dense", i));
    layer->mutable_dense()->set_units(static_cast<uint32_t>(width));
  }
  model.mutable_loss()->mutable_mean_squared_error();
  return model;
}

class Worker {
 public:
  explicit Worker(const Flags& flags) : flags_(flags) {}

  absl::Status Run() {
    WEIR_RETURN_IF_ERROR(Build());
    double compute_ms = flags_.compute_ms;
    if (!flags_.accelerator) {
      WEIR_ASSIGN_OR_RETURN(compute_ms, ChooseRows());
    }
    WEIR_RETURN_IF_ERROR(
        Say(flags_.directory + "/compute",
            nlohmann::json{{"ms", compute_ms},
                           {"bytes", layout_->flat_elements() * 4},
                           {"rows", rows_}}
                .dump()));
    WEIR_RETURN_IF_ERROR(Hear(flags_.directory + "/go", kMeetSeconds).status());
    WEIR_RETURN_IF_ERROR(Train());
    return Say(
        flags_.directory + "/result",
        nlohmann::json{{"local_ms", local_ms_}, {"step_ms", step_ms_}}.dump());
  }

 private:
  absl::Status Build() {
    WEIR_ASSIGN_OR_RETURN(backend_, CreateBackend({}));
    WEIR_ASSIGN_OR_RETURN(
        network_, Replicas::Create(DenseModel(flags_.width), {flags_.width},
                                   {backend_.get()}, {}));
    declaration_.set_job("overlap");
    declaration_.set_history(1);
    declaration_.set_shard_count(
        static_cast<uint32_t>(flags_.addresses.size()));
    declaration_.set_block_elements(Layout::kDefaultBlockElements);
    for (const VariableSpec& variable : network_->network().variables()) {
      *declaration_.add_variable() = VariableToProto(variable);
    }
    Group* const group = declaration_.add_group();
    group->mutable_optimizer()->mutable_sgd();
    group->mutable_schedule()->set_learning_rate(1e-6);
    if (flags_.mode == "sync") {
      declaration_.mutable_update()->mutable_sync()->set_contributions(1);
    } else {
      declaration_.mutable_update()->mutable_async();
    }
    declaration_.set_slot_count(1);
    declaration_.set_out_of_order_bytes(256 << 20);
    WEIR_ASSIGN_OR_RETURN(Layout layout, LayoutFromDeclaration(declaration_));
    layout_ = std::make_unique<Layout>(std::move(layout));
    const auto elements = static_cast<size_t>(layout_->flat_elements());
    parameters_.resize(elements);
    gradients_.resize(elements);
    RandomStream random(1);
    for (float& value : parameters_) {
      value = random.NextFloat(-0.03f, 0.03f);
    }
    return network_->Bind(*layout_, parameters_.data(), gradients_.data());
  }

  // The batch that computes for about `compute_ms`; how long it does.
  absl::StatusOr<double> ChooseRows() {
    rows_ = 64;
    std::vector<double> times;
    for (const bool sized : {false, false, true}) {
      RandomStream random(2);
      features_.resize(static_cast<size_t>(rows_ * flags_.width));
      labels_.resize(features_.size());
      for (size_t i = 0; i < features_.size(); ++i) {
        features_[i] = random.NextFloat();
        labels_[i] = random.NextFloat();
      }
      times.clear();
      for (int i = 0; i < 6; ++i) {
        WEIR_ASSIGN_OR_RETURN(const double ms, LocalStep());
        times.push_back(ms);
      }
      times.erase(times.begin());  // allocates
      if (!sized) {
        rows_ = std::max<int64_t>(
            16, std::llround(static_cast<double>(rows_) * flags_.compute_ms /
                             Median(times) / 16) *
                    16);
      }
    }
    return Median(times);
  }

  // A layer's share of a step; backward takes twice as long as forward.
  void SleepForLayer(double passes) const {
    usleep(static_cast<useconds_t>(1e3 * flags_.compute_ms * passes / 3 /
                                   kLayers));
  }

  Want WantOf(uint64_t step) const {
    Want want;
    if (flags_.mode == "sync") {
      want.set_version(step);
    } else {
      want.set_latest(true);
    }
    return want;
  }

  // One step of layers that sleep; kernel and bias of layer i are variables
  // 2 i and 2 i + 1.
  absl::Status SleepingStep(ParameterClient* client, const Sender& sender,
                            uint64_t step) {
    for (int v = 0; v < 2 * kLayers; ++v) {
      WEIR_RETURN_IF_ERROR(client->WaitVariable(v));
      if (v % 2 == 1) {
        SleepForLayer(1);
      }
    }
    ContributionPush contribution;
    contribution.sender = sender;
    contribution.sequence = step;
    contribution.then = WantOf(step + 1);
    contribution.then_at_once = flags_.mode == "prefetch";
    WEIR_RETURN_IF_ERROR(client->BeginContribution(contribution));
    for (int v = 2 * kLayers - 1; v >= 0; --v) {
      if (v % 2 == 1) {
        SleepForLayer(2);
      }
      client->GradientReady(v);
    }
    WEIR_RETURN_IF_ERROR(client->FinishContribution());
    return client->WaitReceipts().status();
  }

  absl::Status TrainSleeping(ParameterClient* client, const Sender& sender) {
    WEIR_RETURN_IF_ERROR(client->StartPull(sender, WantOf(0)));
    WEIR_RETURN_IF_ERROR(client->WaitPull());
    for (int step = 0; step < flags_.turns * kTurnSteps; ++step) {
      const double begin = Now();
      WEIR_RETURN_IF_ERROR(
          SleepingStep(client, sender, static_cast<uint64_t>(step)));
      if (step >= kSkippedSteps) {
        step_ms_.push_back(1e3 * (Now() - begin));
      }
    }
    for (int step = 0; step < kLocalSteps; ++step) {
      const double begin = Now();
      for (int layer = 0; layer < kLayers; ++layer) {
        SleepForLayer(1);
        SleepForLayer(2);
      }
      local_ms_.push_back(1e3 * (Now() - begin));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> LocalStep() {
    const double begin = Now();
    WEIR_RETURN_IF_ERROR(
        network_->TrainStep(features_.data(), labels_.data(), rows_, 1, {})
            .status());
    return 1e3 * (Now() - begin);
  }

  absl::Status Train() {
    WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Transport> transport,
                          BenchTransport(TransportChoice::kGrpc));
    WEIR_ASSIGN_OR_RETURN(const Sender sender,
                          JoinJob(transport.get(), flags_.addresses,
                                  declaration_, 0, /*first=*/true));
    Grant grant;
    *grant.mutable_sender() = sender;
    grant.set_slot_count(1);
    grant.set_contributions_per_step(1);
    grant.set_contribution_count(
        static_cast<uint64_t>(flags_.turns * kTurnSteps));
    WEIR_ASSIGN_OR_RETURN(const WorkList work, WorkList::Create(grant));
    WorkerSession::Options session_options;
    session_options.transport = transport.get();
    session_options.addresses = flags_.addresses;
    session_options.layout = layout_.get();
    session_options.parameters = parameters_.data();
    session_options.gradients = gradients_.data();
    WEIR_ASSIGN_OR_RETURN(const auto session,
                          WorkerSession::Create(std::move(session_options)));
    ParameterClient* const client = session->blocks();
    if (flags_.accelerator) {
      return TrainSleeping(client, sender);
    }
    FreeRun control;
    TrainLoop::Options options;
    options.network = network_.get();
    options.session = session.get();
    options.control = &control;
    options.work = &work;
    options.layout = layout_.get();
    options.gradients = gradients_.data();
    double begin = 0;
    options.batch = [&](uint64_t step) -> absl::StatusOr<TrainBatch> {
      if (step > 0 && (step - 1) % kTurnSteps >= kSkippedSteps) {
        step_ms_.push_back(1e3 * (Now() - begin));
      }
      if (step % kTurnSteps == 0) {
        // Nothing may write to the parameters that are read here.
        WEIR_RETURN_IF_ERROR(client->WaitPull());
        for (int i = 0; i < kLocalSteps; ++i) {
          WEIR_ASSIGN_OR_RETURN(const double ms, LocalStep());
          if (i >= kSkippedSteps) {
            local_ms_.push_back(ms);
          }
        }
      }
      begin = Now();
      return TrainBatch{features_.data(), labels_.data(), rows_, 1.0f};
    };
    WEIR_ASSIGN_OR_RETURN(const auto loop,
                          TrainLoop::Create(std::move(options)));
    return loop->Run(0);
  }

  const Flags& flags_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Replicas> network_;
  Declaration declaration_;
  std::unique_ptr<Layout> layout_;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  std::vector<float> features_;
  std::vector<float> labels_;
  int64_t rows_ = 0;
  std::vector<double> local_ms_;
  std::vector<double> step_ms_;
};

// ------------------------------------------------------------------ the parent

std::vector<std::string> WorkerCommand(
    const Flags& flags, const std::string& directory,
    const std::vector<std::string>& addresses) {
  std::vector<std::string> argv = {OwnBinary(),
                                   "--worker",
                                   directory,
                                   "--addresses",
                                   absl::StrJoin(addresses, ","),
                                   "--turns",
                                   absl::StrCat(flags.turns),
                                   "--width",
                                   absl::StrCat(flags.width),
                                   "--compute_ms",
                                   absl::StrCat(flags.compute_ms)};
  if (flags.accelerator) {
    argv.insert(argv.end(), {"--accelerator", "--mode", flags.mode});
  }
  return argv;
}

absl::StatusOr<nlohmann::json> Measure(const Flags& flags, int ps_count) {
  WEIR_ASSIGN_OR_RETURN(const auto directory, RunDirectory::Create());
  // Host 0 is the worker's.
  WEIR_ASSIGN_OR_RETURN(const auto hosts, TestHosts::Create(1 + ps_count, 1e9));
  std::vector<std::string> addresses;
  for (int s = 0; s < ps_count; ++s) {
    addresses.push_back(absl::StrCat(hosts->address(1 + s), ":", kPort));
  }
  WEIR_ASSIGN_OR_RETURN(const auto ps,
                        StartPs(
                            addresses,
                            [&hosts](int s, std::vector<std::string> argv) {
                              return hosts->Command(1 + s, std::move(argv));
                            },
                            kLogPath));
  WEIR_ASSIGN_OR_RETURN(
      const auto worker,
      Child::Start(
          hosts->Command(0, WorkerCommand(flags, directory->path(), addresses)),
          kLogPath));
  WEIR_ASSIGN_OR_RETURN(const std::string said,
                        Hear(directory->path() + "/compute", kMeetSeconds));
  const auto compute = nlohmann::json::parse(said);
  const double ms = compute["ms"].get<double>();
  const double bytes = compute["bytes"].get<double>();
  const double needed = 2 * bytes / (1e-3 * ms);  // bytes of payload a second
  double rate = 8 * needed;
  WEIR_RETURN_IF_ERROR(hosts->SetRate(rate));
  WEIR_ASSIGN_OR_RETURN(const double first, hosts->Goodput(0, 1, 2));
  rate *= needed / first;  // what headers take
  WEIR_RETURN_IF_ERROR(hosts->SetRate(rate));
  WEIR_ASSIGN_OR_RETURN(const double up, hosts->Goodput(0, 1, 2));
  WEIR_ASSIGN_OR_RETURN(const double down, hosts->Goodput(1, 0, 2));
  std::fprintf(stderr,
               "P=%d: compute %.0f ms (batch %d), %.1f MB each way, links "
               "%.0f Mbit/s, iperf3 %.1f MB/s up, %.1f down\n",
               ps_count, ms, compute["rows"].get<int>(), 1e-6 * bytes,
               1e-6 * rate, 1e-6 * up, 1e-6 * down);
  WEIR_RETURN_IF_ERROR(Say(directory->path() + "/go", ""));
  const double steps = flags.turns * (kTurnSteps * 2.5 + kLocalSteps);
  WEIR_ASSIGN_OR_RETURN(
      const std::string text,
      Hear(directory->path() + "/result", kMeetSeconds + 2e-3 * ms * steps));
  const auto result = nlohmann::json::parse(text);
  const auto local_ms = result["local_ms"].get<std::vector<double>>();
  const auto step_ms = result["step_ms"].get<std::vector<double>>();
  return nlohmann::json{
      {"ps", ps_count},
      {"bytes_each_way", bytes},
      {"batch", compute["rows"]},
      {"rate_bit_per_s", rate},
      {"link_up_bytes_per_s", up},
      {"link_down_bytes_per_s", down},
      {"compute_ms", Median(local_ms)},
      {"compute_ms_all", local_ms},
      {"step_ms", Median(step_ms)},
      {"step_ms_all", step_ms},
      {"network_ms", 1e3 * (bytes / up + bytes / down)},
      {"ratio", Median(step_ms) / Median(local_ms)},
  };
}

absl::StatusOr<nlohmann::json> MeasureUntilItMatches(const Flags& flags,
                                                     int ps_count) {
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    WEIR_ASSIGN_OR_RETURN(nlohmann::json result, Measure(flags, ps_count));
    const double match =
        result["network_ms"].get<double>() / result["compute_ms"].get<double>();
    if (match > 1 - kDriftMax && match < 1 + kDriftMax) {
      return result;
    }
    std::fprintf(stderr, "P=%d: the network took %.2f of the compute, not 1\n",
                 ps_count, match);
  }
  return absl::UnavailableError(
      "the compute drifted in every attempt: the machine is not quiet; try "
      "again, or --accelerator");
}

absl::Status Run(const Flags& flags) {
  nlohmann::json results = nlohmann::json::array();
  std::printf("%2s %12s %12s %12s %8s %10s\n", "P", "compute ms", "network ms",
              "step ms", "ratio", "at most");
  for (const int ps_count : flags.ps) {
    WEIR_ASSIGN_OR_RETURN(nlohmann::json result,
                          MeasureUntilItMatches(flags, ps_count));
    std::printf("%2d %12.1f %12.1f %12.1f %8.3f %10.2f\n", ps_count,
                result["compute_ms"].get<double>(),
                result["network_ms"].get<double>(),
                result["step_ms"].get<double>(), result["ratio"].get<double>(),
                kTarget);
    std::fflush(stdout);
    results.push_back(std::move(result));
  }
  if (!flags.json.empty()) {
    return Say(flags.json, nlohmann::json{{"bench", "overlap"},
                                          {"at_most", kTarget},
                                          {"results", results}}
                               .dump(2));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::SetMallocForBulk();
  weir::Flags flags;
  CLI::App app("How much of the exchange a sync step hides");
  app.add_option("--json", flags.json, "write the results here too");
  app.add_option("--ps", flags.ps, "numbers of ps")
      ->delimiter(',')
      ->check(CLI::Range(1, 64));
  app.add_option("--turns", flags.turns, "of 6 steps with ps and 4 alone")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--width", flags.width, "of each of the 16 layers")
      ->check(CLI::Range(16, 8192))
      ->capture_default_str();
  app.add_option("--compute_ms", flags.compute_ms, "of one step, about")
      ->check(CLI::Range(1.0, 60000.0))
      ->capture_default_str();
  app.add_flag("--accelerator", flags.accelerator,
               "layers sleep in place of computing");
  app.add_option("--mode", flags.mode,
                 "with --accelerator: sync, async, or async with prefetch")
      ->check(CLI::IsMember({"sync", "async", "prefetch"}))
      ->capture_default_str();
  // A worker, started by the bench itself.
  app.add_option("--worker", flags.directory)->group("");
  app.add_option("--addresses", flags.addresses)->delimiter(',')->group("");
  return weir::BenchMain(&app, argc, argv, [&] {
    return flags.directory.empty() ? weir::Run(flags)
                                   : weir::Worker(flags).Run();
  });
}
