#include "proto/task/task_main.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "common/base/logging.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

using testing::ExitedWithCode;

using Run = absl::Status (*)(const int& signal, const Task& task);

// Runs a worker's main, as in a process of its own: inside EXPECT_EXIT. It has
// one flag, --signal.
[[noreturn]] void Main(std::vector<std::string> arguments, Run run) {
  arguments.insert(arguments.begin(), "weir_worker");
  std::vector<char*> argv;
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  std::exit(TaskMain<int>(
      static_cast<int>(argv.size()), argv.data(), TaskRole::kWorker, "a test",
      [](CLI::App* app, int* signal) { app->add_option("--signal", *signal); },
      run));
}

const std::vector<std::string> kCluster = {"--cluster", "ps=a:1;worker=b:2,c:3",
                                           "--task_index", "1"};

absl::Status Nothing(const int&, const Task&) { return absl::OkStatus(); }

// Waits for a signal that is sent to the process meanwhile.
absl::Status SignalSelf(int signal, StopSignal* stop) {
  kill(getpid(), signal);
  while (stop->first() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return absl::OkStatus();
}

class TaskMainDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("TF_CONFIG");
    ::unsetenv("WEIR_CLUSTER");
    ::setenv("WEIR_INSECURE", "1", 1);
  }
};

TEST_F(TaskMainDeathTest, RunsTheTaskThatTheFlagsName) {
  EXPECT_EXIT(Main(kCluster,
                   [](const int&, const Task& task) {
                     return task.cluster.task()->ToString() == "worker/1"
                                ? absl::OkStatus()
                                : absl::InternalError("another task");
                   }),
              ExitedWithCode(0), "worker/1 I done");
}

TEST_F(TaskMainDeathTest, AStatusBecomesALineAndItsExitCode) {
  const auto fails = [](const int&, const Task&) {
    return absl::DataLossError("torn");
  };
  EXPECT_EXIT(Main(kCluster, fails), ExitedWithCode(4), "worker/1 E torn");
}

TEST_F(TaskMainDeathTest, WrongFlagsAndAWrongClusterAreWrongUsage) {
  EXPECT_EXIT(Main({"--wrong"}, Nothing), ExitedWithCode(2), "--wrong");
  EXPECT_EXIT(Main({}, Nothing), ExitedWithCode(2), "no cluster is given");
  EXPECT_EXIT(Main({"--help"}, Nothing), ExitedWithCode(0), "");
  ::setenv("TF_CONFIG",
           R"({"cluster": {"ps": ["a:1"], "worker": ["b:2"]},)"
           R"( "task": {"type": "ps", "index": 0}})",
           1);
  EXPECT_EXIT(Main({}, Nothing), ExitedWithCode(2),
              "this task is ps/0; weir_worker runs a worker");
}

TEST_F(TaskMainDeathTest, WithoutAWordOnSecurityNothingStarts) {
  ::unsetenv("WEIR_INSECURE");
  EXPECT_EXIT(Main(kCluster, Nothing), ExitedWithCode(2),
              "set WEIR_SECRET or WEIR_SECRET_FILE");
}

TEST_F(TaskMainDeathTest, SaysAloudThatItIsInsecure) {
  EXPECT_EXIT(Main(kCluster, Nothing), ExitedWithCode(0),
              "W insecure: whoever reaches this task's port");
}

TEST_F(TaskMainDeathTest, ASecuredTaskLeavesNoCoreAndShowsNoMemory) {
  ::unsetenv("WEIR_INSECURE");
  ::setenv("WEIR_SECRET", "0123456789abcdef0123456789abcdef", 1);
  EXPECT_EXIT(Main(kCluster,
                   [](const int&, const Task& task) {
                     rlimit core = {};
                     getrlimit(RLIMIT_CORE, &core);
                     return task.security->secured() && core.rlim_cur == 0 &&
                                    prctl(PR_GET_DUMPABLE) == 0
                                ? absl::OkStatus()
                                : absl::InternalError("open");
                   }),
              ExitedWithCode(0), "done");
  ::unsetenv("WEIR_SECRET");
}

TEST_F(TaskMainDeathTest, AWriteBeyondTheLimitOfFilesFails) {
  const auto writes = [](const int&, const Task&) -> absl::Status {
    const rlimit limit = {1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    WEIR_ASSIGN_OR_RETURN(const auto file,
                          Files::Real()->Create(MakeTempDir() + "/large"));
    const std::string bytes(2 << 20, 'x');
    return file->Append(bytes.data(), bytes.size());
  };
  EXPECT_EXIT(Main(kCluster, writes), ExitedWithCode(138), "File too large");
}

TEST_F(TaskMainDeathTest, AFailpointThatIsMisspeltIsWrongUsage) {
  ::setenv("WEIR_FAILPOINT", "no.such:1", 1);
  EXPECT_EXIT(Main(kCluster, Nothing), ExitedWithCode(2), "no.such");
  ::unsetenv("WEIR_FAILPOINT");
}

TEST_F(TaskMainDeathTest, FlagsAndVariablesSayWhatIsLoggedAndHow) {
  const auto says = [](const int&, const Task&) {
    LOG_DEBUG("said");
    return absl::OkStatus();
  };
  std::vector<std::string> flags = kCluster;
  flags.push_back("--log_level=tests=debug");
  EXPECT_EXIT(Main(flags, says), ExitedWithCode(0), "worker/1 D said");
  flags.push_back("--log_format=json");
  EXPECT_EXIT(Main(flags, says), ExitedWithCode(0),
              R"("level":"debug","task":"worker/1","module":"tests",)"
              R"("message":"said")");
  ::setenv("WEIR_LOG_FORMAT", "json", 1);
  EXPECT_EXIT(Main(kCluster, says), ExitedWithCode(0),
              R"("module":"proto/task","message":"done")");
  ::setenv("WEIR_LOG_FORMAT", "xml", 1);
  EXPECT_EXIT(Main(kCluster, Nothing), ExitedWithCode(2),
              "worker/1 E .*WEIR_LOG_FORMAT 'xml': it is text or json");
  ::unsetenv("WEIR_LOG_FORMAT");
  ::setenv("WEIR_LOG_LEVEL", "loud", 1);
  EXPECT_EXIT(Main(kCluster, Nothing), ExitedWithCode(2),
              "WEIR_LOG_LEVEL 'loud': there is no level 'loud'");
  ::unsetenv("WEIR_LOG_LEVEL");
  flags = kCluster;
  flags.push_back("--log_level=loud");
  EXPECT_EXIT(Main(flags, Nothing), ExitedWithCode(2),
              "there is no level 'loud'");
}

TEST_F(TaskMainDeathTest, OnlyCancelledIsTheEndThatASignalAskedFor) {
  for (const int signal : {SIGTERM, SIGINT}) {
    std::vector<std::string> flags = kCluster;
    flags.push_back("--signal=" + std::to_string(signal));
    EXPECT_EXIT(Main(flags,
                     [](const int& signal, const Task& task) {
                       SignalSelf(signal, task.stop).IgnoreError();
                       return absl::CancelledError("saved");
                     }),
                ExitedWithCode(128 + signal), "ended by signal");
  }
  EXPECT_EXIT(Main(kCluster,
                   [](const int&, const Task& task) {
                     SignalSelf(SIGTERM, task.stop).IgnoreError();
                     return absl::UnavailableError("a ps is lost");
                   }),
              ExitedWithCode(138), "a ps is lost");
  EXPECT_EXIT(Main(kCluster,
                   [](const int&, const Task& task) {
                     return SignalSelf(SIGTERM, task.stop);
                   }),
              ExitedWithCode(0), "done");
  EXPECT_EXIT(Main(kCluster,
                   [](const int&, const Task&) {
                     return absl::CancelledError("by the chief");
                   }),
              ExitedWithCode(138), "by the chief");
}

TEST_F(TaskMainDeathTest, ASecondSignalEndsItAtOnce) {
  EXPECT_EXIT(Main(kCluster,
                   [](const int&, const Task& task) {
                     SignalSelf(SIGTERM, task.stop).IgnoreError();
                     kill(getpid(), SIGINT);
                     std::this_thread::sleep_for(std::chrono::minutes(1));
                     return absl::OkStatus();
                   }),
              ExitedWithCode(130), "a second signal");
}

}  // namespace
}  // namespace weir
