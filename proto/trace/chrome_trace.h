// Writes timelines as Chrome's JSON, which Perfetto's UI opens.
//
// Place: `weir trace` collects the parts of all tasks and writes them by this.
// docs/formats.md specifies the file.
//
// Invariants
//   I1. What a task says of itself is a peer's word: an event outside of the
//       trace's time, or with a name that is not there, is left out and
//       counted; names are printable.
//   I2. Slices of a lane nest: one that would end after the slice around it is
//       cut there.
//   I3. A flow is written if it begins in one slice and goes on in another one.
// Threads: safe.
// Source: "Trace Event Format", Chromium project, 2016.
#ifndef PROTO_TRACE_CHROME_TRACE_H_
#define PROTO_TRACE_CHROME_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/trace.pb.h"

namespace weir {

// Waits of one kind that are drawn at the same time, each in a lane of its own.
inline constexpr size_t kWaitLanesMax = 16;

struct TracedTask {
  std::string name;       // "worker 0"
  int64_t ahead_ns = 0;   // its clock less the one of `begin_ns` below
  uint64_t delay_ns = 0;  // twice what ahead_ns may be off by
  std::vector<TracePart> parts;
};

struct ChromeTrace {
  std::vector<TracedTask> tasks;  // from the top of the picture down
  int64_t begin_ns = 0;           // is 0 in the file
  int64_t end_ns = 0;
};

struct ChromeTraceCounts {
  uint64_t events = 0;   // written, without flows
  uint64_t dropped = 0;  // by the tasks, which had no room for more
  uint64_t refused = 0;  // I1, or beyond kWaitLanesMax
  uint64_t flows = 0;    // I3
};

// Hands the file's text to `append`, piece by piece.
ChromeTraceCounts WriteChromeTrace(
    const ChromeTrace& trace,
    const std::function<void(absl::string_view)>& append);

}  // namespace weir

#endif  // PROTO_TRACE_CHROME_TRACE_H_
