// Merges the lines of many logs by time.
//
// Place: `weir logs` gives it the lines of a run's files and prints what it
// returns (deploy/logs/log_files.h, deploy/cli/logs.cc).
//
// Terms
//   source       the lines of one task, oldest first.
//   head         a line that Weir wrote, as text or as JSON. It has a time.
//   other text   what a program or a library printed: a line without a time.
//                It belongs to the head before it in its source.
//
// Invariants
//   I1. The lines of a source keep their order, since it has one at hand at a
//       time. Where its clock was set back they follow at once.
//   I2. Sources are merged by time, and where times are equal in the order in
//       which the sources were added.
//   I3. Other text follows its head at once, if it is at hand by then. What
//       comes before the first head of a source comes first of all.
// Threads: one at a time.
// Cost: memory for one line of each source.
#ifndef DEPLOY_LOGS_LOG_MERGE_H_
#define DEPLOY_LOGS_LOG_MERGE_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/logging.h"

namespace weir {

// Takes a head apart, in either form. Its texts are printable, whatever the
// bytes of `text` are. nullopt for other text.
std::optional<LogEntry> ParseLogEntry(absl::string_view text);

struct MergedLine {
  size_t source = 0;
  bool is_head = false;
  // Of other text: the task of the source; time, level and module of the head
  // that it belongs to. Before the first one, time_ms is 0 and the level info.
  LogEntry line;
};

// Returns `line` as it is shown, without an end. Other text is
// "[worker/0] text", or an object like that of its head; without a head it has
// only task and message.
std::string FormatMergedLine(const MergedLine& line, LogFormat format);

class LogMerge {
 public:
  // Returns its number; they count from 0.
  size_t AddSource(const std::string& task);

  // Whether that source has no line at hand, so that it can be offered one.
  bool IsHungry(size_t source) const;
  // Gives `source` its next line. REQUIRES: it is hungry.
  void Offer(size_t source, absl::string_view text);
  // Returns the first of the lines at hand; nullopt if there is none. For all
  // lines in order, every source that has one must have been offered it.
  std::optional<MergedLine> Take();

 private:
  struct Source {
    std::string task;
    std::optional<MergedLine> next;
    LogEntry head;  // the last one
  };

  std::vector<Source> sources_;
  // The sources with a line at hand: (its time, number of the source).
  std::set<std::pair<int64_t, size_t>> queue_;
  std::optional<size_t> last_;  // whose line was taken last
};

}  // namespace weir

#endif  // DEPLOY_LOGS_LOG_MERGE_H_
