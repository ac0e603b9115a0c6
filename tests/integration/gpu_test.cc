// Whole jobs on the GPU's code path: the plug-in is the real CUDA backend, its
// device the emulator, which runs streams late and in an order of its own.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <ostream>
#include <sstream>

#include "tests/integration/harness.h"

namespace weir {
namespace {

using Strings = std::vector<std::string>;

constexpr double kAccuracyBar = 0.9;

constexpr char kMlp[] = R"(
name: "gpu_mlp" seed: 3
model {
  layer { name: "flat" flatten {} }
  layer { name: "hidden" dense { units: 24 } }
  layer { name: "relu" relu {} }
  layer { name: "logits" dense { units: 10 } }
  loss { softmax_cross_entropy {} }
}
data { train { digits { count: 2000 } } }
train { batch_size: 32 steps: 300 log_every_steps: 10 }
optimizer { adam {} }
schedule { learning_rate: 0.003 }
update { async {} }
evaluation { source { digits { count: 300 stream: 1 } } }
limits { block_elements: 1024 }
)";

constexpr char kConvNet[] = R"(
name: "gpu_convnet" seed: 3
model {
  layer { name: "conv" conv2d { filters: 4 kernel_size: 5 stride: 2 } }
  layer { name: "norm" batch_norm {} }
  layer { name: "relu" relu {} }
  layer { name: "pool" max_pool { size: 2 } }
  layer { name: "flat" flatten {} }
  layer { name: "drop" dropout { rate: 0.1 } }
  layer { name: "logits" dense { units: 10 } }
  loss { softmax_cross_entropy {} }
}
data { train { digits { count: 1000 } } }
train { batch_size: 16 steps: 100 log_every_steps: 10 }
optimizer { adam {} }
schedule { learning_rate: 0.01 }
update { sync { contributions: 1 } }
evaluation { source { digits { count: 200 stream: 1 } } }
limits { block_elements: 1024 }
)";

std::string JobFile(const std::string& name, const char* text) {
  const std::string path = FreshDir(name + "_job") + "/job.textproto";
  WriteFile(path, text);
  return path;
}

const std::string& MlpFile() {
  static const std::string path = JobFile("gpu_mlp", kMlp);
  return path;
}

std::string Plugin() {
  return Binary("tests/worker/compute/cuda/libweir_cuda_emulated.so");
}

Strings operator+(Strings a, const Strings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Strings OnGpu() { return {"--device", "cuda", "--device_plugin", Plugin()}; }

Strings Tasks(int ps, int workers) {
  return {"--ps", std::to_string(ps), "--workers", std::to_string(workers)};
}

Strings Seed(int seed) {
  return {"WEIR_EMULATOR_SEED=" + std::to_string(seed)};
}

std::string WorkerLog(const TrainRun& run, int worker = 0) {
  return ReadFile(run.workdir + "/logs/worker-" + std::to_string(worker) +
                  ".log");
}

int CountLines(const std::string& text, const std::string& word) {
  std::istringstream stream(text);
  int count = 0;
  for (std::string line; std::getline(stream, line);) {
    count += line.find(word) != std::string::npos ? 1 : 0;
  }
  return count;
}

void ExpectTrained(const TrainRun& run, double accuracy) {
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_GE(run.summary["final_metrics"]["accuracy"], accuracy) << run.output;
  EXPECT_EQ(Restarts(run), 0) << run.output;
}

void ExpectOnGpu(const TrainRun& run) {
  EXPECT_NE(WorkerLog(run).find("computing on cuda:0 (Weir emulator)"),
            std::string::npos)
      << WorkerLog(run);
}

// Returns the metrics that `weir evaluate` prints for a run's checkpoint.
nlohmann::json Evaluate(const TrainRun& run, int step,
                        const Strings& arguments) {
  const CommandResult result = RunWeir(
      Strings{"evaluate", MlpFile(), "--checkpoint",
              run.workdir + "/checkpoints/ckpt-" + std::to_string(step)} +
      arguments);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const size_t line = result.output.find("{\"checkpoint\"");
  return line == std::string::npos  // it stands behind the log's lines
             ? nlohmann::json::object()
             : nlohmann::json::parse(result.output.substr(line));
}

// ------------------------------------------------------------------ async

const TrainRun& MlpOnGpu() {
  static const TrainRun run =
      RunTrain(FreshDir("gpu_mlp"), Strings{MlpFile()} + OnGpu(), Seed(1));
  return run;
}

TEST(GpuTest, TrainsToTheAccuracyOfTheCpu) {
  const TrainRun cpu =
      RunTrain(FreshDir("gpu_mlp_on_cpu"), {MlpFile(), "--device", "cpu"});
  ExpectTrained(cpu, kAccuracyBar);
  EXPECT_FALSE(cpu.summary["phases"].contains("gpu_busy_share"));
  ExpectTrained(MlpOnGpu(), kAccuracyBar);
  ExpectOnGpu(MlpOnGpu());
  EXPECT_NE(ReadFile(MlpOnGpu().workdir + "/logs/evaluator-0.log")
                .find("computing on cuda:0"),
            std::string::npos);
  const nlohmann::json evaluated = Evaluate(MlpOnGpu(), 300, OnGpu());
  EXPECT_EQ(
      evaluated["accuracy"],
      ReadJsonLines(MlpOnGpu().workdir + "/eval.jsonl").back()["accuracy"])
      << evaluated;
}

TEST(GpuTest, TheSummarySaysHowBusyTheDeviceWas) {
  const TrainRun& run = MlpOnGpu();
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const nlohmann::json& phases = run.summary["phases"];
  ASSERT_TRUE(phases.contains("gpu_busy_share")) << phases;
  EXPECT_GT(phases["gpu_busy_share"], 0.0);
  EXPECT_LE(phases["gpu_busy_share"], 1.0);
  EXPECT_GT(phases["device_bytes_used"], 0);
  EXPECT_GE(phases["device_bytes_reserved"], phases["device_bytes_used"]);
  EXPECT_EQ(phases["contributions"], 300);
  EXPECT_EQ(CountLines(run.output, "  largest wait   "), 1) << run.output;
  EXPECT_EQ(CountLines(run.output, "  gpu busy       "), 1) << run.output;
}

TEST(GpuTest, Bf16TrainsToTheBarAndTheCpuAgreesOnItsCheckpoint) {
  const Strings precision = {"--set", "compute.precision=BF16"};
  const TrainRun run =
      RunTrain(FreshDir("gpu_bf16"), Strings{MlpFile()} + OnGpu() + precision);
  ExpectTrained(run, kAccuracyBar);
  ExpectOnGpu(run);
  // With one worker and one ps only the rounding differs.
  EXPECT_NE(run.summary["model_sha256"], MlpOnGpu().summary["model_sha256"]);
  const nlohmann::json on_cpu =
      Evaluate(run, 300, Strings{"--device", "cpu"} + precision);
  const auto on_gpu = ReadJsonLines(run.workdir + "/eval.jsonl").back();
  EXPECT_NEAR(on_cpu["accuracy"], on_gpu["accuracy"], 0.01);
  EXPECT_NEAR(on_cpu["loss"], on_gpu["loss"],
              0.01 * on_gpu["loss"].get<double>());
}

// ------------------------------------------------------------------- sync

Strings SyncArguments(int ps, int workers) {
  return Strings{MlpFile(), "--noevaluator",
                 "--set",   "update={sync { contributions: 4 }}",
                 "--set",   "train.steps=300",
                 "--set",   "train.log_every_steps=1"} +
         OnGpu() + Tasks(ps, workers);
}

// The bits of one undisturbed run, computed once.
const std::string& SyncBits() {
  static const std::string sha = [] {
    const TrainRun run =
        RunTrain(FreshDir("gpu_sync"), SyncArguments(2, 2), Seed(1));
    EXPECT_EQ(run.exit_code, 0) << run.output;
    ExpectOnGpu(run);
    return run.exit_code == 0 ? run.summary.value("model_sha256", "") : "";
  }();
  return sha;
}

TEST(GpuTest, SyncGivesTheSameBitsWhateverTheStreamsAndTheWorkers) {
  ASSERT_EQ(SyncBits().size(), 64u);
  for (const int workers : {2, 1}) {
    SCOPED_TRACE(std::to_string(workers) + " workers");
    const TrainRun run = RunTrain(FreshDir("gpu_sync_again"),
                                  SyncArguments(2, workers), Seed(7 + workers));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    EXPECT_EQ(run.summary["model_sha256"], SyncBits());
  }
}

TEST(GpuTest, SyncGivesTheSameBitsWhenWorkersAreKilled) {
  ASSERT_EQ(SyncBits().size(), 64u);
  const std::string dir = FreshDir("gpu_killed");
  Process process = StartTrain(dir, SyncArguments(2, 2), Seed(3));
  for (const size_t victim : {1, 0}) {
    const size_t lines = ReadJsonLines(dir + "/train.jsonl").size();
    std::vector<pid_t> workers;
    ASSERT_TRUE(WaitUntil(60, [&] {
      workers = FindProcesses({"worker/weir_worker", dir});
      return workers.size() == 2 &&
             ReadJsonLines(dir + "/train.jsonl").size() >= lines + 10;
    })) << process.Log();
    std::sort(workers.begin(), workers.end());
    ASSERT_EQ(kill(workers[victim], SIGKILL), 0);
  }
  const TrainRun run = FinishTrain(&process, dir);
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_EQ(run.summary["model_sha256"], SyncBits());
  EXPECT_GE(Restarts(run), 2) << run.output;
}

TEST(GpuTest, AConvNetTrainsOverSharedMemoryAndOverGrpc) {
  const std::string job = JobFile("gpu_convnet", kConvNet);
  Strings shas;
  for (const char* transport : {"shm", "grpc"}) {
    SCOPED_TRACE(transport);
    const TrainRun run =
        RunTrain(FreshDir("gpu_convnet"),
                 Strings{job, "--transport", transport} + OnGpu(), Seed(5));
    ExpectTrained(run, 0.8);
    ExpectOnGpu(run);
    shas.push_back(run.summary.value("model_sha256", ""));
  }
  EXPECT_EQ(shas[0], shas[1]);
}

// -------------------------------------------------------------- bad input

struct BadDevice {
  std::string name;
  Strings arguments;
  Strings environment;
  Strings says;  // all in one line
  int exit_code;
};

std::ostream& operator<<(std::ostream& stream, const BadDevice& bad) {
  return stream << bad.name;
}

class BadDeviceTest : public testing::TestWithParam<BadDevice> {};

TEST_P(BadDeviceTest, EndsWithOneLineAndNoRestart) {
  const BadDevice& bad = GetParam();
  const TrainRun run = RunTrain(
      FreshDir("gpu_bad_" + bad.name),
      Strings{MlpFile(), "--noevaluator"} + bad.arguments, bad.environment, 60);
  EXPECT_EQ(run.exit_code, bad.exit_code) << run.output;
  // This is what the terminal shows; `output` has the logs, too.
  const std::string shown = ReadFile(run.workdir + ".train.log");
  std::istringstream stream(shown);
  int count = 0;
  for (std::string line; std::getline(stream, line);) {
    count += std::all_of(bad.says.begin(), bad.says.end(),
                         [&line](const std::string& word) {
                           return line.find(word) != std::string::npos;
                         })
                 ? 1
                 : 0;
  }
  EXPECT_EQ(count, 1) << shown;
  if (run.summary.is_object()) {
    EXPECT_EQ(Restarts(run), 0) << run.output;
    EXPECT_EQ(run.summary["status"], "failed");
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BadDeviceTest,
    testing::Values(
        BadDevice{"no_such_device",
                  {"--device", "cuda:7", "--device_plugin", Plugin()},
                  {"WEIR_EMULATOR_DEVICES=2"},
                  {"there is no cuda:7", "2 devices"},
                  3},
        BadDevice{"no_devices",
                  OnGpu(),
                  {"WEIR_EMULATOR_DEVICES=0"},
                  {"driver sees no device"},
                  3},
        BadDevice{"no_driver",
                  OnGpu(),
                  {"WEIR_EMULATOR_DRIVER_MISSING=1"},
                  {"cudaGetDeviceCount", "driver"},
                  3},
        BadDevice{"abacus",
                  {"--device", "abacus"},
                  {},
                  {"'abacus'", "auto, cpu, cuda or cuda:N"},
                  2},
        BadDevice{"no_plugin",
                  {"--device", "cuda", "--device_plugin", "/nowhere/plug.so"},
                  {},
                  {"/nowhere/plug.so"},
                  3},
        BadDevice{"another_abi",
                  {"--device", "cuda", "--device_plugin",
                   Binary("tests/worker/compute/plugin_of_another_abi.so")},
                  {},
                  {"plugin_of_another_abi.so", "another version of Weir"},
                  2},
        // The memory is too small for what the backend needs for itself.
        BadDevice{"tiny_device",
                  OnGpu(),
                  {"WEIR_EMULATOR_BYTES=1000000"},
                  {"out of memory on cuda:0", "bytes asked", "free"},
                  3},
        // The memory lasts until the first step, when a job is under way.
        BadDevice{"large_batch",
                  OnGpu() + Strings{"--set", "train.batch_size=2000"},
                  {"WEIR_EMULATOR_BYTES=40500000"},
                  {"out of memory on cuda:0", "train.batch_size"},
                  3}),
    [](const auto& info) { return info.param.name; });

TEST(GpuTest, AutoSaysInOneLineWhyItComputesOnTheCpu) {
  const std::string plugin =
      Binary("tests/worker/compute/plugin_of_another_abi.so");
  const TrainRun run = RunTrain(FreshDir("gpu_auto"),
                                {MlpFile(), "--noevaluator", "--set",
                                 "train.steps=20", "--device_plugin", plugin});
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_EQ(CountLines(WorkerLog(run), "computing on the CPU: " + plugin), 1)
      << WorkerLog(run);
  EXPECT_EQ(CountLines(WorkerLog(run), "computing on"), 1) << WorkerLog(run);
}

TEST(GpuTest, OneWorkerTrainsOnTwoDevices) {
  const TrainRun run =
      RunTrain(FreshDir("gpu_two_devices"),
               {MlpFile(), "--device", "cuda:0,1", "--device_plugin", Plugin()},
               {"WEIR_EMULATOR_DEVICES=2"});
  ExpectTrained(run, kAccuracyBar);
}

TEST(GpuTest, AutoTakesTheDeviceAndSpreadsWorkers) {
  const TrainRun run =
      RunTrain(FreshDir("gpu_spread"),
               Strings{MlpFile(), "--noevaluator", "--set", "train.steps=20",
                       "--device_plugin", Plugin()} +
                   Tasks(1, 2),
               {"WEIR_EMULATOR_DEVICES=2"});
  ASSERT_EQ(run.exit_code, 0) << run.output;
  for (const int worker : {0, 1}) {
    EXPECT_EQ(CountLines(WorkerLog(run, worker),
                         "computing on cuda:" + std::to_string(worker)),
              1)
        << WorkerLog(run, worker);
  }
}

}  // namespace
}  // namespace weir
