#include "common/trace/trace.h"

#include <chrono>
#include <cstdlib>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/trace/clock_offset.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using std::chrono::hours;
using testing::ElementsAre;
using testing::IsEmpty;

// Ends what a test has begun, so that the next one can begin.
class TraceTest : public testing::Test {
 protected:
  ~TraceTest() override { recorder->Forget(kTrace); }

  static constexpr uint64_t kTrace = 7;
  TraceRecorder* const recorder = TraceRecorder::Process();
};

std::vector<std::string> NamesOf(const TraceLane& lane) {
  std::vector<std::string> names;
  for (const TraceEvent& event : lane.events) {
    names.push_back(event.name);
  }
  return names;
}

// Waits until a recording of `duration` has ended by itself.
void WaitForEnd(TraceRecorder* recorder, uint64_t trace) {
  while (recorder->recording(trace)) {
    std::this_thread::yield();
  }
}

TEST_F(TraceTest, RecordsNothingUnlessAsked) {
  int described = 0;
  {
    const TraceSpan span("idle", [&](TraceDetails*) { ++described; });
  }
  EXPECT_EQ(described, 0);
  EXPECT_FALSE(TraceIsOn());
  EXPECT_TRUE(absl::IsNotFound(recorder->Read(kTrace).status()));
}

TEST_F(TraceTest, KeepsNestedSlicesWithTheirDetails) {
  NameTraceLane("me");
  ASSERT_TRUE(recorder->Start(kTrace, std::chrono::milliseconds(200)).ok());
  {
    const TraceSpan outer("outer");
    const TraceSpan inner("inner", [](TraceDetails* details) {
      details->Add("block", 3u);
      details->Add("bytes", size_t{1} << 20);
      details->Add("version", uint64_t{9});
      details->Add("one too many", 1);
      details->Flow(TraceFlow::kBegins, 42);
    });
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(recorder->Read(kTrace).status()));
  WaitForEnd(recorder, kTrace);
  const auto recording = recorder->Read(kTrace);
  ASSERT_TRUE(recording.ok()) << recording.status();
  ASSERT_EQ(recording->lanes.size(), 1);
  EXPECT_EQ(recording->lanes[0].name, "me");
  // In the order in which they ended.
  ASSERT_THAT(NamesOf(recording->lanes[0]), ElementsAre("inner", "outer"));
  const TraceEvent& inner = recording->lanes[0].events[0];
  const TraceEvent& outer = recording->lanes[0].events[1];
  EXPECT_LE(outer.begin_ns, inner.begin_ns);
  EXPECT_GE(outer.end_ns, inner.end_ns);
  EXPECT_EQ(inner.flow, TraceFlow::kBegins);
  EXPECT_EQ(inner.flow_id, 42);
  EXPECT_STREQ(inner.args[1].name, "bytes");
  EXPECT_EQ(inner.args[1].value, 1 << 20);
  EXPECT_EQ(outer.flow, TraceFlow::kNone);
  EXPECT_EQ(recording->dropped, 0);
}

TEST_F(TraceTest, ThereIsOneAtATime) {
  ASSERT_TRUE(recorder->Start(kTrace, hours(1)).ok());
  EXPECT_TRUE(recorder->Start(kTrace, hours(1)).ok()) << "the same one again";
  const absl::Status other = recorder->Start(8, hours(1));
  EXPECT_TRUE(absl::IsResourceExhausted(other)) << other;
  recorder->Forget(8);
  EXPECT_TRUE(recorder->recording(kTrace)) << "another one was forgotten";
  recorder->Forget(kTrace);
  EXPECT_TRUE(recorder->Start(8, hours(1)).ok());
  recorder->Forget(8);
  EXPECT_FALSE(TraceIsOn());
}

TEST_F(TraceTest, WhatWasBegunBeforeIsLeftOut) {
  const int64_t before_ns = Clock::Real()->NowNs();
  {
    const TraceSpan span("begun before");
    ASSERT_TRUE(recorder->Start(kTrace, std::chrono::milliseconds(100)).ok());
  }
  TraceSlice("known to begin before", before_ns, Clock::Real()->NowNs());
  WaitForEnd(recorder, kTrace);
  EXPECT_THAT(recorder->Read(kTrace)->lanes, IsEmpty());
}

TEST_F(TraceTest, AnEventBeyondTheEndEndsIt) {
  ASSERT_TRUE(recorder->Start(kTrace, std::chrono::milliseconds(1)).ok());
  while (TraceIsOn()) {  // nobody asks; the places alone end it
    const TraceSpan span("busy");
  }
  ASSERT_TRUE(recorder->Read(kTrace).ok());
}

TEST_F(TraceTest, EveryThreadHasALaneAndNoEventIsLost) {
  constexpr int kThreads = 8;
  constexpr int kSlices = 500;
  ASSERT_TRUE(recorder->Start(kTrace, hours(1)).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      NameTraceLane("thread " + std::to_string(t));
      for (int i = 0; i < kSlices; ++i) {
        const TraceSpan span("work");
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  // Their buffers outlive the threads.
  EXPECT_TRUE(absl::IsFailedPrecondition(recorder->Read(kTrace).status()));
  recorder->EndForTest();
  const auto recording = recorder->Read(kTrace);
  ASSERT_TRUE(recording.ok()) << recording.status();
  std::set<std::string> names;
  for (const TraceLane& lane : recording->lanes) {
    names.insert(lane.name);
    EXPECT_EQ(lane.events.size(), kSlices);
  }
  EXPECT_EQ(names.size(), kThreads);
}

TEST_F(TraceTest, EventsBeyondTheBoundsAreCounted) {
  ASSERT_TRUE(recorder->Start(kTrace, hours(1), /*events_max=*/10).ok());
  for (int i = 0; i < 25; ++i) {
    TraceSlice("busy", Clock::Real()->NowNs(), Clock::Real()->NowNs());
  }
  recorder->EndForTest();
  EXPECT_EQ(recorder->Read(kTrace)->lanes[0].events.size(), 10);
  EXPECT_EQ(recorder->Read(kTrace)->dropped, 15);
}

TEST_F(TraceTest, OneLaneLeavesRoomForOthers) {
  ASSERT_TRUE(recorder->Start(kTrace, hours(1)).ok());
  const int64_t now_ns = Clock::Real()->NowNs();
  for (size_t i = 0; i < kTraceEventsPerLaneMax + 5; ++i) {
    TraceSlice("busy", now_ns, now_ns);
  }
  std::thread([now_ns] { TraceSlice("calm", now_ns, now_ns); }).join();
  recorder->EndForTest();
  const auto recording = recorder->Read(kTrace);
  ASSERT_TRUE(recording.ok());
  ASSERT_EQ(recording->lanes.size(), 2);
  EXPECT_EQ(recording->lanes[0].events.size(), kTraceEventsPerLaneMax);
  EXPECT_EQ(recording->lanes[1].events.size(), 1);
  EXPECT_EQ(recording->dropped, 5);
}

TEST_F(TraceTest, LanesBeyondTheBoundAreCounted) {
  ASSERT_TRUE(recorder->Start(kTrace, hours(1)).ok());
  const int64_t now_ns = Clock::Real()->NowNs();
  for (size_t i = 0; i < kTraceLanesMax + 3; ++i) {
    std::thread([now_ns] { TraceSlice("short", now_ns, now_ns); }).join();
  }
  recorder->EndForTest();
  EXPECT_EQ(recorder->Read(kTrace)->lanes.size(), kTraceLanesMax);
  EXPECT_EQ(recorder->Read(kTrace)->dropped, 3);
}

TEST_F(TraceTest, AWaitIsRecordedWhenItsContinuationRuns) {
  const std::function<void(int)> untraced =
      TracedWait<int>("parked", 1, [](int) {});
  ASSERT_TRUE(recorder->Start(kTrace, hours(1)).ok());
  untraced(0);
  int got = 0;
  const auto done = TracedWait<int>("parked", 5, [&](int n) { got = n; });
  done(3);
  EXPECT_EQ(got, 3);
  recorder->EndForTest();
  const auto recording = recorder->Read(kTrace);
  ASSERT_EQ(recording->lanes.size(), 1);
  ASSERT_THAT(NamesOf(recording->lanes[0]), ElementsAre("parked"));
  EXPECT_TRUE(recording->lanes[0].events[0].is_wait);
  EXPECT_EQ(recording->lanes[0].events[0].args[0].value, 5);
}

TEST(TraceFlowTest, DependsOnEveryPart) {
  std::set<uint64_t> flows;
  for (uint64_t history : {1, 2}) {
    for (int shard : {0, 1}) {
      for (uint32_t slot : {0, 1}) {
        for (uint64_t sequence : {0, 1, 2}) {
          for (uint32_t block : {0u, 1u, kTraceRows}) {
            flows.insert(TraceFlowOf(history, shard, slot, sequence, block));
          }
        }
      }
    }
  }
  EXPECT_EQ(flows.size(), 2 * 2 * 2 * 3 * 3);
  EXPECT_EQ(TraceFlowOf(1, 0, 2, 3, 4), TraceFlowOf(1, 0, 2, 3, 4));
}

TEST(ClockOffsetTest, TheQuickestExchangeCounts) {
  ClockOffset offset;
  EXPECT_FALSE(offset.known());
  offset.Add(1000, 90'500, 1800);  // took 800
  offset.Add(2000, 92'010, 2020);  // took 20: theirs at our 2010
  offset.Add(3000, 99'999, 3900);
  EXPECT_TRUE(offset.known());
  EXPECT_EQ(offset.ns(), 90'000);
  EXPECT_EQ(offset.delay_ns(), 20);
}

TEST(ClockOffsetTest, TheErrorIsAtMostHalfOfTheDelay) {
  constexpr int64_t kAhead = -123'456'789;
  // The whole delay on either way, which is the worst that can be.
  for (const int64_t on_way_there : {0, 500}) {
    ClockOffset offset;
    offset.Add(10'000, 10'000 + on_way_there + kAhead, 10'500);
    EXPECT_LE(std::abs(offset.ns() - kAhead), offset.delay_ns() / 2);
  }
}

TEST(ClockOffsetTest, WhatMayBeOneClockIs) {
  for (const int64_t on_way_there : {0, 40, 99, 100}) {
    ClockOffset offset;
    offset.Add(1000, 1000 + on_way_there, 1100);
    EXPECT_EQ(offset.ns(), 0) << on_way_there;
  }
  for (const int64_t outside : {-2, 102}) {
    ClockOffset offset;
    offset.Add(1000, 1000 + outside, 1100);
    EXPECT_EQ(offset.ns(), outside - 50);
  }
}

TEST(ClockOffsetTest, AForeignNumberOverflowsNothing) {
  ClockOffset offset;
  offset.Add(0, std::numeric_limits<int64_t>::min(), 10);
  EXPECT_TRUE(offset.known());
  offset.Add(10, 5, 0);  // answered before it was asked: not believed
  EXPECT_EQ(offset.delay_ns(), 10);
}

}  // namespace
}  // namespace weir
