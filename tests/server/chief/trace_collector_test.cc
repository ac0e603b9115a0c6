#include "server/chief/trace_collector.h"

#include <chrono>
#include <string>

#include "common/base/limits.h"
#include "common/trace/trace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using absl::StatusCode;

TraceRequest Request(uint32_t start_ms = 0) {
  TraceRequest request;
  request.set_trace(7);
  request.set_start_ms(start_ms);
  return request;
}

TraceRequest PartRequest(uint32_t part) {
  TraceRequest request = Request();
  request.set_part(part);
  return request;
}

PutTraceRequest Put(uint64_t process, uint32_t number, bool last,
                    const std::string& name = "step") {
  PutTraceRequest request;
  request.set_trace(7);
  request.set_process(process);
  request.set_part_number(number);
  request.mutable_part()->add_name(name);
  request.set_last(last);
  return request;
}

class TraceCollectorTest : public testing::Test {
 protected:
  ~TraceCollectorTest() override { TraceRecorder::Process()->Forget(7); }

  void Begin(size_t workers) {
    ASSERT_TRUE(traces_.Answer(Request(1000)).ok());
    order_ = traces_.OrderFor(Request(1000), workers);
    TraceRecorder::Process()->EndForTest();
  }
  uint32_t PartCount() {
    const auto reply = traces_.Answer(Request());
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply->ready() ? reply->part_count() : 0;
  }

  FakeClock clock_;
  TraceCollector traces_{&clock_};
  TraceOrder order_;
};

TEST_F(TraceCollectorTest, IsReadyWhenEveryWorkerHasSentAll) {
  Begin(2);
  EXPECT_EQ(order_.trace(), 7);
  EXPECT_EQ(order_.duration_ms(), 1000);
  ASSERT_TRUE(traces_.Put(Put(11, 0, false, "a"), 0).ok());
  ASSERT_TRUE(traces_.Put(Put(11, 1, true, "b"), 0).ok());
  EXPECT_EQ(PartCount(), 0) << "worker 1 has sent nothing";
  EXPECT_EQ(traces_.Answer(Request())->workers_heard(), 1);
  EXPECT_EQ(traces_.Answer(Request())->workers_told(), 2);
  ASSERT_TRUE(traces_.Put(Put(22, 0, true, "c"), 1).ok());
  EXPECT_EQ(PartCount(), 4);
  EXPECT_FALSE(traces_.Answer(PartRequest(0))->part().has_rank());
  EXPECT_EQ(traces_.Answer(PartRequest(2))->part().name(0), "b");
  EXPECT_EQ(traces_.Answer(PartRequest(3))->part().name(0), "c");
  EXPECT_EQ(traces_.Answer(PartRequest(3))->part().rank(), 1);
  EXPECT_EQ(traces_.Answer(PartRequest(4)).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(TraceCollectorTest, ALateWorkerIsNotWaitedForForEver) {
  Begin(1);
  EXPECT_EQ(PartCount(), 0);
  clock_.Advance(std::chrono::seconds(1) + kTraceLateWait);
  EXPECT_EQ(PartCount(), 0);
  clock_.Advance(std::chrono::milliseconds(1));
  EXPECT_EQ(PartCount(), 1) << "the chief's own";
}

TEST_F(TraceCollectorTest, TheWorkerInTheChiefsProcessSendsNothing) {
  Begin(1);
  const uint64_t here = TraceRecorder::Process()->process();
  const auto reply = traces_.Put(Put(here, 0, true), 0);
  ASSERT_TRUE(reply.ok());
  EXPECT_TRUE(reply->same_process());
  EXPECT_EQ(PartCount(), 1);
  EXPECT_THAT(traces_.Answer(PartRequest(0))->part().also_rank(),
              testing::ElementsAre(0));
}

TEST_F(TraceCollectorTest, AWorkerIsWhoItProvedToBe) {
  Begin(1);
  PutTraceRequest request = Put(11, 0, true);
  request.mutable_part()->set_rank(5);
  request.mutable_part()->add_also_rank(6);
  ASSERT_TRUE(traces_.Put(request, 3).ok());
  EXPECT_EQ(traces_.Answer(PartRequest(1))->part().rank(), 3);
  EXPECT_EQ(traces_.Answer(PartRequest(1))->part().also_rank_size(), 0);
}

TEST_F(TraceCollectorTest, ARepeatChangesNothing) {
  Begin(1);
  ASSERT_TRUE(traces_.Put(Put(11, 0, false, "first"), 0).ok());
  ASSERT_TRUE(traces_.Put(Put(11, 0, true, "again"), 0).ok());
  EXPECT_EQ(PartCount(), 2);
  EXPECT_EQ(traces_.Answer(PartRequest(1))->part().name(0), "first");
}

TEST_F(TraceCollectorTest, OnlyTheTraceThatIsBeingTakenIsKept) {
  EXPECT_EQ(traces_.Put(Put(11, 0, true), 0).status().code(),
            StatusCode::kFailedPrecondition);
  Begin(1);
  PutTraceRequest other = Put(11, 0, true);
  other.set_trace(8);
  EXPECT_EQ(traces_.Put(other, 0).status().code(),
            StatusCode::kFailedPrecondition);
  TraceRequest forget = Request();
  forget.set_forget(true);
  ASSERT_TRUE(traces_.Answer(forget).ok());
  EXPECT_EQ(traces_.Put(Put(11, 0, true), 0).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(TraceCollectorTest, EveryWorkerHasTheSameShareOfTheMemory) {
  Begin(64);
  constexpr size_t kShare = kTraceBytesMax / 64;
  EXPECT_EQ(order_.events_max(), kShare / kTraceEventBytes);
  const std::string half(kShare / 2, 'x');
  ASSERT_TRUE(traces_.Put(Put(11, 0, false, half), 0).ok());
  EXPECT_EQ(traces_.Put(Put(11, 1, false, half), 0).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(traces_.Put(Put(12, 1, false, half), 1).ok());
}

// I2: a part costs its place, too, and says no more than a few bytes.
TEST_F(TraceCollectorTest, EmptyPartsAreNotForNothing) {
  Begin(64);
  PutTraceRequest request = Put(11, 0, false);
  request.clear_part();
  request.mutable_part();
  uint32_t kept = 0;
  while (kept < 100'000 && traces_.Put(request, 0).ok()) {
    request.set_part_number(++kept);
  }
  EXPECT_LT(kept, kTraceBytesMax / 64 / 100);
}

// I2.
TEST_F(TraceCollectorTest, AWorkerHasOnePlaceWhateverProcessItNames) {
  Begin(2);
  const std::string half(kTraceBytesMax / 4, 'x');
  ASSERT_TRUE(traces_.Put(Put(11, 0, false, half), 0).ok());
  EXPECT_EQ(traces_.Put(Put(12, 1, false, half), 0).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(traces_.Put(Put(22, 0, true), 1).ok());
  EXPECT_TRUE(traces_.Put(Put(12, 2, true), 0).ok());
  EXPECT_EQ(PartCount(), 4);
}

TEST_F(TraceCollectorTest, WorkersOfOneProcessSendItsTimelineOnce) {
  Begin(2);
  ASSERT_TRUE(traces_.Put(Put(11, 0, true), 0).ok());
  ASSERT_TRUE(traces_.Put(Put(11, 0, true), 1).ok());
  EXPECT_EQ(PartCount(), 2) << "the chief's own, and one";
}

TEST_F(TraceCollectorTest, StrangersHaveNoRoom) {
  Begin(1);
  ASSERT_TRUE(traces_.Put(Put(11, 0, false), 0).ok());
  EXPECT_EQ(traces_.Put(Put(12, 0, false), 1).status().code(),
            StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace weir
