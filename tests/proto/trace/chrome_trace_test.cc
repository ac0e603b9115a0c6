#include "proto/trace/chrome_trace.h"

#include <limits>
#include <set>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace weir {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct Written {
  std::string text;
  ChromeTraceCounts counts;
  json parsed;

  // The events with this phase.
  std::vector<json> All(const std::string& phase) const {
    std::vector<json> found;
    for (const json& event : parsed["traceEvents"]) {
      if (event["ph"] == phase) {
        found.push_back(event);
      }
    }
    return found;
  }
};

Written Write(const ChromeTrace& trace) {
  Written written;
  written.counts = WriteChromeTrace(trace, [&](absl::string_view text) {
    written.text.append(text.data(), text.size());
  });
  written.parsed = json::parse(written.text);
  return written;
}

// One task with one lane.
TracedTask Task(const std::string& name) {
  TracedTask task;
  task.name = name;
  task.parts.emplace_back();
  task.parts[0].add_lane()->set_name("lane");
  return task;
}

TraceEventProto* Add(TracedTask* task, const std::string& name,
                     int64_t begin_ns, uint64_t duration_ns) {
  TracePart& part = task->parts[0];
  TraceEventProto* const event = part.mutable_lane(0)->add_event();
  event->set_name(static_cast<uint32_t>(part.name_size()));
  part.add_name(name);
  event->set_begin_ns(begin_ns);
  event->set_duration_ns(duration_ns);
  return event;
}

// From 1 s to 3 s.
ChromeTrace TraceOf(std::vector<TracedTask> tasks) {
  return {std::move(tasks), 1'000'000'000, 3'000'000'000};
}

TEST(ChromeTraceTest, WritesWhatTheFormatSays) {
  TracedTask worker = Task("worker 0");
  worker.parts[0].set_dropped(4);
  TraceEventProto* const send = Add(&worker, "send", 1'000'001'500, 2'250);
  send->set_flow(TraceEventProto::BEGINS);
  send->set_flow_id(0xfedcba9876543210u);
  worker.parts[0].add_name("block");
  send->add_arg_name(1);
  send->add_arg_value(-3);
  TracedTask ps = Task("ps 0");
  ps.ahead_ns = 500'000'000;
  ps.delay_ns = 40;
  TraceEventProto* const apply = Add(&ps, "apply", 1'500'005'000, 1'000);
  apply->set_flow(TraceEventProto::PASSES);
  apply->set_flow_id(0xfedcba9876543210u);
  const Written written = Write(TraceOf({worker, ps}));
  EXPECT_EQ(written.text,
            R"({"displayTimeUnit":"ms","traceEvents":[)"
            "\n"
            R"({"ph":"M","name":"process_name","pid":1,"tid":0,)"
            R"("args":{"name":"worker 0"}},)"
            "\n"
            R"({"ph":"M","name":"process_sort_index","pid":1,)"
            R"("args":{"sort_index":1}},)"
            "\n"
            R"({"ph":"M","name":"thread_name","pid":1,"tid":3,)"
            R"("args":{"name":"lane"}},)"
            "\n"
            R"({"ph":"X","name":"send","cat":"weir","pid":1,"tid":3,)"
            R"("ts":1.500,"dur":2.250,"args":{"block":-3}},)"
            "\n"
            R"({"ph":"s","bp":"e","name":"contribution","cat":"weir",)"
            R"("id":"0xfedcba9876543210","pid":1,"tid":3,"ts":1.500},)"
            "\n"
            R"({"ph":"M","name":"process_name","pid":2,"tid":0,)"
            R"("args":{"name":"ps 0"}},)"
            "\n"
            R"({"ph":"M","name":"process_sort_index","pid":2,)"
            R"("args":{"sort_index":2}},)"
            "\n"
            R"({"ph":"M","name":"thread_name","pid":2,"tid":4,)"
            R"("args":{"name":"lane"}},)"
            "\n"
            R"({"ph":"X","name":"apply","cat":"weir","pid":2,"tid":4,)"
            R"("ts":5.000,"dur":1.000},)"
            "\n"
            R"({"ph":"t","bp":"e","name":"contribution","cat":"weir",)"
            R"("id":"0xfedcba9876543210","pid":2,"tid":4,"ts":5.000})"
            "\n"
            R"(],"otherData":{"tasks":[{"task":"worker 0","clock_ahead_ns":0,)"
            R"("clock_off_by_ns":0,"events_dropped":4},{"task":"ps 0",)"
            R"("clock_ahead_ns":500000000,"clock_off_by_ns":20,)"
            R"("events_dropped":0}],"events_dropped":4,"events_refused":0}})"
            "\n");
  EXPECT_EQ(written.counts.events, 2);
  EXPECT_EQ(written.counts.flows, 1);
  EXPECT_EQ(written.counts.dropped, 4);
}

TEST(ChromeTraceTest, SlicesOfALaneNest) {
  TracedTask task = Task("ps 0");
  Add(&task, "inner", 1'000'000'200, 100);
  Add(&task, "too long", 1'000'000'400, 900);  // beyond the one around it
  Add(&task, "outer", 1'000'000'100, 500);
  Add(&task, "next", 1'000'000'600, 10);
  const std::vector<json> slices = Write(TraceOf({task})).All("X");
  ASSERT_EQ(slices.size(), 4);
  EXPECT_EQ(slices[0]["name"], "outer");
  EXPECT_EQ(slices[1]["name"], "inner");
  EXPECT_EQ(slices[2]["name"], "too long");
  EXPECT_DOUBLE_EQ(slices[2]["dur"], 0.2);
  EXPECT_EQ(slices[3]["name"], "next");
}

TEST(ChromeTraceTest, AFlowThatDoesNotGoOnIsNotWritten) {
  TracedTask task = Task("worker 0");
  for (const uint64_t id : {1, 2, 2, 3}) {
    TraceEventProto* const event = Add(&task, "send", 1'000'000'000, 10);
    event->set_flow(TraceEventProto::BEGINS);
    event->set_flow_id(id);
  }
  for (const uint64_t id : {2, 4}) {  // nobody began the last one
    TraceEventProto* const event = Add(&task, "receive", 1'000'001'000, 10);
    event->set_flow(TraceEventProto::ENDS);
    event->set_flow_id(id);
  }
  const Written written = Write(TraceOf({task}));
  ASSERT_EQ(written.All("s").size(), 1) << "one block was sent twice";
  EXPECT_EQ(written.All("s")[0]["id"], "0x2");
  ASSERT_EQ(written.All("f").size(), 1);
  EXPECT_EQ(written.All("f")[0]["id"], "0x2");
}

TEST(ChromeTraceTest, WaitsThatOverlapHaveLanesOfTheirOwn) {
  TracedTask task = Task("ps 0");
  for (int i = 0; i < 3; ++i) {
    Add(&task, "parked", 1'000'000'000 + i * 10, 1000)
        ->set_kind(TraceEventProto::WAIT);
  }
  Add(&task, "parked", 1'000'002'000, 5)->set_kind(TraceEventProto::WAIT);
  const Written written = Write(TraceOf({task}));
  std::set<int> lanes;
  for (const json& slice : written.All("X")) {
    lanes.insert(slice["tid"].get<int>());
  }
  EXPECT_EQ(written.counts.events, 4);
  EXPECT_EQ(lanes.size(), 3) << "the last one is drawn behind the first one";
  EXPECT_THAT(written.text, HasSubstr("\"name\":\"parked 3\""));
}

TEST(ChromeTraceTest, TooManyWaitsAtOnceAreCounted) {
  TracedTask task = Task("ps 0");
  for (size_t i = 0; i < kWaitLanesMax + 2; ++i) {
    Add(&task, "parked", 1'000'000'000, 1000)->set_kind(TraceEventProto::WAIT);
  }
  const Written written = Write(TraceOf({task}));
  EXPECT_EQ(written.counts.events, kWaitLanesMax);
  EXPECT_EQ(written.counts.refused, 2);
}

TEST(ChromeTraceTest, APeersNumbersAndNamesAreChecked) {
  TracedTask task = Task("worker\n\x1b[2J");
  task.parts[0].mutable_lane(0)->set_name("\"},{\xff");
  Add(&task, "ok\"\n", 1'000'000'000, 10);
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const int64_t begin_ns :
       {kLeast, kMost, int64_t{0} - 9'000'000'000, int64_t{99'000'000'000}}) {
    Add(&task, "of another time", begin_ns, 10);
  }
  Add(&task, "endless", 1'000'000'000, ~uint64_t{0});
  Add(&task, "no such name", 1'000'000'000, 10)->set_name(999);
  Add(&task, "no such argument", 1'000'000'000, 10)->add_arg_value(3);
  TraceEventProto* const event = Add(&task, "bad", 1'000'000'000, 10);
  event->add_arg_name(999);
  event->add_arg_value(1);
  const Written written = Write(TraceOf({task}));
  EXPECT_EQ(written.counts.events, 1);
  EXPECT_EQ(written.counts.refused, 8);
  EXPECT_EQ(written.All("X")[0]["name"], "ok\"\\n");
  EXPECT_THAT(written.text, HasSubstr("worker\\\\n\\\\x1b[2J"));
}

TEST(ChromeTraceTest, AClockThatIsNonsenseShowsNothing) {
  TracedTask task = Task("worker 0");
  task.ahead_ns = std::numeric_limits<int64_t>::min();
  Add(&task, "step", 1'000'000'000, 10);
  EXPECT_EQ(Write(TraceOf({task})).counts.refused, 1);
}

}  // namespace
}  // namespace weir
