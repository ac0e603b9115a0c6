#include "proto/trace/trace_parts.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

TraceRecording TwoLanes(int events) {
  TraceRecording recording;
  recording.dropped = 3;
  for (const char* name : {"train", "heartbeat"}) {
    TraceLane lane = {name, {}};
    for (int i = 0; i < events; ++i) {
      TraceEvent event = {};
      event.name = "step";
      event.begin_ns = 100 * i;
      event.end_ns = 100 * i + 40;
      event.args[0] = {"sequence", i};
      event.flow = TraceFlow::kEnds;
      event.flow_id = 77;
      lane.events.push_back(event);
    }
    recording.lanes.push_back(std::move(lane));
  }
  return recording;
}

TEST(TracePartsTest, NothingIsOnePart) {
  const std::vector<TracePart> parts = MakeTraceParts({});
  ASSERT_EQ(parts.size(), 1);
  EXPECT_EQ(parts[0].lane_size(), 0);
}

TEST(TracePartsTest, KeepsEverythingOfAnEvent) {
  const std::vector<TracePart> parts = MakeTraceParts(TwoLanes(2));
  ASSERT_EQ(parts.size(), 1);
  const TracePart& part = parts[0];
  EXPECT_EQ(part.dropped(), 3);
  ASSERT_EQ(part.lane_size(), 2);
  EXPECT_EQ(part.lane(1).name(), "heartbeat");
  EXPECT_EQ(part.lane(1).number(), 1);
  const TraceEventProto& event = part.lane(1).event(1);
  EXPECT_EQ(part.name(static_cast<int>(event.name())), "step");
  EXPECT_EQ(event.begin_ns(), 100);
  EXPECT_EQ(event.duration_ns(), 40);
  EXPECT_EQ(event.kind(), TraceEventProto::SLICE);
  EXPECT_EQ(event.flow(), TraceEventProto::ENDS);
  EXPECT_EQ(event.flow_id(), 77);
  ASSERT_EQ(event.arg_name_size(), 1);
  EXPECT_EQ(part.name(static_cast<int>(event.arg_name(0))), "sequence");
  EXPECT_EQ(event.arg_value(0), 1);
  EXPECT_EQ(part.name_size(), 2) << "each name once";
}

TEST(TracePartsTest, CutsAtTheBoundAndLosesNothing) {
  const std::vector<TracePart> parts = MakeTraceParts(TwoLanes(7), 4);
  ASSERT_EQ(parts.size(), 4);  // 14 events
  int events = 0;
  for (const TracePart& part : parts) {
    int here = 0;
    for (const TraceLaneEvents& lane : part.lane()) {
      here += lane.event_size();
      EXPECT_EQ(lane.name(), lane.number() == 0 ? "train" : "heartbeat");
    }
    EXPECT_LE(here, 4);
    EXPECT_EQ(part.name_size(), 2) << "each part has its own names";
    events += here;
  }
  EXPECT_EQ(events, 14);
  EXPECT_EQ(parts[1].dropped(), 0) << "else they would be counted twice";
}

// The largest events that there can be.
TEST(TracePartsTest, AFullPartIsASmallMessage) {
  TraceRecording recording;
  recording.lanes.push_back({"lane", {}});
  TraceEvent event = {};
  event.name = "forward and backward";
  event.begin_ns = int64_t{1} << 62;
  event.end_ns = event.begin_ns + (int64_t{1} << 61);
  event.flow = TraceFlow::kPasses;
  event.flow_id = ~uint64_t{0};
  for (TraceArg& arg : event.args) {
    arg = {"sequence", -1};
  }
  recording.lanes[0].events.assign(kTraceEventsPerPart, event);
  const std::vector<TracePart> parts = MakeTraceParts(recording);
  ASSERT_EQ(parts.size(), 1);
  EXPECT_LT(parts[0].ByteSizeLong(), size_t{1} << 20);
  EXPECT_LT(parts[0].ByteSizeLong(), kTraceEventBytes * kTraceEventsPerPart);
}

}  // namespace
}  // namespace weir
