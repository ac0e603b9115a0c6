// Measures what parameters on a ps cost a worker: one worker with one ps
// process on the same host, against the same loop with the parameters in its
// own memory.
//
//   overhead_bench [--rounds N] [--json FILE]
//
// Both loops run in one process, in turns of kTurn steps, with one network, one
// batch and SGD; the figure is the ratio of the median step times. The batch is
// chosen so that a local step takes at least 20 ms.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/support/bench_main.h"
#include "bench/support/cluster.h"
#include "client/cc/job/worker_session.h"
#include "client/cc/transport/shm_transport.h"
#include "common/base/clock.h"
#include "common/base/malloc_settings.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "common/math/random.h"
#include "deploy/launcher/child_process.h"
#include "google/protobuf/text_format.h"
#include "nlohmann/json.hpp"
#include "proto/wire/layout_io.h"
#include "worker/compute/factory.h"
#include "worker/model/replicas.h"
#include "worker/train/train_loop.h"

namespace weir {
namespace {

constexpr int64_t kFeatures = 784;
constexpr int kTurn = 10;  // steps; the first of each turn is not counted
constexpr double kStepMsMin = 20.0;
constexpr float kRate = 1e-3f;

struct BenchModel {
  const char* name;
  std::vector<int64_t> sample_shape;
  int64_t rows_step;  // the batch is a multiple
  const char* text;
};

// The convolutional network of examples/mnist_convnet.textproto, and a dense
// one with few operations per parameter, half of them in the first layer: the
// hard case, as its gradient is ready last and its values are needed first.
const BenchModel kModels[] = {
    {"convnet", {1, 28, 28}, 16, R"(
layer { name: "conv1" conv2d { filters: 32 kernel_size: 3 padding: 1 } }
layer { name: "relu1" relu {} } layer { name: "pool1" max_pool { size: 2 } }
layer { name: "conv2" conv2d { filters: 64 kernel_size: 3 padding: 1 } }
layer { name: "relu2" relu {} } layer { name: "pool2" max_pool { size: 2 } }
layer { name: "flat" flatten {} }
layer { name: "hidden" dense { units: 128 } } layer { name: "relu3" relu {} }
layer { name: "logits" dense { units: 10 } }
loss { softmax_cross_entropy {} })"},
    {"dense", {784}, 64, R"(
layer { name: "h1" dense { units: 1024 } } layer { name: "r1" relu {} }
layer { name: "h2" dense { units: 1024 } } layer { name: "r2" relu {} }
layer { name: "logits" dense { units: 10 } }
loss { softmax_cross_entropy {} })"},
};

double Ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0.0 : values[values.size() / 2];
}

// A network with its own buffers and one batch.
struct Machine {
  // Gradients lie where `transport` wants them.
  static absl::StatusOr<std::unique_ptr<Machine>> Create(
      const BenchModel& bench, Transport* transport) {
    auto machine = std::make_unique<Machine>();
    WEIR_ASSIGN_OR_RETURN(machine->backend, CreateBackend({}));
    Model model;
    if (!google::protobuf::TextFormat::ParseFromString(bench.text, &model)) {
      return absl::InternalError("the model does not parse");
    }
    WEIR_ASSIGN_OR_RETURN(machine->network,
                          Replicas::Create(model, bench.sample_shape,
                                           {machine->backend.get()}, {}));
    WEIR_ASSIGN_OR_RETURN(
        Layout layout, Layout::Create(machine->network->network().variables(),
                                      1, Layout::kDefaultBlockElements));
    machine->layout = std::make_unique<Layout>(std::move(layout));
    machine->parameters.resize(machine->layout->flat_elements());
    machine->gradients = transport->NewBuffer(
        static_cast<size_t>(machine->layout->flat_elements()));
    RandomStream random(1);
    for (float& value : machine->parameters) {
      value = random.NextFloat(-0.03f, 0.03f);
    }
    WEIR_RETURN_IF_ERROR(machine->network->Bind(*machine->layout,
                                                machine->parameters.data(),
                                                machine->gradients.get()));
    return machine;
  }

  void MakeBatch(int64_t count) {
    rows = count;
    RandomStream random(2);
    features.resize(rows * kFeatures);
    labels.resize(rows);
    for (float& value : features) {
      value = random.NextFloat();
    }
    for (float& label : labels) {
      label = static_cast<float>(random.NextBelow(10));
    }
  }

  // One step with the parameters here, in ms.
  absl::StatusOr<double> LocalStep() {
    const int64_t begin = Clock::Real()->NowNs();
    WEIR_RETURN_IF_ERROR(
        network->TrainStep(features.data(), labels.data(), rows, 1, {})
            .status());
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i] -= kRate * gradients.get()[i];
    }
    return Ms(Clock::Real()->NowNs() - begin);
  }

  std::unique_ptr<Backend> backend;
  std::unique_ptr<Replicas> network;
  std::unique_ptr<Layout> layout;
  std::vector<float> parameters;
  std::shared_ptr<float> gradients;
  std::vector<float> features;
  std::vector<float> labels;
  int64_t rows = 0;
};

class FreeRun : public JobControl {
 public:
  bool EnterContribution() override { return true; }
  void LeaveContribution(uint64_t, const ContributionReport&,
                         const ContributionResult&) override {}
  void AddPhases(const Phases&) override {}
  void AddHistograms(ContributionHistograms) override {}
  void OutOfWork() override {}
};

// What the machine's variables are on a ps.
Declaration DeclarationOf(const Machine& machine) {
  Declaration declaration;
  declaration.set_job("bench");
  declaration.set_history(1);
  declaration.set_shard_count(1);
  declaration.set_block_elements(Layout::kDefaultBlockElements);
  for (const VariableSpec& variable : machine.network->network().variables()) {
    *declaration.add_variable() = VariableToProto(variable);
  }
  Group* const group = declaration.add_group();
  group->mutable_optimizer()->mutable_sgd();
  group->mutable_schedule()->set_learning_rate(kRate);
  declaration.mutable_update()->mutable_async();
  declaration.set_slot_count(1);
  declaration.set_out_of_order_bytes(1 << 20);
  return declaration;
}

struct Times {
  std::vector<double> local_ms;
  std::vector<double> ps_ms;
  double wait_ms = 0.0;  // mean of what the train loop waited in a step
};

// Steps of both kinds in turns. The local turns run where the train loop asks
// for its next batch: nothing of it is under way then but the next values.
absl::StatusOr<Times> Measure(Machine* local, Machine* remote,
                              Transport* transport, int rounds) {
  WEIR_ASSIGN_OR_RETURN(const int port, FreePort());
  const std::vector<std::string> addresses = {absl::StrCat("127.0.0.1:", port)};
  const Placement here = [](int, std::vector<std::string> argv) {
    return argv;
  };
  WEIR_ASSIGN_OR_RETURN(const auto ps, StartPs(addresses, here, "/dev/null"));
  WEIR_ASSIGN_OR_RETURN(const Sender sender,
                        JoinJob(transport, addresses, DeclarationOf(*remote),
                                /*slot=*/0, /*first=*/true));
  Grant grant;
  *grant.mutable_sender() = sender;
  grant.set_slot_count(1);
  grant.set_contribution_count(static_cast<uint64_t>(rounds) * kTurn);
  WEIR_ASSIGN_OR_RETURN(const WorkList work, WorkList::Create(grant));
  WorkerSession::Options session_options;
  session_options.transport = transport;
  session_options.addresses = addresses;
  session_options.layout = remote->layout.get();
  session_options.parameters = remote->parameters.data();
  session_options.gradients = remote->gradients.get();
  WEIR_ASSIGN_OR_RETURN(const auto session,
                        WorkerSession::Create(std::move(session_options)));
  Times times;
  FreeRun control;
  int64_t begin = 0;
  TrainLoop::Options options;
  options.network = remote->network.get();
  options.session = session.get();
  options.control = &control;
  options.work = &work;
  options.layout = remote->layout.get();
  options.gradients = remote->gradients.get();
  options.batch = [&](uint64_t step) -> absl::StatusOr<TrainBatch> {
    if (step % kTurn >= 2) {
      times.ps_ms.push_back(Ms(Clock::Real()->NowNs() - begin));
    } else if (step % kTurn == 0) {
      for (int i = 0; i < kTurn; ++i) {
        WEIR_ASSIGN_OR_RETURN(const double ms, local->LocalStep());
        if (i > 0) {
          times.local_ms.push_back(ms);
        }
      }
    }
    begin = Clock::Real()->NowNs();
    return TrainBatch{remote->features.data(), remote->labels.data(),
                      remote->rows, 1.0f};
  };
  WEIR_ASSIGN_OR_RETURN(const auto loop, TrainLoop::Create(std::move(options)));
  WEIR_RETURN_IF_ERROR(loop->Run(0));
  times.wait_ms = Ms(session->counters().wait_ns) / (rounds * kTurn);
  return times;
}

absl::StatusOr<nlohmann::json> RunModel(const BenchModel& bench,
                                        const std::string& choice, int rounds) {
  WEIR_ASSIGN_OR_RETURN(const TransportChoice parsed,
                        ParseTransportChoice(choice));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Transport> transport,
                        BenchTransport(parsed));
  WEIR_ASSIGN_OR_RETURN(const auto local,
                        Machine::Create(bench, transport.get()));
  WEIR_ASSIGN_OR_RETURN(const auto remote,
                        Machine::Create(bench, transport.get()));
  int64_t rows = 0;
  for (double ms = 0.0; ms < kStepMsMin * 1.1;) {
    rows += bench.rows_step;
    local->MakeBatch(rows);
    // The fastest, so that a busy moment does not pass for a large batch.
    ms = 1e9;
    for (int i = 0; i < 5; ++i) {
      WEIR_ASSIGN_OR_RETURN(const double step_ms, local->LocalStep());
      ms = std::min(ms, step_ms);
    }
  }
  remote->MakeBatch(rows);
  WEIR_ASSIGN_OR_RETURN(const Times times, Measure(local.get(), remote.get(),
                                                   transport.get(), rounds));
  const double local_ms = Median(times.local_ms);
  const double ps_ms = Median(times.ps_ms);
  std::printf(
      "overhead %-8s %-4s %8lld parameters, batch %4lld: %6.2f ms alone, %6.2f "
      "ms "
      "with a ps, of it %.2f ms of waiting, ratio %.3f\n",
      bench.name, choice.c_str(),
      static_cast<long long>(local->layout->flat_elements()),
      static_cast<long long>(rows), local_ms, ps_ms, times.wait_ms,
      ps_ms / local_ms);
  std::fflush(stdout);
  return nlohmann::json{{"model", bench.name},
                        {"transport", choice},
                        {"parameters", local->layout->flat_elements()},
                        {"batch", rows},
                        {"steps", times.ps_ms.size()},
                        {"local_ms", local_ms},
                        {"ps_ms", ps_ms},
                        {"wait_ms", times.wait_ms},
                        {"ratio", ps_ms / local_ms}};
}

absl::Status Run(const std::vector<std::string>& transports, int rounds,
                 const std::string& json_path) {
  nlohmann::json results = nlohmann::json::array();
  for (const BenchModel& bench : kModels) {
    for (const std::string& transport : transports) {
      WEIR_ASSIGN_OR_RETURN(nlohmann::json result,
                            RunModel(bench, transport, rounds));
      results.push_back(std::move(result));
    }
  }
  std::printf("the bound is 1.05\n");
  if (json_path.empty()) {
    return absl::OkStatus();
  }
  const nlohmann::json all = {
      {"bench", "overhead"}, {"bound", 1.05}, {"results", results}};
  return Files::Real()->WriteAtomically(json_path, all.dump(2) + "\n");
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::SetMallocForBulk();
  int rounds = 12;
  std::string json;
  std::vector<std::string> transports = {"shm", "grpc"};
  CLI::App app("What parameters on a ps cost a worker.");
  app.add_option("--rounds", rounds, "turns of 10 steps of each kind")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--transport", transports, "shm, grpc or both")
      ->check(CLI::IsMember({"shm", "grpc"}));
  app.add_option("--json", json, "write the result here");
  return weir::BenchMain(&app, argc, argv,
                         [&] { return weir::Run(transports, rounds, json); });
}
