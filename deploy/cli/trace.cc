// weir trace: writes a timeline of a running job's tasks.
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/exit_code.h"
#include "common/base/identity.h"
#include "common/base/limits.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "deploy/cli/command.h"
#include "deploy/cli/running_job.h"
#include "deploy/trace/take_trace.h"
#include "deploy/trace/trace_sources.h"
#include "proto/trace/chrome_trace.h"

namespace weir {
namespace {

struct Options {
  RunningJobFlags job;
  int seconds = 10;
  std::string out = "trace.json";
};

absl::Status Write(const ChromeTrace& trace, const std::string& path,
                   ObjectWriter* file) {
  absl::Status status;
  std::string buffer;
  const auto flush = [&] {
    status.Update(file->Append(buffer.data(), buffer.size()));
    buffer.clear();
  };
  const ChromeTraceCounts counts =
      WriteChromeTrace(trace, [&](absl::string_view text) {
        buffer.append(text.data(), text.size());
        if (buffer.size() >= size_t{1} << 20) {
          flush();
        }
      });
  flush();
  WEIR_RETURN_IF_ERROR(status);
  WEIR_RETURN_IF_ERROR(file->Finish());
  absl::PrintF("%s: %d events of %d tasks, %d flows\n", path, counts.events,
               trace.tasks.size(), counts.flows);
  if (counts.dropped > 0) {
    absl::PrintF(
        "%d events more found no room; a shorter trace holds all of them\n",
        counts.dropped);
  }
  if (counts.refused > 0) {
    absl::PrintF(
        "%d events are left out: they are of another time, or too "
        "many waited at once\n",
        counts.refused);
  }
  absl::PrintF(
      "to look at it: https://ui.perfetto.dev, then \"Open trace file\"\n");
  return absl::OkStatus();
}

absl::StatusOr<int> TakeAndWrite(const Options& options) {
  WEIR_ASSIGN_OR_RETURN(const RunningJob job, FindRunningJob(options.job));
  std::vector<TraceSource> tasks = MakeTraceSources(job.cluster, *job.security);
  if (tasks.empty()) {
    return absl::InvalidArgumentError(
        "no task is known; give the directory of a run, or --cluster "
        "'chief=HOST:PORT;ps=HOST:PORT,HOST:PORT', or set TF_CONFIG");
  }
  // Before anything is recorded: it would be a pity to find that out later.
  WEIR_ASSIGN_OR_RETURN(
      const std::unique_ptr<ObjectWriter> file,
      Files::Real()->BeginWrite(options.out, /*bytes_expected=*/0));
  TakeTraceOptions take;
  take.duration = std::chrono::seconds(options.seconds);
  take.trace = RandomId();
  take.note = [](const std::string& line) {
    absl::FPrintF(stderr, "weir: %s\n", line);
  };
  take.sleep = [](std::chrono::milliseconds time) {
    std::this_thread::sleep_for(time);
  };
  WEIR_ASSIGN_OR_RETURN(const ChromeTrace trace,
                        TakeTrace(std::move(tasks), take));
  WEIR_RETURN_IF_ERROR(Write(trace, options.out, file.get()));
  return kExitOk;
}

}  // namespace

void AddTraceCommand(CLI::App* app, Command* command) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = AddSubcommand(
      app, "trace", "write a timeline of a running job, for ui.perfetto.dev",
      options, TakeAndWrite, command);
  AddRunningJobFlags(sub, &options->job);
  AddOption(sub, "--seconds", &options->seconds, "how long to record")
      .Range(1, static_cast<int>(kTraceMax.count()))
      .ShowDefault();
  AddOption(sub, "--out", &options->out, "the file to write").ShowDefault();
}

}  // namespace weir
