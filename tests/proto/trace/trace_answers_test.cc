#include "proto/trace/trace_answers.h"

#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using absl::StatusCode;

TraceRequest Request(uint64_t trace, uint32_t start_ms = 0) {
  TraceRequest request;
  request.set_trace(trace);
  request.set_start_ms(start_ms);
  return request;
}

class TraceAnswersTest : public testing::Test {
 protected:
  ~TraceAnswersTest() override {
    for (const uint64_t trace : {1, 2}) {
      TraceRecorder::Process()->Forget(trace);
    }
  }

  TraceAnswers answers_;
};

TEST_F(TraceAnswersTest, TellsTheTimeToEverybodyWhoMayAsk) {
  const int64_t before_ns = Clock::Real()->NowNs();
  const auto reply = answers_.Answer(TraceRequest());
  ASSERT_TRUE(reply.ok());
  EXPECT_GE(reply->now_ns(), before_ns);
  EXPECT_LE(reply->now_ns(), Clock::Real()->NowNs());
  EXPECT_FALSE(reply->ready());
  EXPECT_FALSE(TraceIsOn());
}

TEST_F(TraceAnswersTest, RecordsAndGivesItOutUntilItIsForgotten) {
  ASSERT_TRUE(answers_.Answer(Request(1, 60'000)).ok());
  { const TraceSpan span("work"); }
  EXPECT_FALSE(answers_.Answer(Request(1))->ready());
  EXPECT_EQ(answers_.Answer(Request(2, 1000)).status().code(),
            StatusCode::kResourceExhausted);
  TraceRecorder::Process()->EndForTest();
  const auto ready = answers_.Answer(Request(1));
  ASSERT_TRUE(ready.ok()) << ready.status();
  EXPECT_TRUE(ready->ready());
  ASSERT_EQ(ready->part_count(), 1);
  TraceRequest request = Request(1);
  request.set_part(0);
  for (int i = 0; i < 2; ++i) {  // an answer may be lost
    const auto part = answers_.Answer(request);
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_EQ(part->part().name(0), "work");
  }
  request.set_part(1);
  EXPECT_EQ(answers_.Answer(request).status().code(),
            StatusCode::kInvalidArgument);
  request.clear_part();
  request.set_forget(true);
  EXPECT_TRUE(answers_.Answer(request).ok());
  EXPECT_EQ(answers_.Answer(Request(1)).status().code(), StatusCode::kNotFound);
}

TEST_F(TraceAnswersTest, RefusesWhatIsTooLong) {
  EXPECT_EQ(answers_.Answer(Request(1, 60'001)).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_FALSE(TraceIsOn());
}

TEST_F(TraceAnswersTest, KnowsNothingOfATraceThatItDidNotTake) {
  EXPECT_EQ(answers_.Answer(Request(2)).status().code(), StatusCode::kNotFound);
  TraceRequest request;
  request.set_part(0);
  EXPECT_EQ(answers_.Answer(request).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir
