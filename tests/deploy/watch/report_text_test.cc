#include "deploy/watch/report_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSecond = 1'000'000'000;

JobReport TwoWorkers() {
  JobReport report;
  report.set_job("digits");
  report.set_phase("training");
  report.set_mode("sync");
  report.set_step(1200);
  report.set_step_count(4000);
  report.set_loss(0.5);
  report.set_examples(1000);
  report.set_examples_per_second(2000);
  report.mutable_cause()->set_kind("slow_worker");
  report.mutable_cause()->set_task("worker/1");
  report.mutable_cause()->set_sentence("worker/1 is slow");
  report.mutable_cause()->set_advice("replace it");
  for (uint32_t w = 0; w < 2; ++w) {
    WorkerReport* const worker = report.add_worker();
    worker->set_slot(w);
    worker->set_host("node-7");
    worker->set_state("working");
    worker->set_step_seconds(w == 0 ? 0.010 : 0.030);
    worker->set_compute_share(0.62);
  }
  ShardReport* const shard = report.add_shard();
  shard->set_address("127.0.0.1:2222");
  shard->set_state("active");
  shard->set_bytes_sent_per_second(3 * 1024.0 * 1024.0);
  return report;
}

TEST(ReportTextTest, SaysWhereTheJobIsAndWhatHoldsItBack) {
  const std::string text = ReportText(TwoWorkers(), 10);
  EXPECT_THAT(text, HasSubstr("digits  training  sync  step 1200 of 4000 "
                              "( 30%)  loss 0.5000  2000 examples/s\n"));
  EXPECT_THAT(text, HasSubstr("worker/1 is slow\n  -> replace it\n"));
  EXPECT_THAT(text, HasSubstr("30.0 ms"));
  EXPECT_THAT(text, HasSubstr(" 62%"));
  EXPECT_THAT(text, HasSubstr("127.0.0.1:2222"));
  EXPECT_THAT(text, HasSubstr("3.0 MiB"));
}

TEST(ReportTextTest, ListsTheSlowestWorkersWhereThereIsNoRoomForAll) {
  JobReport report = TwoWorkers();
  report.mutable_worker(0)->set_host("fast");
  report.mutable_worker(1)->set_host("slow");
  const std::string text = ReportText(report, 1);
  EXPECT_THAT(text, HasSubstr("slow "));
  EXPECT_THAT(text, Not(HasSubstr("fast")));
  EXPECT_THAT(text, HasSubstr("(the slowest 1 of 2)"));
}

TEST(ReportTextTest, AScreenHasAsManyRowsAsItsTerminalHasLinesFor) {
  JobReport report = TwoWorkers();
  report.mutable_cause()->set_advice(std::string(200, 'a'));
  for (uint32_t w = 2; w < 100; ++w) {
    *report.add_worker() = report.worker(1);
  }
  *report.add_shard() = report.shard(0);
  for (const int lines : {24, 50}) {
    const std::string text =
        ReportScreen(report, {.lines = lines, .columns = 80});
    int taken = 0;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
      const bool is_row = line.find("working") != std::string::npos ||
                          line.find("active") != std::string::npos;
      EXPECT_TRUE(line.size() <= 80 || !is_row) << line;
      taken += std::max(1, (static_cast<int>(line.size()) + 79) / 80);
    }
    EXPECT_LT(taken, lines) << text;
    EXPECT_GE(taken, lines - 2) << text;
    EXPECT_THAT(text, HasSubstr(std::string(200, 'a')));
  }
}

TEST(ReportTextTest, ASmallTerminalStillGetsThreeWorkers) {
  JobReport report = TwoWorkers();
  *report.add_worker() = report.worker(1);
  *report.add_worker() = report.worker(1);
  const std::string text = ReportScreen(report, {.lines = 2, .columns = 80});
  EXPECT_THAT(text, HasSubstr("(the slowest 3 of 4)"));
}

TEST(ReportTextTest, AFileGetsTheWholeReport) {
  EXPECT_EQ(ReportScreen(TwoWorkers(), {}), ReportText(TwoWorkers(), 100));
}

// Hosts and messages are what peers said.
TEST(ReportTextTest, WordsOfOthersDoNotMoveTheCursor) {
  JobReport report = TwoWorkers();
  report.mutable_worker(0)->set_host("a\033[2J\nb");
  report.set_message("x\ry");
  report.mutable_cause()->set_sentence("s\033]0;t\007");
  const std::string text = ReportText(report, 10);
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(text.find('\007'), std::string::npos);
}

TEST(ReportTextTest, AnEmptyReportIsNoError) {
  EXPECT_THAT(ReportText(JobReport(), 10), HasSubstr("step 0"));
}

TEST(ReportTextTest, OnlyACauseThatIsOffIsWorthALine) {
  Cause cause = TwoWorkers().cause();
  EXPECT_EQ(CauseText(cause), "worker/1 is slow: replace it");
  cause.set_kind("compute");
  EXPECT_EQ(CauseText(cause), "");
}

TEST(ReportTextTest, ACauseIsSaidOnceWhenItStays) {
  CauseNotes notes;
  const Cause cause = TwoWorkers().cause();
  Cause other = cause;
  other.set_task("worker/0");
  EXPECT_EQ(notes.Next(cause, 1 * kSecond), "");
  EXPECT_EQ(notes.Next(other, 5 * kSecond), "");
  EXPECT_EQ(notes.Next(cause, 6 * kSecond), "");
  EXPECT_EQ(notes.Next(cause, 15 * kSecond), "");
  EXPECT_EQ(notes.Next(cause, 16 * kSecond), "worker/1 is slow: replace it");
  EXPECT_EQ(notes.Next(cause, 60 * kSecond), "");
}

}  // namespace
}  // namespace weir
