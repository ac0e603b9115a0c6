#include "proto/trace/trace_parts.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

namespace weir {
namespace {

static_assert(static_cast<int>(TraceFlow::kBegins) == TraceEventProto::BEGINS);
static_assert(static_cast<int>(TraceFlow::kPasses) == TraceEventProto::PASSES);
static_assert(static_cast<int>(TraceFlow::kEnds) == TraceEventProto::ENDS);

// Fills one part.
class PartWriter {
 public:
  explicit PartWriter(TracePart* part) : part_(part) {}

  void Add(const TraceEvent& event, TraceLaneEvents* lane) {
    TraceEventProto* const out = lane->add_event();
    out->set_name(NumberOf(event.name));
    out->set_begin_ns(event.begin_ns);
    out->set_duration_ns(static_cast<uint64_t>(
        std::max<int64_t>(event.end_ns - event.begin_ns, 0)));
    if (event.is_wait) {
      out->set_kind(TraceEventProto::WAIT);
    }
    if (event.flow != TraceFlow::kNone) {
      out->set_flow(static_cast<TraceEventProto::Flow>(event.flow));
      out->set_flow_id(event.flow_id);
    }
    for (const TraceArg& arg : event.args) {
      if (arg.name != nullptr) {
        out->add_arg_name(NumberOf(arg.name));
        out->add_arg_value(arg.value);
      }
    }
  }

 private:
  uint32_t NumberOf(const std::string& name) {
    const auto [at, is_new] =
        numbers_.try_emplace(name, static_cast<uint32_t>(part_->name_size()));
    if (is_new) {
      part_->add_name(name);
    }
    return at->second;
  }

  TracePart* const part_;
  std::map<std::string, uint32_t> numbers_;
};

}  // namespace

std::vector<TracePart> MakeTraceParts(const TraceRecording& recording,
                                      size_t events_per_part) {
  std::vector<TracePart> parts(1);
  parts[0].set_dropped(recording.dropped);
  std::optional<PartWriter> writer(&parts.back());
  size_t room = events_per_part;
  for (size_t n = 0; n < recording.lanes.size(); ++n) {
    const TraceLane& lane = recording.lanes[n];
    TraceLaneEvents* out = nullptr;
    for (const TraceEvent& event : lane.events) {
      if (room == 0) {
        writer.emplace(&parts.emplace_back());
        out = nullptr;
        room = events_per_part;
      }
      if (out == nullptr) {
        out = parts.back().add_lane();
        out->set_number(static_cast<uint32_t>(n));
        out->set_name(lane.name);
      }
      writer->Add(event, out);
      --room;
    }
  }
  return parts;
}

}  // namespace weir
