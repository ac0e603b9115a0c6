// weir top: shows what a running job does and what holds it back.
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/exit_code.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "deploy/cli/command.h"
#include "deploy/cli/running_job.h"
#include "deploy/watch/chief_poll.h"
#include "deploy/watch/report_text.h"
#include "deploy/watch/terminal.h"

namespace weir {
namespace {

// A chief that does not answer for so long is gone, or the job is over.
constexpr std::chrono::seconds kGiveUpAfter{10};

struct Options {
  RunningJobFlags job;
  double interval_seconds = 1.0;
  bool once = false;
  std::string output = "text";
};

absl::StatusOr<std::string> Show(const JobReport& report,
                                 const Options& options) {
  if (options.output == "text") {
    return ReportScreen(report, SizeOfTerminal(STDOUT_FILENO));
  }
  google::protobuf::util::JsonPrintOptions print;
  print.always_print_primitive_fields = true;
  print.preserve_proto_field_names = true;
  std::string json;
  const auto status =
      google::protobuf::util::MessageToJsonString(report, &json, print);
  if (!status.ok()) {
    return absl::InternalError(std::string(status.message()));
  }
  return json + "\n";
}

absl::StatusOr<int> Watch(const Options& options) {
  WEIR_ASSIGN_OR_RETURN(const RunningJob job, FindRunningJob(options.job));
  if (job.chief_address.empty()) {
    return absl::InvalidArgumentError(
        "no chief is known; give the directory of a run, or --chief "
        "HOST:PORT, or set TF_CONFIG");
  }
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  const bool once = options.once || options.output != "text" || !terminal;
  StopSignal stop({SIGINT, SIGTERM}, [](int signal) { _exit(128 + signal); });
  ChiefPoll chief(job.chief_address, *job.security);
  const auto interval = std::chrono::duration<double>(options.interval_seconds);
  auto answered = std::chrono::steady_clock::now();
  while (stop.first() == 0) {
    const absl::StatusOr<JobReport> report = chief.NewReport();
    const auto now = std::chrono::steady_clock::now();
    if (report.ok()) {
      answered = now;
      WEIR_ASSIGN_OR_RETURN(const std::string text, Show(*report, options));
      // Home, the screen, and nothing of the one before behind a line.
      std::fputs(once ? "" : "\033[H\033[2J", stdout);
      std::fputs(text.c_str(), stdout);
      std::fflush(stdout);
      if (once) {
        return kExitOk;
      }
    } else if (!absl::IsUnavailable(report.status()) &&
               !absl::IsDeadlineExceeded(report.status())) {
      return report.status();
    } else if (now - answered > kGiveUpAfter) {
      return Annotate(
          report.status(),
          absl::StrCat("the chief at ", job.chief_address, " does not answer"));
    }
    std::this_thread::sleep_for(interval);
  }
  return 128 + stop.first();
}

}  // namespace

void AddTopCommand(CLI::App* app, Command* command) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = AddSubcommand(
      app, "top", "show what a running job does and what holds it back",
      options, Watch, command);
  AddRunningJobFlags(sub, &options->job);
  AddOption(sub, "--chief", &options->job.chief,
            "host:port of the job's chief");
  AddOption(sub, "--interval", &options->interval_seconds,
            "seconds between two screens")
      .Range(0.1, 3600.0)
      .ShowDefault();
  AddFlag(sub, "--once", &options->once,
          "print one report and end; also what happens in a pipe");
  AddOption(sub, "--output", &options->output,
            "text, or json: one report as proto/report.proto says")
      .OneOf({"text", "json"})
      .ShowDefault();
}

}  // namespace weir
