#include "proto/trace/chrome_trace.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/printable.h"
#include "nlohmann/json.hpp"

namespace weir {
namespace {

// How far outside of the trace an event may lie: tasks begin a little after one
// another, and clocks of hosts are known to some part of a round trip.
constexpr int64_t kSlackNs = 5'000'000'000;

// A text of a peer as a JSON string.
std::string Quoted(const std::string& text) {
  return nlohmann::json(Printable(text))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// In microseconds, as the format wants it.
std::string Time(int64_t ns) {
  const char* const sign = ns < 0 ? "-" : "";
  const uint64_t absolute = ns < 0 ? uint64_t{0} - static_cast<uint64_t>(ns)
                                   : static_cast<uint64_t>(ns);
  return absl::StrFormat("%s%d.%03d", sign, absolute / 1000, absolute % 1000);
}

// One event with times that count from the trace's begin.
struct Slice {
  const TracePart* part;
  const TraceEventProto* event;
  int64_t begin_ns;
  int64_t end_ns;
};

// A lane's number and name.
struct LaneId {
  uint32_t number;
  std::string name;
  bool operator<(const LaneId& other) const {
    return std::tie(number, name) < std::tie(other.number, other.name);
  }
};

struct Lanes {
  std::map<LaneId, std::vector<Slice>> threads;
  std::map<std::string, std::vector<Slice>> waits;  // by name
};

class Writer {
 public:
  Writer(const ChromeTrace& trace,
         const std::function<void(absl::string_view)>& append)
      : trace_(trace), append_(append), next_lane_(trace.tasks.size() + 1) {}

  ChromeTraceCounts Write() {
    std::vector<Lanes> lanes;
    for (const TracedTask& task : trace_.tasks) {
      lanes.push_back(LanesOf(task));
    }
    append_("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    for (size_t t = 0; t < lanes.size(); ++t) {
      WriteTask(static_cast<int>(t + 1), trace_.tasks[t].name, lanes[t]);
    }
    append_("\n],\"otherData\":{\"tasks\":[");
    for (size_t t = 0; t < lanes.size(); ++t) {
      const TracedTask& task = trace_.tasks[t];
      append_(absl::StrCat(t == 0 ? "" : ",", "{\"task\":", Quoted(task.name),
                           ",\"clock_ahead_ns\":", task.ahead_ns,
                           ",\"clock_off_by_ns\":", task.delay_ns / 2,
                           ",\"events_dropped\":", DroppedBy(task), "}"));
    }
    append_(absl::StrCat("],\"events_dropped\":", counts_.dropped,
                         ",\"events_refused\":", counts_.refused, "}}\n"));
    return counts_;
  }

 private:
  // Where a flow was seen.
  struct Flow {
    bool begins = false;
    bool goes_on = false;
    bool begun = false;  // its beginning was written
  };

  static uint64_t DroppedBy(const TracedTask& task) {
    uint64_t dropped = 0;
    for (const TracePart& part : task.parts) {
      dropped += part.dropped();
    }
    return dropped;
  }

  Lanes LanesOf(const TracedTask& task) {
    Lanes lanes;
    for (const TracePart& part : task.parts) {
      for (const TraceLaneEvents& lane : part.lane()) {
        std::vector<Slice>* const thread =
            &lanes.threads[{lane.number(), lane.name()}];
        for (const TraceEventProto& event : lane.event()) {
          Take(task, part, event, thread, &lanes);
        }
      }
    }
    counts_.dropped += DroppedBy(task);
    return lanes;
  }

  void Take(const TracedTask& task, const TracePart& part,
            const TraceEventProto& event, std::vector<Slice>* thread,
            Lanes* lanes) {
    // I1. In unsigned numbers, which may wrap; then in a range where nothing
    // does.
    const auto begin_ns =
        static_cast<int64_t>(static_cast<uint64_t>(event.begin_ns()) -
                             static_cast<uint64_t>(task.ahead_ns) -
                             static_cast<uint64_t>(trace_.begin_ns));
    const int64_t last_ns = trace_.end_ns - trace_.begin_ns + kSlackNs;
    const bool in_time =
        begin_ns >= -kSlackNs && begin_ns <= last_ns &&
        event.duration_ns() <= static_cast<uint64_t>(last_ns + kSlackNs);
    if (!in_time || !NamesAreThere(part, event)) {
      ++counts_.refused;
      return;
    }
    // A slice without any length could hold no flow.
    const Slice slice = {
        &part, &event, begin_ns,
        begin_ns +
            std::max<int64_t>(static_cast<int64_t>(event.duration_ns()), 1)};
    if (event.kind() == TraceEventProto::WAIT) {
      lanes->waits[part.name(static_cast<int>(event.name()))].push_back(slice);
      return;
    }
    thread->push_back(slice);
    if (event.flow() == TraceEventProto::BEGINS) {
      flows_[event.flow_id()].begins = true;
    } else if (event.flow() != TraceEventProto::NONE) {
      flows_[event.flow_id()].goes_on = true;
    }
  }

  static bool NamesAreThere(const TracePart& part,
                            const TraceEventProto& event) {
    const auto count = static_cast<uint32_t>(part.name_size());
    return event.name() < count &&
           event.arg_name_size() == event.arg_value_size() &&
           std::all_of(event.arg_name().begin(), event.arg_name().end(),
                       [count](uint32_t name) { return name < count; });
  }

  void Event(absl::string_view text) {
    append_(std::exchange(any_, true) ? ",\n" : "");
    append_(text);
  }

  void Name(const char* what, int pid, size_t tid, const std::string& name) {
    Event(absl::StrCat("{\"ph\":\"M\",\"name\":\"", what, "\",\"pid\":", pid,
                       ",\"tid\":", tid, ",\"args\":{\"name\":", Quoted(name),
                       "}}"));
  }

  void WriteTask(int pid, const std::string& name, Lanes& lanes) {
    Name("process_name", pid, 0, name);
    Event(absl::StrCat("{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":",
                       pid, ",\"args\":{\"sort_index\":", pid, "}}"));
    for (auto& [lane, slices] : lanes.threads) {
      if (!slices.empty()) {
        WriteThread(pid, lane.name, &slices);
      }
    }
    for (auto& [wait, slices] : lanes.waits) {
      WriteWaits(pid, wait, &slices);
    }
  }

  static void Sort(std::vector<Slice>* slices) {
    // Those around others come first.
    std::sort(slices->begin(), slices->end(),
              [](const Slice& a, const Slice& b) {
                return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns
                                                : a.end_ns > b.end_ns;
              });
  }

  void WriteThread(int pid, const std::string& name,
                   std::vector<Slice>* slices) {
    const size_t tid = next_lane_++;
    Name("thread_name", pid, tid, name);
    Sort(slices);
    std::vector<int64_t> open_ends;
    for (Slice& slice : *slices) {
      while (!open_ends.empty() && open_ends.back() <= slice.begin_ns) {
        open_ends.pop_back();
      }
      if (!open_ends.empty()) {
        slice.end_ns = std::min(slice.end_ns, open_ends.back());  // I2
      }
      open_ends.push_back(slice.end_ns);
      WriteSlice(pid, tid, slice);
      WriteFlow(pid, tid, slice);
    }
  }

  void WriteSlice(int pid, size_t tid, const Slice& slice) {
    const TraceEventProto& event = *slice.event;
    std::string text =
        absl::StrCat("{\"ph\":\"X\",\"name\":", NameOf(slice, event.name()),
                     ",\"cat\":\"weir\",\"pid\":", pid, ",\"tid\":", tid,
                     ",\"ts\":", Time(slice.begin_ns),
                     ",\"dur\":", Time(slice.end_ns - slice.begin_ns));
    for (int i = 0; i < event.arg_name_size(); ++i) {
      absl::StrAppend(&text, i == 0 ? ",\"args\":{" : ",",
                      NameOf(slice, event.arg_name(i)), ":",
                      event.arg_value(i));
    }
    absl::StrAppend(&text, event.arg_name_size() > 0 ? "}}" : "}");
    Event(text);
    ++counts_.events;
  }

  // Behind its slice and at the same time, so that readers find the slice open.
  void WriteFlow(int pid, size_t tid, const Slice& slice) {
    const TraceEventProto& event = *slice.event;
    if (event.flow() == TraceEventProto::NONE) {
      return;
    }
    Flow& flow = flows_[event.flow_id()];
    if (!flow.begins || !flow.goes_on) {  // I3
      return;
    }
    const char* phase = "t";
    if (event.flow() == TraceEventProto::BEGINS) {
      if (std::exchange(flow.begun, true)) {
        return;  // a block that was sent again
      }
      phase = "s";
      ++counts_.flows;
    } else if (event.flow() == TraceEventProto::ENDS) {
      phase = "f";
    }
    // In text: readers take numbers for doubles, which have 53 bits.
    Event(absl::StrFormat(
        "{\"ph\":\"%s\",\"bp\":\"e\",\"name\":\"contribution\","
        "\"cat\":\"weir\",\"id\":\"0x%x\",\"pid\":%d,"
        "\"tid\":%d,\"ts\":%s}",
        phase, event.flow_id(), pid, tid, Time(slice.begin_ns)));
  }

  // Deals waits that overlap to lanes of their own.
  void WriteWaits(int pid, const std::string& name,
                  std::vector<Slice>* slices) {
    Sort(slices);
    std::vector<std::pair<size_t, int64_t>> lanes;  // tid and end
    for (const Slice& slice : *slices) {
      auto lane = std::find_if(lanes.begin(), lanes.end(), [&](const auto& l) {
        return l.second <= slice.begin_ns;
      });
      if (lane == lanes.end()) {
        if (lanes.size() == kWaitLanesMax) {
          ++counts_.refused;
          continue;
        }
        lane = lanes.insert(lane, {next_lane_++, 0});
        Name("thread_name", pid, lane->first,
             absl::StrCat(name, " ", lanes.size()));
      }
      lane->second = slice.end_ns;
      WriteSlice(pid, lane->first, slice);
    }
  }

  static std::string NameOf(const Slice& slice, uint32_t name) {
    return Quoted(slice.part->name(static_cast<int>(name)));
  }

  const ChromeTrace& trace_;
  const std::function<void(absl::string_view)>& append_;
  size_t next_lane_;  // beyond the numbers of tasks: some readers mix them up
  bool any_ = false;
  ChromeTraceCounts counts_;
  std::unordered_map<uint64_t, Flow> flows_;
};

}  // namespace

ChromeTraceCounts WriteChromeTrace(
    const ChromeTrace& trace,
    const std::function<void(absl::string_view)>& append) {
  return Writer(trace, append).Write();
}

}  // namespace weir
