// The command line on a finished run: evaluate, predict, checkpoint, config.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>

#include "tests/integration/harness.h"

namespace weir {
namespace {

constexpr char kJob[] = R"(
name: "cli" seed: 2
model {
  layer { name: "flat" flatten {} }
  layer { name: "logits" dense { units: 10 } }
  loss { softmax_cross_entropy {} }
}
data { train { digits { count: 1000 } } }
train {
  batch_size: 20 epochs: 40 log_every_steps: 5 histograms_every_steps: 900
}
optimizer { adam {} }
schedule { learning_rate: 0.01 }
update { bounded_staleness { bound: 1 } }
checkpoint { every_steps: 500 keep: 2 }
evaluation { source { digits { count: 300 stream: 1 } } }
)";

struct FinishedRun {
  std::string job, dir;
  TrainRun run;
};

// One training run for all tests of this file.
const FinishedRun& Finished() {
  static const FinishedRun finished = [] {
    FinishedRun f;
    f.job = FreshDir("cli_job") + "/job.textproto";
    WriteFile(f.job, kJob);
    f.dir = FreshDir("cli");
    f.run = RunTrain(f.dir, {f.job, "--ps", "2", "--workers", "2"});
    EXPECT_EQ(f.run.exit_code, 0) << f.run.output;
    return f;
  }();
  return finished;
}

TEST(CliTest, TheSummaryHasTheRunsFigures) {
  const nlohmann::json& summary = Finished().run.summary;
  ASSERT_TRUE(summary.is_object());
  EXPECT_EQ(summary["status"], "done");
  EXPECT_EQ(summary["mode"], "bounded_staleness");
  EXPECT_EQ(summary["steps"], 2000);
  EXPECT_EQ(summary["examples"], 40000);
  EXPECT_EQ(summary["checkpoint"], "ckpt-2000");
  EXPECT_EQ(summary["model_sha256"].get<std::string>().size(), 64u);
  for (const auto& task : summary["tasks"]) {
    EXPECT_EQ(task["exit_code"], 0) << task;
  }
}

TEST(CliTest, TheSummarySaysWhereTheTimeWent) {
  const FinishedRun& f = Finished();
  ASSERT_TRUE(f.run.summary.is_object());
  const nlohmann::json& phases = f.run.summary["phases"];
  ASSERT_TRUE(phases.is_object());
  EXPECT_EQ(phases["contributions"], 2000);
  double ms = 0;
  double share = 0;
  for (const std::string part :
       {"data_wait", "pull_wait", "compute", "push_wait"}) {
    ASSERT_TRUE(phases.contains(part + "_ms")) << phases;
    EXPECT_GE(phases[part + "_share"], 0.0) << part;
    EXPECT_LE(phases[part + "_share"], 1.0) << part;
    ms += phases[part + "_ms"].get<double>();
    share += phases[part + "_share"].get<double>();
  }
  EXPECT_GT(phases["compute_ms"], 0.0);
  // On a CPU these parts are the whole step, but for rounding to 9 digits.
  EXPECT_NEAR(ms, phases["step_ms"].get<double>(), 1e-6 * ms);
  EXPECT_NEAR(share, 1.0, 1e-6);
  // There are two workers, each busy for at most the whole run.
  EXPECT_LE(phases["step_ms"].get<double>() * 2000,
            2000 * f.run.summary["wall_seconds"].get<double>());
  EXPECT_FALSE(phases.contains("gpu_busy_share"));
  EXPECT_NE(f.run.output.find("  largest wait   "), std::string::npos)
      << f.run.output;
  const auto lines = ReadJsonLines(f.dir + "/train.jsonl");
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back()["phases"]["contributions"], 2000);
}

TEST(CliTest, TheBoardHasHistograms) {
  std::string board;
  for (const auto& file : std::filesystem::directory_iterator(
           Finished().dir + "/tensorboard/train")) {
    board += ReadFile(file.path());
  }
  for (const std::string tag :
       {"values/logits/kernel", "gradients/logits/bias"}) {
    int count = 0;
    for (size_t at = board.find(tag); at != std::string::npos;
         at = board.find(tag, at + 1)) {
      ++count;
    }
    EXPECT_EQ(count, 2) << tag;  // steps 900 and 1800
  }
}

TEST(CliTest, ResumingADoneJobSaysSoAndStartsNothing) {
  const FinishedRun& f = Finished();
  const std::string log = ReadFile(f.dir + "/logs/worker-0.log");
  const TrainRun again = RunTrain(
      f.dir, {f.job, "--ps", "2", "--workers", "2", "--resume"}, {}, 20);
  EXPECT_EQ(again.exit_code, 0) << again.output;
  EXPECT_NE(again.output.find("the job is done already"), std::string::npos)
      << again.output;
  EXPECT_EQ(ReadFile(f.dir + "/logs/worker-0.log"), log);
}

// Regular checkpoints all the time, an evaluator that follows them, and a stop
// somewhere between.
TEST(CliTest, AStopLosesNothingAndResumeKeepsTheShape) {
  const std::string dir = FreshDir("cli_stop");
  std::vector<std::string> arguments = {Finished().job,
                                        "--ps",
                                        "2",
                                        "--workers",
                                        "2",
                                        "--set",
                                        "train.steps=60000",
                                        "--set",
                                        "checkpoint.every_steps=100",
                                        "--set",
                                        "update={async {}}"};
  for (size_t lines = 1; lines <= 3; ++lines) {
    const size_t before = ReadJsonLines(dir + "/train.jsonl").size();
    Process process = StartTrain(dir, arguments);
    ASSERT_TRUE(WaitUntil(60, [&] {
      return ReadJsonLines(dir + "/train.jsonl").size() > before + lines;
    }));
    process.Signal(SIGINT);
    const TrainRun run = FinishTrain(&process, dir);
    EXPECT_EQ(run.exit_code, 130) << run.output;
    ASSERT_TRUE(run.summary.is_object()) << run.output;
    EXPECT_LT(run.summary["steps"], 60000);
    EXPECT_EQ(run.summary["checkpoint"],
              "ckpt-" + std::to_string(run.summary["steps"].get<int>()));
    EXPECT_EQ(run.summary["tasks"].size(), 5u);
    if (lines == 1) {
      arguments.erase(arguments.begin() + 1, arguments.begin() + 5);
      arguments.push_back("--resume");
    }
  }
}

TEST(CliTest, ResumeOfNoRunIsWrongUsage) {
  const CommandResult result =
      RunWeir({"train", Finished().job, "--resume", "--workdir",
               FreshDir("cli_none") + "/typo"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.output.find("--resume: there is no run in"),
            std::string::npos)
      << result.output;
}

TEST(CliTest, AJobFileThatIsNotThereIsWrongUsage) {
  const CommandResult missing = RunWeir({"train", "/nowhere/job.textproto"});
  EXPECT_EQ(missing.exit_code, 2) << missing.output;
  EXPECT_NE(missing.output.find("/nowhere/job.textproto"), std::string::npos)
      << missing.output;
}

TEST(CliTest, EvaluateAgreesWithTheEvaluator) {
  const FinishedRun& f = Finished();
  const auto line = ReadJsonLines(f.dir + "/eval.jsonl").back();
  const CommandResult result = RunWeir(
      {"evaluate", f.job, "--checkpoint", f.dir + "/checkpoints/ckpt-2000"});
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json["accuracy"], line["accuracy"]);
  EXPECT_EQ(json["loss"], line["loss"]);
  EXPECT_EQ(json["examples"], 300);
}

TEST(CliTest, PredictWritesALineForEverySample) {
  const FinishedRun& f = Finished();
  const std::string out = f.dir + "/predictions.jsonl";
  const CommandResult result =
      RunWeir({"predict", f.job, "--checkpoint",
               f.dir + "/checkpoints/ckpt-2000", "--out", out});
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const auto lines = ReadJsonLines(out);
  ASSERT_EQ(lines.size(), 300u);
  int correct = 0;
  double sum = 0;
  for (const auto& line : lines) {
    correct += line["label"] == line["prediction"] ? 1 : 0;
    for (const double p : line["probabilities"]) {
      sum += p;
    }
  }
  EXPECT_NEAR(sum, 300, 1e-6);
  EXPECT_DOUBLE_EQ(
      correct / 300.0,
      ReadJsonLines(f.dir + "/eval.jsonl").back()["accuracy"].get<double>());
}

TEST(CliTest, CheckpointsAreListedInspectedAndVerified) {
  const FinishedRun& f = Finished();
  const CommandResult list = RunWeir({"checkpoint", "list", f.dir});
  EXPECT_EQ(list.exit_code, 0) << list.output;
  EXPECT_NE(list.output.find("ckpt-2000"), std::string::npos) << list.output;
  // How many there are depends on the machine: a checkpoint that falls due
  // while the last one is written is left out.
  const auto entries =
      std::filesystem::directory_iterator(f.dir + "/checkpoints");
  const auto there =
      std::count_if(begin(entries), end(entries), [](const auto& entry) {
        return entry.path().filename().string().rfind("ckpt-", 0) == 0;
      });
  EXPECT_LE(there, 2);  // keep: 2
  EXPECT_EQ(std::count(list.output.begin(), list.output.end(), '\n'), there)
      << list.output;
  const std::string newest = f.dir + "/checkpoints/ckpt-2000";
  const CommandResult inspect = RunWeir({"checkpoint", "inspect", newest});
  EXPECT_NE(inspect.output.find("logits/kernel"), std::string::npos)
      << inspect.output;
  EXPECT_NE(inspect.output.find("[0, 2000) of 2000"), std::string::npos)
      << inspect.output;
  EXPECT_EQ(RunWeir({"checkpoint", "verify", newest}).exit_code, 0);
  // Flips one bit of each file, also of the manifest.
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(newest)) {
    const std::string whole = ReadFile(entry.path());
    std::string flipped = whole;
    flipped[flipped.size() / 2] =
        static_cast<char>(flipped[whole.size() / 2] ^ 4);
    WriteFile(entry.path(), flipped);
    const CommandResult verify = RunWeir({"checkpoint", "verify", newest});
    EXPECT_EQ(verify.exit_code, 4) << verify.output;
    EXPECT_NE(verify.output.find(entry.path()), std::string::npos)
        << verify.output;
    WriteFile(entry.path(), whole);
    ++files;
  }
  EXPECT_GE(files, 2);
  EXPECT_EQ(RunWeir({"checkpoint", "verify", newest}).exit_code, 0);
  const CommandResult missing =
      RunWeir({"checkpoint", "verify", f.dir + "/checkpoints/ckpt-7"});
  EXPECT_EQ(missing.exit_code, 3) << missing.output;
  EXPECT_NE(missing.output.find("ckpt-7"), std::string::npos);
}

TEST(CliTest, ConfigCheckPrintsTheClusterOrWhatIsWrong) {
  const CommandResult good = RunWeir(
      {"config", "check", "--job", Finished().job},
      {R"(TF_CONFIG={"cluster": {"ps": ["a:1", "b:2"], "worker": ["c:3"]},)"
       R"( "task": {"type": "worker", "index": "0"}})"});
  EXPECT_EQ(good.exit_code, 0) << good.output;
  EXPECT_NE(good.output.find("fingerprint"), std::string::npos) << good.output;
  const CommandResult bad = RunWeir(
      {"config", "check"},
      {R"(TF_CONFIG={"cluster": {"ps": ["a"]}, "task": {"type": "ps", "index": 0}})"});
  EXPECT_EQ(bad.exit_code, 2) << bad.output;
  EXPECT_NE(bad.output.find("port"), std::string::npos) << bad.output;
  EXPECT_EQ(std::count(bad.output.begin(), bad.output.end(), '\n'), 1)
      << bad.output;
}

}  // namespace
}  // namespace weir
