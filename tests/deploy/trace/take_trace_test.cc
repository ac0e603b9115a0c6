#include "deploy/trace/take_trace.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using absl::StatusCode;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

// A task that answers as a ps or a chief does, by a clock that is ahead.
struct FakeTask {
  explicit FakeTask(FakeClock* clock, int64_t ahead = 0)
      : clock_(clock), ahead_ns(ahead) {}

  TraceSource Source(const std::string& name) {
    return {name, [this](const TraceRequest& r) { return Answer(r); }};
  }

  absl::StatusOr<TraceReply> Answer(const TraceRequest& request) {
    ++calls;
    if (calls > dies_after || !fails.ok()) {
      return fails.ok() ? absl::UnavailableError("connection refused") : fails;
    }
    clock_->Advance(std::chrono::microseconds(50));
    if (request.start_ms() > 0 && !refuses.ok()) {
      return refuses;
    }
    started = started || request.start_ms() > 0;
    forgotten = forgotten || request.forget();
    TraceReply reply = kept;
    reply.set_ready(started && calls >= ready_at);
    reply.set_part_count(static_cast<uint32_t>(parts.size()));
    if (request.has_part()) {
      *reply.mutable_part() = parts.at(request.part());
    }
    reply.set_now_ns(clock_->NowNs() + ahead_ns);
    clock_->Advance(std::chrono::microseconds(50));
    return reply;
  }

  FakeClock* const clock_;
  const int64_t ahead_ns;
  int calls = 0;
  int dies_after = 1'000'000;
  int ready_at = 0;
  absl::Status fails;
  absl::Status refuses;
  TraceReply kept;
  std::vector<TracePart> parts = {TracePart()};
  bool started = false;
  bool forgotten = false;
};

class TakeTraceTest : public testing::Test {
 protected:
  absl::StatusOr<ChromeTrace> Take(std::vector<TraceSource> sources) {
    TakeTraceOptions options;
    options.trace = 7;
    options.duration = milliseconds(2000);
    options.clock = &clock_;
    options.note = [this](const std::string& line) { notes_.push_back(line); };
    options.sleep = [this](milliseconds time) { clock_.Advance(time); };
    return TakeTrace(std::move(sources), options);
  }

  FakeClock clock_;
  FakeTask chief_{&clock_, 1'000'000};
  FakeTask ps_{&clock_, -5'000'000};
  std::vector<std::string> notes_;
};

TEST_F(TakeTraceTest, CollectsTheChiefItsWorkersAndEveryPs) {
  chief_.parts.resize(4);
  chief_.parts[0].add_name("own");
  for (int i = 1; i < 4; ++i) {
    chief_.parts[i].set_rank(i == 2 ? 0 : 1);
    chief_.parts[i].set_ahead_ns(300);
    chief_.parts[i].set_delay_ns(20);
  }
  const auto trace = Take({chief_.Source("chief"), ps_.Source("ps 0")});
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_THAT(trace->tasks, SizeIs(4));
  EXPECT_EQ(trace->tasks[0].name, "chief");
  EXPECT_EQ(trace->tasks[1].name, "worker 0");
  EXPECT_EQ(trace->tasks[2].name, "worker 1");
  EXPECT_THAT(trace->tasks[2].parts, SizeIs(2));
  EXPECT_EQ(trace->tasks[3].name, "ps 0");
  // Each exchange takes 100 us, and reads the clock in its middle.
  EXPECT_EQ(trace->tasks[0].ahead_ns, 1'000'000);
  EXPECT_EQ(trace->tasks[1].ahead_ns, 1'000'300);
  EXPECT_EQ(trace->tasks[1].delay_ns, 100'020);
  EXPECT_EQ(trace->tasks[3].ahead_ns, -5'000'000);
  EXPECT_GE(trace->end_ns - trace->begin_ns, 2'000'000'000);
  EXPECT_TRUE(chief_.forgotten);
  EXPECT_TRUE(ps_.forgotten);
  EXPECT_THAT(notes_, testing::IsEmpty());
}

TEST_F(TakeTraceTest, NamesTheWorkerInTheChiefsProcess) {
  chief_.parts[0].add_also_rank(0);
  const auto trace = Take({chief_.Source("chief")});
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ(trace->tasks[0].name, "chief and worker 0");
}

TEST_F(TakeTraceTest, APsThatDoesNotAnswerIsLeftOutAloud) {
  ps_.fails = absl::UnavailableError("refused\x1b[2J");
  const auto trace = Take({chief_.Source("chief"), ps_.Source("ps 0")});
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(trace->tasks, SizeIs(1));
  EXPECT_THAT(notes_, ElementsAre("ps 0 does not answer, so it is left out: "
                                  "refused\\x1b[2J"));
}

TEST_F(TakeTraceTest, APsThatDiesMeanwhileIsLeftOut) {
  ps_.dies_after = 8;  // between its start and the second look at its clock
  const auto trace = Take({chief_.Source("chief"), ps_.Source("ps 0")});
  ASSERT_TRUE(trace.ok());
  EXPECT_THAT(trace->tasks, SizeIs(1));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("ps 0 is gone")));
}

TEST_F(TakeTraceTest, WithoutAnyAnswerThereIsNoTrace) {
  chief_.fails = absl::UnavailableError("connection refused");
  const auto trace = Take({chief_.Source("chief")});
  EXPECT_EQ(trace.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(trace.status().message()),
              HasSubstr("chief does not answer: connection refused"));
}

TEST_F(TakeTraceTest, AnotherTraceIsInTheWay) {
  chief_.refuses = absl::ResourceExhaustedError("another trace is being taken");
  EXPECT_EQ(Take({chief_.Source("chief")}).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_FALSE(chief_.started);
}

TEST_F(TakeTraceTest, WaitsForWorkersAndSaysWhichAreMissing) {
  chief_.ready_at = 30;
  chief_.kept.set_workers_told(3);
  chief_.kept.set_workers_heard(2);
  ASSERT_TRUE(Take({chief_.Source("chief")}).ok());
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("only 2 of 3 workers")));
}

TEST_F(TakeTraceTest, NothingIsWaitedForForEver) {
  ps_.ready_at = 1'000'000;
  const auto trace = Take({chief_.Source("chief"), ps_.Source("ps 0")});
  ASSERT_TRUE(trace.ok());
  EXPECT_THAT(trace->tasks, SizeIs(1));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("its recording does not end")));
}

}  // namespace
}  // namespace weir
