// weir run: real parameter servers, workers that are small scripts.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <thread>

#include "tests/integration/harness.h"

namespace weir {
namespace {

using Words = std::vector<std::string>;

// One `weir run`. Every task of it has `tag` in its environment.
class WeirRun {
 public:
  WeirRun(const std::string& name, Words options, const Words& command,
          Words environment = {})
      : dir_(FreshDir("run_" + name)), tag_("WEIR_RUN_TEST=" + dir_) {
    options.insert(options.begin(), {Binary("deploy/cli/weir_cli"), "run"});
    options.push_back("--");
    options.insert(options.end(), command.begin(), command.end());
    // Of two entries of one name the first counts.
    environment.insert(environment.end(),
                       {"WEIR_BIN_DIR=" + Binary("."), tag_, "DIR=" + dir_});
    process_ = std::make_unique<Process>(options, environment, log());
  }
  // Returns the command of a worker that is a shell script.
  static Words Sh(const std::string& script) {
    return {"/bin/sh", "-c", script};
  }
  static Words Python(const std::string& script) {
    return {"/usr/bin/python3", "-c", script};
  }

  Process& process() { return *process_; }
  const std::string& dir() const { return dir_; }
  std::string log() const { return dir_ + "/output"; }
  std::string Output() const { return ReadFile(log()); }
  bool Says(const std::string& text) const {
    return Output().find(text) != std::string::npos;
  }
  // `line` has no line break.
  bool HasLine(const std::string& line) const {
    return ("\n" + Output()).find("\n" + line + "\n") != std::string::npos;
  }
  bool WaitForText(const std::string& text) const {
    return WaitUntil(30, [&] { return Says(text); });
  }
  size_t Tasks() const { return FindProcesses({tag_}).size(); }
  // Waits for the end, after which no task may be there.
  void ExpectEnd(int code, double seconds = 60) {
    EXPECT_EQ(process_->Wait(seconds), code) << Output();
    EXPECT_EQ(Tasks(), 0u) << Output();
  }

 private:
  const std::string dir_;
  const std::string tag_;
  std::unique_ptr<Process> process_;
};

// Returns the JSON behind `prefix` on a line of the output.
nlohmann::json JsonAfter(const std::string& output, const std::string& prefix) {
  std::istringstream stream(output);
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind(prefix, 0) == 0) {
      return nlohmann::json::parse(line.substr(prefix.size()), nullptr, false);
    }
  }
  return nullptr;
}

TEST(RunTest, TheSdksExampleLearns) {
  WeirRun run("sdk", {"--ps", "2", "--workers", "2"},
              {Binary("examples/sdk_linear")});
  run.ExpectEnd(0);
  for (const char* worker : {"0", "1"}) {
    EXPECT_TRUE(run.HasLine(std::string("[worker/") + worker +
                            "] y = 3.000 x0 + -2.000 x1 + 0.500"))
        << run.Output();
  }
  EXPECT_TRUE(run.Says("[ps/1] ")) << run.Output();
}

TEST(RunTest, EveryTaskKnowsTheCluster) {
  WeirRun run("cluster",
              {"--ps", "2", "--workers", "2", "--transport", "grpc",
               "--evaluator", "/bin/sh -c 'echo \"$TF_CONFIG\"'"},
              WeirRun::Sh("echo \"$TF_CONFIG\"; sleep 0.5;"
                          "echo \"<$WEIR_TRANSPORT><$WEIR_CLUSTER>"
                          "<$PYTHONUNBUFFERED><${WEIR_WORKDIR-none}>"
                          "<$OMP_NUM_THREADS>\""),
              {"TF_CONFIG=other", "WEIR_CLUSTER=ps=a:1", "OMP_NUM_THREADS=7"});
  run.ExpectEnd(0);
  const auto first = JsonAfter(run.Output(), "[worker/0] ");
  const auto second = JsonAfter(run.Output(), "[worker/1] ");
  const auto evaluator = JsonAfter(run.Output(), "[evaluator/0] ");
  ASSERT_TRUE(first.is_object() && second.is_object() && evaluator.is_object())
      << run.Output();
  EXPECT_EQ(first["task"], nlohmann::json({{"type", "worker"}, {"index", 0}}));
  EXPECT_EQ(second["task"], nlohmann::json({{"type", "worker"}, {"index", 1}}));
  EXPECT_EQ(evaluator["task"],
            nlohmann::json({{"type", "evaluator"}, {"index", 0}}));
  EXPECT_EQ(first["cluster"], second["cluster"]);
  EXPECT_EQ(first["cluster"], evaluator["cluster"]);
  EXPECT_EQ(first["cluster"]["ps"].size(), 2u);
  EXPECT_EQ(first["cluster"]["worker"].size(), 2u);
  EXPECT_EQ(first["cluster"].size(), 2u);
  EXPECT_TRUE(run.HasLine("[worker/0] <grpc><><1><none><7>")) << run.Output();
}

TEST(RunTest, WorkersShareTheCores) {
  WeirRun run("cores", {"--workers", "2"},
              WeirRun::Sh("echo \"<$OMP_NUM_THREADS>\""));
  run.ExpectEnd(0);
  const unsigned cores = std::thread::hardware_concurrency();
  const char* const set = std::getenv("OMP_NUM_THREADS");  // NOLINT
  const std::string threads =
      set != nullptr ? set : std::to_string(std::max(1u, cores / 2));
  EXPECT_TRUE(run.HasLine("[worker/1] <" + threads + ">")) << run.Output();
}

TEST(RunTest, WordsOfTheCommandStayAsTheyAre) {
  WeirRun run("words", {},
              {"/bin/sh", "-c", "for w; do echo \"($w)\"; done", "name",
               "[1,2]", "--", "--ps", "a b", ""});
  run.ExpectEnd(0);
  for (const char* word : {"([1,2])", "(--)", "(--ps)", "(a b)", "()"}) {
    EXPECT_TRUE(run.HasLine(std::string("[worker/0] ") + word)) << word;
  }
}

TEST(RunTest, StartsAKilledWorkerAgainAsItWas) {
  WeirRun run(
      "restart", {"--workers", "2"},
      WeirRun::Python("import json, os, signal\n"
                      "config = os.environ['TF_CONFIG']\n"
                      "index = json.loads(config)['task']['index']\n"
                      "flag = os.environ['DIR'] + '/was_here'\n"
                      "print('try', config)\n"
                      "if index == 1 and not os.path.exists(flag):\n"
                      "  open(flag, 'w').write(config)\n"
                      "  os.kill(os.getpid(), signal.SIGKILL)\n"
                      "if index == 1:\n"
                      "  print('same', open(flag).read() == config)\n"));
  run.ExpectEnd(0);
  EXPECT_TRUE(run.HasLine("[worker/1] same True")) << run.Output();
  EXPECT_TRUE(run.Says("worker/1 failed with code 137 (signal 9)"));
  EXPECT_TRUE(run.Says("it is started again (1 of 3)")) << run.Output();
}

TEST(RunTest, GivesUpOnAWorkerThatKeepsDying) {
  WeirRun run("gives_up", {"--max_restarts", "1"},
              WeirRun::Sh("echo alive; kill -9 $$"));
  run.ExpectEnd(137);
  const std::string output = run.Output();
  size_t starts = 0;
  for (size_t at = 0;
       (at = output.find("[worker/0] alive", at)) != std::string::npos; ++at) {
    ++starts;
  }
  EXPECT_EQ(starts, 2u) << output;
}

TEST(RunTest, EndsWithTheFirstFailureAndItsLastLines) {
  WeirRun run("failure", {"--workers", "2"},
              WeirRun::Sh("case $TF_CONFIG in *'\"index\":1'*) ;; "
                          "*) exec sleep 60;; esac;"
                          "i=0; while [ $i -lt 30 ]; do echo line $i;"
                          "i=$((i+1)); done; echo why >&2; exit 7"));
  run.ExpectEnd(7);
  const std::string output = run.Output();
  const size_t summary = output.find("its last lines:\n");
  ASSERT_NE(summary, std::string::npos) << output;
  std::string expected;
  for (int i = 11; i < 30; ++i) {
    expected += "  line " + std::to_string(i) + "\n";
  }
  // stdout and stderr are two pipes.
  std::string lines = output.substr(output.find('\n', summary) + 1);
  const size_t why = lines.find("  why\n");
  ASSERT_NE(why, std::string::npos) << output;
  lines.erase(why, 6);
  EXPECT_EQ(lines, expected);
  EXPECT_TRUE(run.Says("weir run: worker/1 failed with code 7 after 0 s; "));
  EXPECT_FALSE(run.Says("worker/0 failed")) << output;
}

TEST(RunTest, ALostPsEndsTheJob) {
  WeirRun run("lost_ps", {"--ps", "2"}, WeirRun::Sh("echo up; exec sleep 60"));
  ASSERT_TRUE(run.WaitForText("[worker/0] up"));
  ASSERT_TRUE(run.WaitForText("ps/1 I serving"));
  const auto servers = FindProcesses({run.dir(), "weir_ps", "\"index\":1"});
  ASSERT_EQ(servers.size(), 1u);
  kill(servers[0], SIGKILL);
  run.ExpectEnd(137);
  EXPECT_TRUE(run.Says("weir run: ps/1 failed with code 137 (signal 9)"))
      << run.Output();
}

TEST(RunTest, AFailedEvaluatorIsReportedAlone) {
  WeirRun run("evaluator", {"--evaluator", "/bin/sh -c 'echo bad; exit 4'"},
              WeirRun::Sh("sleep 1"));
  run.ExpectEnd(0);
  EXPECT_TRUE(
      run.Says("weir run: evaluator/0 failed with code 4 after 0 s; "
               "the job goes on without it"))
      << run.Output();
}

TEST(RunTest, CtrlCReachesTheWorkersOnce) {
  WeirRun run("interrupt", {"--workers", "2"},
              WeirRun::Python("import signal, sys, time\n"
                              "count = 0\n"
                              "def stop(number, frame):\n"
                              "  global count\n"
                              "  count += 1\n"
                              "signal.signal(signal.SIGINT, stop)\n"
                              "print('ready')\n"
                              "while not count: time.sleep(0.01)\n"
                              "time.sleep(0.3)\n"
                              "print('stopped by', count)\n"));
  ASSERT_TRUE(run.WaitForText("[worker/0] ready"));
  ASSERT_TRUE(run.WaitForText("[worker/1] ready"));
  run.process().Signal(SIGINT);
  run.ExpectEnd(130);
  EXPECT_TRUE(run.HasLine("[worker/0] stopped by 1")) << run.Output();
  EXPECT_TRUE(run.HasLine("[worker/1] stopped by 1")) << run.Output();
  EXPECT_TRUE(run.HasLine("weir run: interrupted")) << run.Output();
}

TEST(RunTest, SigtermIsHandedOn) {
  WeirRun run("terminate", {},
              WeirRun::Sh("trap 'echo bye; exit 0' TERM; echo ready;"
                          "while :; do sleep 0.05; done"));
  ASSERT_TRUE(run.WaitForText("[worker/0] ready"));
  run.process().Signal(SIGTERM);
  run.ExpectEnd(143);
  EXPECT_TRUE(run.HasLine("[worker/0] bye")) << run.Output();
}

TEST(RunTest, ASecondCtrlCKills) {
  WeirRun run("kill", {},
              WeirRun::Sh("trap '' INT TERM; echo ready;"
                          "while :; do sleep 0.05; done"));
  ASSERT_TRUE(run.WaitForText("[worker/0] ready"));
  run.process().Signal(SIGINT);
  ASSERT_TRUE(run.WaitForText("once more kills"));
  run.process().Signal(SIGINT);
  run.ExpectEnd(130, 5);
}

TEST(RunTest, NothingOutlivesAKilledLauncher) {
  WeirRun run("orphans", {"--workers", "2"},
              WeirRun::Sh("echo ready; exec sleep 60"));
  ASSERT_TRUE(run.WaitForText("[worker/0] ready"));
  ASSERT_TRUE(run.WaitForText("[worker/1] ready"));
  EXPECT_EQ(run.Tasks(), 4u);
  run.process().Signal(SIGKILL);
  EXPECT_TRUE(WaitUntil(10, [&] { return run.Tasks() == 0; }));
}

TEST(RunTest, WhatAWorkerLeavesBehindEndsWithIt) {
  WeirRun run("leftovers", {},
              WeirRun::Sh("sleep 60 & (trap '' TERM; sleep 61) & echo done"));
  run.ExpectEnd(0, 20);
  EXPECT_TRUE(run.HasLine("[worker/0] done"));
}

TEST(RunTest, WritesLogsIntoAWorkdirOnly) {
  const std::string workdir = FreshDir("run_workdir_made") + "/a/b";
  WeirRun run("workdir", {"--workdir", workdir},
              WeirRun::Sh("echo $WEIR_WORKDIR; echo err >&2; until grep -q "
                          "serving $WEIR_WORKDIR/logs/ps-0.log;"
                          "do sleep 0.05; done"));
  run.ExpectEnd(0);
  EXPECT_TRUE(run.HasLine("[worker/0] " + workdir)) << run.Output();
  const std::string log = ReadFile(workdir + "/logs/worker-0.log");
  EXPECT_NE(log.find(workdir + "\n"), std::string::npos) << log;
  EXPECT_NE(log.find("err\n"), std::string::npos) << log;
  EXPECT_NE(ReadFile(workdir + "/logs/ps-0.log").find("serving"),
            std::string::npos);
}

// A chief that says how it was started and writes something on SIGTERM.
std::string FakeChief(const std::string& dir) {
  std::filesystem::create_directories(dir + "/server/chief");
  std::filesystem::create_directories(dir + "/server/ps");
  std::filesystem::create_symlink(Binary("server/ps/weir_ps"),
                                  dir + "/server/ps/weir_ps");
  const std::string path = dir + "/server/chief/weir_chief";
  WriteFile(path,
            "#!/bin/sh\n"
            "trap 'sleep 1; echo saved; exit 130' INT\n"
            "echo chief \"$@\" \"$TF_CONFIG\"\n"
            "while [ ! -e $DIR/done ]; do sleep 0.05; done\n"
            "echo chief done\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return dir;
}

TEST(RunTest, WaitsForTheChiefAtTheEnd) {
  const std::string workdir = FreshDir("run_chief_workdir");
  const std::string bin = FakeChief(FreshDir("run_chief_bin"));
  WeirRun run("chief", {"--chief", "--resume", "--workdir", workdir},
              WeirRun::Sh("echo worker done"), {"WEIR_BIN_DIR=" + bin});
  ASSERT_TRUE(run.WaitForText("[worker/0] worker done"));
  ASSERT_TRUE(run.WaitForText("chief --workdir " + workdir + " --resume {"));
  WriteFile(run.dir() + "/done", "");
  run.ExpectEnd(0);
  EXPECT_TRUE(run.HasLine("[chief/0] chief done")) << run.Output();
  EXPECT_TRUE(run.Says("\"chief\":[\"127.0.0.1:")) << run.Output();
}

TEST(RunTest, CtrlCLeavesTheChiefTimeToSave) {
  const std::string workdir = FreshDir("run_saves_workdir");
  const std::string bin = FakeChief(FreshDir("run_saves_bin"));
  WeirRun run("saves", {"--chief", "--workdir", workdir},
              WeirRun::Sh("echo ready; exec sleep 60"),
              {"WEIR_BIN_DIR=" + bin});
  ASSERT_TRUE(run.WaitForText("[worker/0] ready"));
  ASSERT_TRUE(run.WaitForText("[chief/0] chief"));
  run.process().Signal(SIGINT);
  run.ExpectEnd(130);
  EXPECT_TRUE(run.HasLine("[chief/0] saved")) << run.Output();
}

TEST(WeirTest, NamesAWrongCommandAndTheNextStep) {
  const struct {
    Words arguments;
    std::string says;
  } cases[] = {
      {{"wrong"}, "weir: unknown command 'wrong'; try weir --help\n"},
      {{"checkpoint", "wrong", "x"},
       "weir: unknown command 'wrong'; try weir checkpoint --help\n"},
  };
  for (const auto& test : cases) {
    const CommandResult result = RunWeir(test.arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.output, test.says);
  }
  EXPECT_EQ(RunWeir({"--help"}).exit_code, 0);
}

TEST(RunTest, BadUsageIsOneClearLine) {
  const std::string held = FreshDir("run_held");
  std::filesystem::create_directories(held + "/checkpoints");
  const struct {
    Words arguments;
    std::string says;
    int code = 2;
  } cases[] = {
      {{"run"}, "there is no command; write it after --"},
      {{"run", "--"}, "there is no command; write it after --"},
      {{"run", "python", "train.py"}, "write -- before the command"},
      {{"run", "--", "no_such_program"}, "command 'no_such_program' is not"},
      {{"run", "--evaluator", "nothing x", "--", "true"},
       "--evaluator: command 'nothing' is not found"},
      {{"run", "--ps", "0", "--", "true"}, "--ps: Value 0 not in range"},
      {{"run", "--workers", "0", "--", "true"}, "--workers: Value 0 not in"},
      {{"run", "--transport", "tcp", "--", "true"}, "--transport: tcp"},
      {{"run", "--resume", "--", "true"}, "add --chief"},
      {{"run", "--chief", "--workdir", held, "--", "true"},
       "holds an earlier run"},
      {{"run", "--chief", "--resume", "--workdir", held + "/no", "--", "true"},
       "there is no run in"},
  };
  for (const auto& test : cases) {
    const CommandResult result = RunWeir(test.arguments);
    EXPECT_EQ(result.exit_code, test.code) << test.says;
    EXPECT_NE(result.output.find(test.says), std::string::npos)
        << result.output;
  }
}

TEST(RunTest, SaysWhichBinaryIsMissing) {
  WeirRun run("missing", {}, WeirRun::Sh("true"),
              {"WEIR_BIN_DIR=/no/such/folder"});
  run.ExpectEnd(3);
  EXPECT_TRUE(
      run.Says("/no/such/folder/server/ps/weir_ps is not there; run "
               "./weir build first"))
      << run.Output();
}

TEST(RunTest, AFileThatCannotRunIsNamed) {
  const std::string script = FreshDir("run_script") + "/train";
  WriteFile(script, "just words\n");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  WeirRun run("no_interpreter", {}, {script});
  run.ExpectEnd(2);
  EXPECT_TRUE(run.Says(script + " cannot be run: Exec format error"))
      << run.Output();
}

}  // namespace
}  // namespace weir
