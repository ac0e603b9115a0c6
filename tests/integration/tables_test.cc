// Jobs with embedding tables, as processes: sync training ends with the same
// bits in every row for any number of ps and workers, with and without
// failures.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/integration/harness.h"

namespace weir {
namespace {

// A DLRM whose tables have optimizers of two kinds; every step touches other
// rows, on every shard.
constexpr char kJob[] = R"(
name: "tables" seed: 3
table {
  name: "ads" dim: 4 optimizer { adagrad {} } schedule { learning_rate: 0.05 }
}
table {
  name: "users" dim: 4 optimizer { adam {} } schedule { learning_rate: 0.01 }
}
model {
  layer { name: "bottom" input: "features" dense { units: 4 } }
  layer {
    name: "ads" embedding_bag { table: "ads" feature: "C1" feature: "C2" }
  }
  layer {
    name: "users"
    embedding_bag { table: "users" feature: "C3" pooling: MEAN }
  }
  layer {
    name: "dots" input: "bottom" input: "ads" input: "users" dot_interaction {}
  }
  layer { name: "joined" input: "bottom" input: "dots" concat {} }
  layer { name: "top" dense { units: 16 } }
  layer { name: "relu" relu {} }
  layer { name: "logit" dense { units: 1 } }
  loss { sigmoid_cross_entropy {} }
}
data {
  train {
    click_log {
      count: 4000 numeric: 5 categorical: 3 ids_per_feature: 500 bag_size: 3
    }
  }
}
train { batch_size: 16 steps: 40 log_every_steps: 5 }
optimizer { adagrad {} }
schedule { learning_rate: 0.05 }
update { sync { contributions: 4 } }
limits { block_elements: 64 }
)";

std::string JobFile() {
  static const std::string path = [] {
    const std::string file = FreshDir("tables_job") + "/job.textproto";
    WriteFile(file, kJob);
    return file;
  }();
  return path;
}

std::vector<std::string> Arguments(int ps, int workers,
                                   const std::vector<std::string>& sets = {}) {
  std::vector<std::string> arguments = {JobFile(), "--ps", std::to_string(ps),
                                        "--workers", std::to_string(workers)};
  for (const std::string& set : sets) {
    arguments.insert(arguments.end(), {"--set", set});
  }
  return arguments;
}

// The bits of one undisturbed run, computed once.
const std::string& Expected() {
  static const std::string sha = [] {
    const TrainRun run = RunTrain(FreshDir("tables_1_1"), Arguments(1, 1));
    EXPECT_EQ(run.exit_code, 0) << run.output;
    return run.summary.value("model_sha256", "");
  }();
  return sha;
}

void ExpectSameBits(const TrainRun& run) {
  ASSERT_EQ(run.exit_code, 0) << run.output;
  ASSERT_EQ(Expected().size(), 64u);
  EXPECT_EQ(run.summary["model_sha256"], Expected());
  EXPECT_EQ(run.summary["steps"], 40);
}

TEST(TablesTest, SameBitsForAnyNumberOfPsAndWorkers) {
  for (const auto& [ps, workers] :
       std::vector<std::pair<int, int>>{{2, 2}, {3, 4}}) {
    SCOPED_TRACE(std::to_string(ps) + " ps, " + std::to_string(workers) +
                 " workers");
    ExpectSameBits(RunTrain(FreshDir("tables_n"), Arguments(ps, workers)));
  }
}

// The fingerprint differs where only the rows differ.
TEST(TablesTest, AnotherRateOfOneTableGivesOtherBits) {
  const TrainRun run =
      RunTrain(FreshDir("tables_other"),
               Arguments(1, 1,
                         {"train.steps=1", "schedule.learning_rate=1e-30",
                          "table[1].schedule.learning_rate=0.01"}));
  const TrainRun other =
      RunTrain(FreshDir("tables_other"),
               Arguments(1, 1,
                         {"train.steps=1", "schedule.learning_rate=1e-30",
                          "table[1].schedule.learning_rate=0.02"}));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  ASSERT_EQ(other.exit_code, 0) << other.output;
  EXPECT_NE(run.summary["model_sha256"], other.summary["model_sha256"]);
}

// The job has one step in which only rows move, by their gradient.
TEST(TablesTest, ClippingChangesWhatRowsGet) {
  const auto bits = [](const std::string& clip) {
    const TrainRun run = RunTrain(
        FreshDir("tables_clip"),
        Arguments(1, 1,
                  {"train.steps=1", "schedule.learning_rate=1e-30",
                   "table[0].optimizer={sgd {}}", "train.clip=" + clip}));
    EXPECT_EQ(run.exit_code, 0) << run.output;
    return run.summary.value("model_sha256", "");
  };
  const std::string unclipped = bits("{norm: 1e30}");
  EXPECT_EQ(bits("{value: 1e30}"), unclipped);
  const std::string by_norm = bits("{norm: 1e-3}");
  EXPECT_NE(by_norm, unclipped);
  EXPECT_NE(bits("{value: 1e-3}"), unclipped);
  EXPECT_NE(bits("{norm: 2e-3}"), by_norm);
}

TEST(TablesTest, SameBitsWhenAWorkerDies) {
  for (const char* failpoint :
       {"worker.mid_push:5", "worker.before_rows:7", "worker.in_barrier:9"}) {
    SCOPED_TRACE(failpoint);
    const TrainRun run =
        RunTrain(FreshDir("tables_worker"), Arguments(2, 2),
                 {std::string("WEIR_FAILPOINT_WORKER_1=") + failpoint});
    ExpectSameBits(run);
    EXPECT_GE(Restarts(run), 1) << "the failpoint was never reached";
  }
}

// A job long enough to be stopped half way. Its samples do not come again, so
// many of its rows are touched only early.
const std::vector<std::string>& LongJob() {
  static const std::vector<std::string> sets = {
      "train.batch_size=32", "train.steps=4000", "train.log_every_steps=1",
      "data.train.click_log.count=600000",
      "data.train.click_log.ids_per_feature=30000"};
  return sets;
}

// Returns the bits of an undisturbed run of that job, computed once.
const std::string& LongJobsBits() {
  static const std::string sha = [] {
    const TrainRun run =
        RunTrain(FreshDir("tables_long"), Arguments(2, 2, LongJob()));
    EXPECT_EQ(run.exit_code, 0) << run.output;
    return run.summary.value("model_sha256", "");
  }();
  return sha;
}

TEST(TablesTest, SameBitsWhenAPsDiesWithAnUpdateInItsHands) {
  const std::string dir = FreshDir("tables_ps");
  std::vector<std::string> sets = LongJob();
  sets.insert(sets.end(),
              {"checkpoint.every_steps=20", "limits.lost_after_seconds=3"});
  // A step has four updates, so this is in step 500.
  const TrainRun died =
      RunTrain(dir, Arguments(2, 2, sets),
               {"WEIR_FAILPOINT_PS_1=ps.before_table_apply:2000"});
  EXPECT_EQ(died.exit_code, 138) << died.output;
  EXPECT_NE(died.output.find("ps/1"), std::string::npos) << died.output;
  sets.push_back("checkpoint.every_steps=1000");  // it need not die again
  std::vector<std::string> arguments = Arguments(2, 2, sets);
  arguments.push_back("--resume");
  const TrainRun resumed = RunTrain(dir, arguments);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(resumed.summary["model_sha256"], LongJobsBits());
}

// Returns the base of a checkpoint; "" when it has all rows, or is not there.
std::string BaseOf(const std::string& dir, const std::string& checkpoint) {
  const auto manifest = nlohmann::json::parse(
      ReadFile(dir + "/checkpoints/" + checkpoint + "/manifest.json"),
      /*cb=*/nullptr, /*allow_exceptions=*/false);
  return manifest.is_object() ? manifest["file"][0]["tables"].value("base", "")
                              : "";
}

std::string NewestBase(const std::string& dir) {
  const std::string list = ReadFile(dir + "/checkpoints/checkpoint");
  const size_t begin = list.find('"') + 1;
  return BaseOf(dir, list.substr(begin, list.find('"', begin) - begin));
}

TEST(TablesTest, SameBitsWhenResumedFromAnIncrementOnOtherNumbers) {
  const std::string dir = FreshDir("tables_resume");
  std::vector<std::string> sets = LongJob();
  sets.insert(sets.end(), {"checkpoint.every_steps=20",
                           "checkpoint.tables_full_every=4000"});
  Process process = StartTrain(dir, Arguments(3, 2, sets));
  ASSERT_TRUE(WaitUntil(60, [&] { return !NewestBase(dir).empty(); }));
  process.Signal(SIGINT);
  const TrainRun stopped = FinishTrain(&process, dir);
  EXPECT_EQ(stopped.exit_code, 130) << stopped.output;
  EXPECT_LT(stopped.summary["steps"], 4000);
  EXPECT_NE(NewestBase(dir), "");
  EXPECT_EQ(BaseOf(dir, NewestBase(dir)), "");  // the first has all rows

  std::vector<std::string> arguments = Arguments(2, 4, sets);
  arguments.push_back("--resume");
  const TrainRun resumed = RunTrain(dir, arguments);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(resumed.summary["model_sha256"], LongJobsBits());
}

TEST(TablesTest, EvaluationTellsTheAucOfGroups) {
  const std::string dir = FreshDir("tables_groups");
  ASSERT_EQ(RunTrain(dir, Arguments(1, 1)).exit_code, 0);
  const auto evaluate = [&](const std::string& group) {
    return RunWeir({"evaluate", JobFile(), "--checkpoint",
                    dir + "/checkpoints/ckpt-40", "--set",
                    "evaluation={source {click_log {count: 2000 numeric: 5 "
                    "categorical: 3 ids_per_feature: 500 bag_size: 3}} "
                    "auc_group: '" +
                        group + "'}"});
  };
  const CommandResult result = evaluate("C2");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_GT(json["group_auc"], 0.5);
  EXPECT_LT(json["group_auc"], 1.0);
  EXPECT_NE(json["group_auc"], json["auc"]);
  const CommandResult unknown = evaluate("C9");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(
      unknown.output.find("evaluation.auc_group: 'C9' is not a feature of "
                          "the data; it has [C1, C2, C3]"),
      std::string::npos)
      << unknown.output;
}

// Reads a run's "ps=HOST:PORT,..." from the logs; "" while a ps does not serve.
std::string ClusterOf(const std::string& dir, int ps) {
  std::string cluster = "ps=";
  for (int s = 0; s < ps; ++s) {
    const std::string says = "serving on ";
    const std::string log =
        ReadFile(dir + "/logs/ps-" + std::to_string(s) + ".log");
    const size_t at = log.find(says);
    if (at == std::string::npos) {
      return "";
    }
    const size_t begin = at + says.size();
    cluster += (s == 0 ? "" : ",") +
               log.substr(begin, log.find_first_of(", \n", begin) - begin);
  }
  return cluster;
}

// The job goes on meanwhile.
TEST(TablesTest, ARunningJobsTablesAreReportedAndShrunk) {
  const std::string dir = FreshDir("tables_live");
  std::vector<std::string> sets = LongJob();
  sets.insert(sets.end(), {"train.steps=1000000", "update={async {}}"});
  Process process = StartTrain(dir, Arguments(2, 1, sets));
  // As the one who started the job.
  const std::vector<std::string> secret = {"WEIR_SECRET_FILE=" + dir +
                                           "/.secret"};
  const auto tables = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "tables");
    return RunWeir(words, secret);
  };
  CommandResult report;
  ASSERT_TRUE(WaitUntil(60, [&] {
    const std::string cluster = ClusterOf(dir, 2);
    report = cluster.empty()
                 ? CommandResult()
                 : tables({"report", "--cluster", cluster, "--hot_ids", "3"});
    return report.output.find("hot ids (updates): ") != std::string::npos;
  })) << report.output;
  const std::string cluster = ClusterOf(dir, 2);
  EXPECT_EQ(report.exit_code, 0);
  for (const char* part : {"ads: dim 4, on 2 ps", "users: dim 4, on 2 ps",
                           "  ps 1 127.0.0.1:", "  all "}) {
    EXPECT_NE(report.output.find(part), std::string::npos) << part;
  }
  const CommandResult shrunk =
      tables({"shrink", "--cluster", cluster, "--rows", "0"});
  EXPECT_EQ(shrunk.exit_code, 0) << shrunk.output;
  EXPECT_NE(shrunk.output.find(" rows dropped, "), std::string::npos);
  EXPECT_EQ(shrunk.output.find(": 0 rows dropped"), std::string::npos)
      << shrunk.output;

  // Nobody else is answered.
  const CommandResult other =
      RunWeir({"tables", "report", "--cluster", cluster},
              {"WEIR_SECRET=0123456789abcdef0123456789abcdef"});
  EXPECT_EQ(other.exit_code, 6);
  EXPECT_NE(other.output.find("does not prove to be of this job"),
            std::string::npos)
      << other.output;
  const CommandResult unknown =
      tables({"report", "--cluster", cluster, "--table", "adds"});
  EXPECT_EQ(unknown.exit_code, 3);
  EXPECT_NE(unknown.output.find("has no table 'adds'"), std::string::npos);
  process.Signal(SIGINT);
  EXPECT_EQ(FinishTrain(&process, dir).exit_code, 130);
  const CommandResult gone = tables({"report", "--cluster", cluster});
  EXPECT_EQ(gone.exit_code, 138);
  EXPECT_NE(gone.output.find("connection refused"), std::string::npos)
      << gone.output;
}

// Expects exit code 2 and a line that names what is wrong.
TEST(TablesTest, MistakesInTablesAreRefusedByName) {
  const struct {
    const char* from;
    const char* to;
    const char* says;
  } cases[] = {
      {"embedding_bag { table: \"ads\"", "embedding_bag { table: \"adds\"",
       "model.layer[1].embedding_bag.table: 'adds' is no table of the job"},
      {"name: \"users\" dim", "name: \"ads\" dim",
       "table[1].name: 'ads' is that of table[0] already"},
      {"dim: 4 optimizer { adam", "dim: 0 optimizer { adam",
       "table[1].dim: 0 is not in [1, 65536]"},
      {"dim: 4 optimizer { adam", "dim: 4 lookup: TOP_K optimizer { adam",
       "table[1].lookup: rows travel in a fixed size"},
      {"dim: 4 optimizer { adam",
       "dim: 4 initializer { he_normal {} } optimizer { adam",
       "table[1].initializer: rows have no fan in or out"},
      {"feature: \"C3\"", "feature: \"C4\"", "'C4'"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.says);
    std::string text = kJob;
    const size_t at = text.find(c.from);
    ASSERT_NE(at, std::string::npos) << c.from;
    text.replace(at, std::string(c.from).size(), c.to);
    const std::string dir = FreshDir("tables_bad");
    WriteFile(dir + ".textproto", text);
    const TrainRun run =
        RunTrain(dir, {dir + ".textproto", "--ps", "1", "--workers", "1"});
    EXPECT_EQ(run.exit_code, 2) << run.output;
    EXPECT_NE(run.output.find(c.says), std::string::npos) << run.output;
  }
}

}  // namespace
}  // namespace weir
