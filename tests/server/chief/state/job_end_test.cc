// What workers and ps hear of the end is in job_state_end_test.cc, too.
#include "server/chief/state/job_end.h"

#include <string>

#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::SizeIs;
using Phase = JobFacts::Phase;

// The end of a job on two shards with two workers.
struct Ending {
  explicit Ending(bool done_before = false, bool finished = false)
      : facts(Options(done_before, finished)), end(&facts) {}
  JobOptions Options(bool done_before, bool finished) {
    JobOptions options;
    options.spec.set_name("mine");
    options.spec.mutable_limits()->set_lost_after_seconds(10);
    options.ps_addresses = {"a:1", "b:1"};
    options.worker_count = 2;
    options.chief_secret = "secret";
    options.clock = &clock;
    if (done_before) {
      options.done_job = "mine";
    }
    if (finished) {
      options.finished_job = "mine";
    }
    return options;
  }

  // Shard `s` says what it holds.
  void Hello(int s, const std::string& job) {
    HelloReply hello;
    if (!job.empty()) {
      hello.set_state(ACTIVE);
      hello.set_job(job);
      hello.set_history(7);
    }
    facts.tracker.Asked(s, facts.now_ns());
    facts.tracker.Answered(s, hello, facts.now_ns());
  }
  // The shards that were sent Shutdown since the last time.
  std::vector<int> ShutDowns() {
    end.Advance();
    std::vector<int> shards;
    for (const Action& action : facts.actions) {
      const auto* call = std::get_if<ShardCall>(&action);
      if (call != nullptr &&
          std::holds_alternative<ShutdownRequest>(call->request)) {
        EXPECT_EQ(std::get<ShutdownRequest>(call->request).chief_secret(),
                  "secret");
        shards.push_back(call->shard);
      }
      if (std::holds_alternative<Finish>(action)) {
        ++finishes;
      }
    }
    facts.actions.clear();
    return shards;
  }
  // The same once DONE was seen.
  std::vector<int> ShutDownsOnceLooked() {
    EXPECT_THAT(ShutDowns(), SizeIs(0));
    end.OnLooked(absl::OkStatus());
    return ShutDowns();
  }
  bool Told(uint32_t rank) {
    RegisterRequest request;
    request.set_rank(rank);
    const RegisterReply reply = end.AnswerLate(request, end.status());
    return reply.has_over() && reply.over().code() == 0;
  }

  FakeClock clock;
  JobFacts facts;
  JobEnd end;
  int finishes = 0;
};

// ------------------------------------------------- a job that was done before

TEST(JobEndTest, ADoneJobTellsEveryWorkerAndEveryPsThenEnds) {
  Ending e(/*done_before=*/true);
  e.end.BeginDone("mine");
  EXPECT_THAT(e.ShutDowns(), SizeIs(0));
  e.Hello(0, "mine");
  EXPECT_EQ(e.ShutDownsOnceLooked(), std::vector<int>{0});
  EXPECT_THAT(e.ShutDowns(), SizeIs(0));  // once
  e.Hello(1, "");                         // EMPTY
  EXPECT_EQ(e.ShutDownsOnceLooked(), std::vector<int>{1});
  e.end.OnShutdown(0, absl::OkStatus());
  e.end.OnShutdown(1, absl::OkStatus());
  EXPECT_TRUE(e.Told(0));
  EXPECT_TRUE(e.Told(7));  // who belongs to no job is told as well
  e.ShutDowns();
  EXPECT_EQ(e.finishes, 0);
  EXPECT_TRUE(e.Told(1));
  e.clock.Advance(std::chrono::seconds(2));
  e.ShutDowns();
  EXPECT_EQ(e.finishes, 1);
  EXPECT_TRUE(e.end.status().ok());
}

TEST(JobEndTest, NoPsIsEndedOnceDoneIsGone) {  // I6
  Ending e(/*done_before=*/true);
  e.end.BeginDone("mine");
  e.Hello(0, "");
  e.Hello(1, "mine");
  EXPECT_THAT(e.ShutDowns(), SizeIs(0));
  e.end.OnLooked(absl::UnavailableError("no answer"));
  EXPECT_THAT(e.ShutDowns(), SizeIs(0));
  e.clock.Advance(std::chrono::seconds(2));
  EXPECT_THAT(e.ShutDowns(), SizeIs(0));
  e.end.OnLooked(absl::NotFoundError("no DONE"));
  EXPECT_THAT(e.ShutDowns(), SizeIs(0));
  EXPECT_TRUE(e.Told(0) && e.Told(1));
  e.clock.Advance(std::chrono::seconds(2));
  e.ShutDowns();
  EXPECT_EQ(e.finishes, 1);
}

// The job waits 10 s for its tasks, and a ps is back only then.
TEST(JobEndTest, TheEndWaitsForALookThatHasBegun) {
  Ending e(/*done_before=*/true);
  e.end.BeginDone("mine");
  e.clock.Advance(std::chrono::seconds(9));
  e.Hello(0, "");
  EXPECT_THAT(e.ShutDowns(), SizeIs(0));
  e.clock.Advance(std::chrono::seconds(4));
  EXPECT_THAT(e.ShutDowns(), SizeIs(0));
  EXPECT_EQ(e.finishes, 0);
  e.end.OnLooked(absl::OkStatus());
  EXPECT_EQ(e.ShutDowns(), std::vector<int>{0});
  EXPECT_EQ(e.finishes, 0);
  e.end.OnShutdown(0, absl::OkStatus());
  e.ShutDowns();
  EXPECT_EQ(e.finishes, 1);
}

TEST(JobEndTest, APlaceThatDoesNotSayWhetherDoneIsThereKeepsNoPs) {
  Ending e(/*done_before=*/true);
  e.end.BeginDone("mine");
  e.Hello(0, "");
  EXPECT_THAT(e.ShutDowns(), SizeIs(0));
  e.clock.Advance(std::chrono::seconds(4));
  e.end.Tick();
  EXPECT_THAT(e.ShutDowns(), SizeIs(0));
  e.clock.Advance(std::chrono::seconds(2));
  e.end.Tick();
  EXPECT_EQ(e.ShutDowns(), std::vector<int>{0});
}

// A chief of scripts was started again, and nobody goes on with the job.
TEST(JobEndTest, AFinishedJobThatNobodyGoesOnWithIsDone) {
  Ending e(/*done_before=*/false, /*finished=*/true);
  e.end.Fail(absl::UnavailableError("ps 0 did not answer for 180 s"));
  EXPECT_TRUE(e.end.done_before());
  e.ShutDowns();
  e.clock.Advance(std::chrono::seconds(11));
  e.ShutDowns();
  EXPECT_EQ(e.finishes, 1);
  EXPECT_TRUE(e.end.status().ok());
}

TEST(JobEndTest, AFinishedJobThatGoesOnCanFail) {
  Ending e(/*done_before=*/false, /*finished=*/true);
  e.facts.Enter(JobFacts::Phase::kTraining);
  e.end.Fail(absl::UnavailableError("a ps is lost"));
  EXPECT_FALSE(e.end.done_before());
  EXPECT_EQ(e.end.status(), absl::UnavailableError("a ps is lost"));
}

TEST(JobEndTest, APsOfAnotherJobIsLeftAlone) {  // I5
  Ending e(/*done_before=*/true);
  e.end.BeginDone("mine");
  e.Hello(0, "mine");
  e.Hello(1, "other");
  EXPECT_EQ(e.ShutDownsOnceLooked(), std::vector<int>{0});
  e.end.OnShutdown(0, absl::OkStatus());
  e.Told(0);
  e.Told(1);
  e.clock.Advance(std::chrono::seconds(2));
  EXPECT_THAT(e.ShutDowns(), SizeIs(0));
  EXPECT_EQ(e.finishes, 1);
}

TEST(JobEndTest, ADoneJobWaitsOnlySoLongForThoseThatStayAway) {
  Ending e(/*done_before=*/true);
  e.end.BeginDone("mine");
  for (const int finishes : {0, 1}) {
    e.ShutDowns();
    EXPECT_EQ(e.finishes, finishes);
    e.clock.Advance(std::chrono::seconds(11));
  }
}

TEST(JobEndTest, ADoneJobAsksAPsUntilItAnswersAndASignalEndsTheWait) {
  Ending e(/*done_before=*/true);
  e.end.BeginDone("mine");
  e.end.Tick();
  EXPECT_THAT(e.facts.actions, SizeIs(2));  // a Hello to each
  for (const int s : {0, 1}) {
    e.facts.tracker.Answered(s, absl::UnavailableError("starting"), 0);
  }
  e.clock.Advance(std::chrono::seconds(1));
  e.end.Tick();
  EXPECT_THAT(e.facts.actions, SizeIs(4));
  e.end.OnStop();
  e.ShutDowns();
  EXPECT_EQ(e.finishes, 1);
  e.end.OnStop();
  e.ShutDowns();
  EXPECT_EQ(e.finishes, 1);  // I1
}

TEST(JobEndTest, AShutdownThatDidNotArriveIsSentAgain) {
  Ending e(/*done_before=*/true);
  e.end.BeginDone("mine");
  e.Hello(0, "mine");
  EXPECT_EQ(e.ShutDownsOnceLooked(), std::vector<int>{0});
  e.end.OnShutdown(0, absl::UnavailableError("restarting"));
  EXPECT_THAT(e.ShutDowns(), SizeIs(0));  // not at once
  e.clock.Advance(std::chrono::seconds(1));
  e.end.Tick();
  EXPECT_THAT(e.ShutDowns(), SizeIs(0));  // it may be another process by now
  e.Hello(0, "mine");
  EXPECT_EQ(e.ShutDownsOnceLooked(), std::vector<int>{0});
  // A ps that refuses another chief's secret goes on, and is not waited for.
  e.end.OnShutdown(0, absl::PermissionDeniedError("another chief's"));
  e.clock.Advance(std::chrono::seconds(1));
  e.end.Tick();
  EXPECT_THAT(e.ShutDowns(), SizeIs(0));
}

// -------------------------------------------------------- a job of this chief

// I7. A heartbeat breaks as the job ends, and then the connection on which the
// answer to the worker's Register is.
TEST(JobEndTest, AWorkerWhoseAnswerIsLostCanAskAgain) {
  Ending e;
  e.facts.Enter(Phase::kEvaluating);
  e.facts.roster.mutable_worker(1)->asked = true;
  e.end.Begin(absl::OkStatus(), /*shutdown_ps=*/true);
  EXPECT_THAT(e.ShutDowns(), SizeIs(0));
  EXPECT_TRUE(e.Told(1));
  EXPECT_THAT(e.ShutDowns(), SizeIs(2));  // they need not wait
  e.end.OnShutdown(0, absl::OkStatus());
  e.end.OnShutdown(1, absl::OkStatus());
  e.clock.Advance(std::chrono::milliseconds(1900));
  e.ShutDowns();
  EXPECT_EQ(e.finishes, 0);
  EXPECT_TRUE(e.Told(1));
  e.clock.Advance(std::chrono::milliseconds(1900));
  e.ShutDowns();
  EXPECT_EQ(e.finishes, 0);
  e.clock.Advance(std::chrono::milliseconds(200));
  e.ShutDowns();
  EXPECT_EQ(e.finishes, 1);
}

TEST(JobEndTest, AWorkerThatAsksForEverHoldsTheEndUpForAWhileOnly) {
  Ending e;
  e.facts.Enter(Phase::kEvaluating);
  e.facts.roster.mutable_worker(0)->asked = true;
  e.end.Begin(absl::OkStatus(), /*shutdown_ps=*/false);
  for (int s = 0; s < 11; ++s) {
    e.Told(0);
    e.ShutDowns();
    EXPECT_EQ(e.finishes, 0) << s;
    e.clock.Advance(std::chrono::seconds(1));
  }
  e.ShutDowns();
  EXPECT_EQ(e.finishes, 1);
}

TEST(JobEndTest, TheFirstEndCounts) {  // I1
  Ending e;
  e.facts.Enter(Phase::kTraining);
  e.end.Begin(absl::UnavailableError("a ps is lost"), /*shutdown_ps=*/true);
  e.end.Begin(absl::InternalError("later"), true);
  e.end.Fail(absl::InternalError("later"));
  EXPECT_TRUE(absl::IsUnavailable(e.end.status()));
  EXPECT_EQ(e.ShutDowns(), (std::vector<int>{0, 1}));
  e.end.OnShutdown(0, absl::OkStatus());
  e.end.OnShutdown(1, absl::OkStatus());
  e.ShutDowns();
  EXPECT_EQ(e.finishes, 1);
}

TEST(JobEndTest, AfterATransientErrorAnotherChiefMayGoOn) {
  Ending e;
  e.facts.Enter(Phase::kTraining);
  e.end.Fail(absl::UnavailableError("no progress"));
  EXPECT_THAT(e.ShutDowns(), SizeIs(0));
  EXPECT_EQ(e.finishes, 1);
}

TEST(JobEndTest, AChiefThatWasReplacedSaysNothingToAnybody) {  // I4
  Ending e;
  e.facts.Enter(Phase::kTraining);
  e.facts.roster.mutable_worker(0)->stream = 5;
  e.end.Fail(absl::PermissionDeniedError("another history"));
  EXPECT_TRUE(e.end.superseded());
  ASSERT_THAT(e.facts.actions, SizeIs(2));
  EXPECT_EQ(std::get<EndStream>(e.facts.actions[0]).stream, 5u);
  EXPECT_TRUE(std::holds_alternative<Finish>(e.facts.actions[1]));
}

TEST(JobEndTest, DoneStaysWhereNobodyMayHaveMoreToDo) {
  for (const bool had_finished : {false, true}) {
    Ending e;
    e.facts.step_count = 10;
    e.facts.had_finished = had_finished;
    e.end.OnTraining();
    ASSERT_THAT(e.facts.actions, SizeIs(had_finished ? 0 : 1));
    EXPECT_TRUE(had_finished ||
                std::holds_alternative<RemoveDone>(e.facts.actions[0]));
  }
}

TEST(JobEndTest, DoneIsWrittenUntilItIsThere) {  // I2, I3
  Ending e;
  e.facts.Enter(Phase::kLast);
  e.facts.roster.mutable_worker(0)->stream = 5;
  e.end.WriteDone();
  e.end.WriteDone();
  ASSERT_THAT(e.facts.actions, SizeIs(1));
  e.end.OnDoneWritten(absl::UnavailableError("the disk is full"));
  e.end.WriteDone();
  ASSERT_THAT(e.facts.actions, SizeIs(2));  // it says so, and waits
  e.clock.Advance(std::chrono::seconds(1));
  e.end.WriteDone();
  ASSERT_THAT(e.facts.actions, SizeIs(3));
  EXPECT_EQ(e.facts.phase, Phase::kLast);
  e.end.OnDoneWritten(absl::OkStatus());
  EXPECT_EQ(e.facts.phase, Phase::kEnding);
  const auto& send = std::get<SendCommand>(e.facts.actions.back());
  EXPECT_TRUE(send.command.has_stop());
}

}  // namespace
}  // namespace weir
