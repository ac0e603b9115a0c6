#include "deploy/watch/report_text.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/printable.h"

namespace weir {
namespace {

constexpr size_t kHostBytesMax = 20;
constexpr int kRowsMin = 3;
// Causes that come and go are not worth a line.
constexpr int64_t kSteadyNs = 10'000'000'000;

std::string Percent(double share) {
  return absl::StrFormat("%3.0f%%", 100.0 * share);
}

std::string Seconds(double seconds) {
  if (seconds <= 0.0) {
    return "-";
  }
  if (seconds < 0.001) {
    return absl::StrFormat("%.0f us", seconds * 1e6);
  }
  return seconds < 1.0 ? absl::StrFormat("%.1f ms", seconds * 1e3)
                       : absl::StrFormat("%.1f s", seconds);
}

std::string Bytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024.0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024.0;
    ++unit;
  }
  return absl::StrFormat("%.*f %s", bytes < 10.0 && unit > 0 ? 1 : 0, bytes,
                         kUnits[unit]);
}

std::string Cut(const std::string& text, size_t bytes) {
  return Printable(text, bytes);
}

void AddHead(const JobReport& report, std::string* text) {
  absl::StrAppend(text, Printable(report.job()), "  ", report.phase(), "  ",
                  report.mode());
  if (report.step_count() > 0) {
    absl::StrAppendFormat(text, "  step %.0f of %.0f (%s)", report.step(),
                          report.step_count(),
                          Percent(report.step() / report.step_count()));
  } else {
    absl::StrAppendFormat(text, "  step %.0f", report.step());
  }
  if (report.examples() > 0) {
    absl::StrAppendFormat(text, "  loss %.4f  %.0f examples/s", report.loss(),
                          report.examples_per_second());
  }
  if (report.staleness_max() > 0) {
    absl::StrAppendFormat(text, "  staleness %.1f (max %.0f)",
                          report.staleness_mean(), report.staleness_max());
  }
  absl::StrAppend(text, "\n");
  if (!report.message().empty()) {
    absl::StrAppend(text, Printable(report.message()), "\n");
  }
  if (!report.cause().sentence().empty()) {
    absl::StrAppend(text, "\n", Printable(report.cause().sentence()), "\n");
  }
  if (!report.cause().advice().empty()) {
    absl::StrAppend(text, "  -> ", Printable(report.cause().advice()), "\n");
  }
}

void AddRow(const std::string& row, int columns, std::string* text) {
  absl::StrAppend(text, CutToColumns(row, columns), "\n");
}

void AddWorkers(const JobReport& report, int rows, int columns,
                std::string* text) {
  std::vector<int> shown(static_cast<size_t>(report.worker_size()));
  std::iota(shown.begin(), shown.end(), 0);
  if (report.worker_size() > rows) {
    std::stable_sort(shown.begin(), shown.end(), [&](int a, int b) {
      return report.worker(a).step_seconds() > report.worker(b).step_seconds();
    });
    shown.resize(static_cast<size_t>(std::max(rows, 0)));
    std::sort(shown.begin(), shown.end());
  }
  absl::StrAppend(text, "\n");
  AddRow(
      absl::StrFormat("%-10s %-20s %-9s %9s %10s %5s %5s %5s %5s %5s %5s %8s",
                      "worker", "host", "state", "step", "examples/s", "data",
                      "pull", "comp", "push", "hold", "last", "late"),
      columns, text);
  for (const int w : shown) {
    const WorkerReport& worker = report.worker(w);
    AddRow(absl::StrFormat(
               "%-10d %-20s %-9s %9s %10.0f %5s %5s %5s %5s %5s %5s %8s",
               worker.slot(), Cut(worker.host(), kHostBytesMax), worker.state(),
               Seconds(worker.step_seconds()), worker.examples_per_second(),
               Percent(worker.data_share()), Percent(worker.pull_share()),
               Percent(worker.compute_share()), Percent(worker.push_share()),
               Percent(worker.hold_share()), Percent(worker.last_share()),
               Seconds(worker.host_load().wake_late_seconds())),
           columns, text);
  }
  if (report.worker_size() > static_cast<int>(shown.size())) {
    absl::StrAppend(text, "(the slowest ", shown.size(), " of ",
                    report.worker_size(), ")\n");
  }
}

void AddShards(const JobReport& report, int rows, int columns,
               std::string* text) {
  absl::StrAppend(text, "\n");
  AddRow(absl::StrFormat("%-4s %-22s %-7s %9s %10s %9s %11s %11s %5s %8s", "ps",
                         "address", "state", "updates/s", "apply", "parked",
                         "in/s", "out/s", "cpu", "late"),
         columns, text);
  const int count = std::min(report.shard_size(), rows);
  for (int s = 0; s < count; ++s) {
    const ShardReport& shard = report.shard(s);
    const HostReport& host = shard.host_load();
    AddRow(
        absl::StrFormat(
            "%-4d %-22s %-7s %9.0f %10s %9.0f %11s %11s %5.2f %8s",
            shard.index(), Cut(shard.address(), 22), shard.state(),
            shard.updates_per_second(), Seconds(shard.apply_seconds()),
            shard.parked_pulls(), Bytes(shard.bytes_received_per_second()),
            Bytes(shard.bytes_sent_per_second()), host.cpu_seconds_per_second(),
            Seconds(host.wake_late_seconds())),
        columns, text);
  }
  if (report.shard_size() > count) {
    absl::StrAppend(text, "(", count, " of ", report.shard_size(), ")\n");
  }
}

// How many lines of a terminal `text` takes.
int64_t LinesOf(const std::string& text, int columns) {
  int64_t lines = -1;  // nothing stands behind the last line's end
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    lines += 1 + std::max(0, ColumnsOf(line) - 1) / columns;
  }
  return lines;
}

}  // namespace

std::string CauseText(const Cause& cause) {
  const std::string& kind = cause.kind();
  if (cause.sentence().empty() || kind == "compute" || kind == "processors" ||
      kind == "unknown") {
    return "";
  }
  std::string text = Printable(cause.sentence());
  if (!cause.advice().empty()) {
    absl::StrAppend(&text, ": ", Printable(cause.advice()));
  }
  return text;
}

std::string CauseNotes::Next(const Cause& cause, int64_t now_ns) {
  const std::string name = absl::StrCat(cause.kind(), " ", cause.task());
  if (name != cause_) {
    cause_ = name;
    since_ns_ = now_ns;
    said_ = false;
  }
  if (said_ || now_ns - since_ns_ < kSteadyNs) {
    return "";
  }
  said_ = true;
  return CauseText(cause);
}

std::string ReportText(const JobReport& report, int rows, int columns) {
  std::string text;
  AddHead(report, &text);
  AddWorkers(report, rows, columns, &text);
  AddShards(report, rows, columns, &text);
  const CheckpointReport& checkpoint = report.checkpoint();
  if (!checkpoint.newest().empty()) {
    absl::StrAppend(&text, "\ncheckpoint ", Printable(checkpoint.newest()),
                    ", ", Seconds(checkpoint.age_seconds()), " old, ",
                    Bytes(checkpoint.bytes()), " in ",
                    Seconds(checkpoint.last_seconds()), "\n");
  }
  for (const TableReport& table : report.table()) {
    absl::StrAppendFormat(&text, "table %s: %.0f rows, %s\n",
                          Printable(table.name()), table.rows(),
                          Bytes(table.bytes()));
  }
  return text;
}

std::string ReportScreen(const JobReport& report, const TerminalSize& size) {
  int rows = std::max({report.worker_size(), report.shard_size(), kRowsMin});
  rows = std::min(rows, std::max(size.lines, kRowsMin));
  std::string text = ReportText(report, rows, size.columns);
  // The cursor needs a line, too: it stands below the text.
  while (rows > kRowsMin && LinesOf(text, size.columns) >= size.lines) {
    --rows;
    text = ReportText(report, rows, size.columns);
  }
  return text;
}

}  // namespace weir
