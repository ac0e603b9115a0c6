#include "server/chief/report/reporter.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weir {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

JobReport Frame(int workers, int shards) {
  JobReport report;
  report.set_mode("sync");
  for (int w = 0; w < workers; ++w) {
    report.add_worker()->set_slot(static_cast<uint32_t>(w));
    report.mutable_worker(w)->set_state("working");
  }
  for (int s = 0; s < shards; ++s) {
    report.add_shard()->set_index(static_cast<uint32_t>(s));
  }
  return report;
}

TEST(ReporterTest, TellsWhoComesLastAndForHowLongTheOthersWait) {
  Reporter reporter(2, 2);
  for (uint64_t i = 0; i < 12; ++i) {
    const int64_t now_ns = static_cast<int64_t>(i) * kSecond;
    for (uint32_t w = 0; w < 2; ++w) {
      Progress progress;
      progress.set_slot(w);
      progress.mutable_phases()->set_contributions(10);
      progress.mutable_phases()->set_step_ns(kSecond);
      progress.mutable_phases()->set_compute_ns(w == 1 ? 900'000'000
                                                       : 400'000'000);
      reporter.AddProgress(progress, now_ns);
    }
    for (int s = 0; s < 2; ++s) {
      PsStatus status;
      // Ten steps a second of two blocks; worker 1 is last in nine of ten.
      status.add_last_contributor(i * 2);
      status.add_last_contributor(i * 18);
      status.add_last_alone_ns(0);
      status.add_last_alone_ns(i * 18 * 50'000'000);
      reporter.AddShard(s, status, now_ns);
    }
  }
  JobReport report = Frame(2, 2);
  reporter.Fill({}, 12 * kSecond, &report);
  EXPECT_NEAR(report.worker(1).last_share(), 0.9, 1e-9);
  EXPECT_NEAR(report.worker(1).alone_share(), 0.45, 1e-9);
  EXPECT_EQ(report.cause().kind(), "slow_worker");
  EXPECT_EQ(report.cause().task(), "worker/1");
}

TEST(ReporterTest, ListsTheSlowestLayersInForwardOrder) {
  Reporter reporter(1, 1);
  std::vector<std::string> variables;
  for (int v = 0; v < 200; ++v) {
    variables.push_back("layer" + std::to_string(v));
  }
  for (uint64_t i = 0; i < 12; ++i) {
    Progress progress;
    progress.mutable_phases()->set_contributions(10);
    progress.mutable_phases()->set_step_ns(kSecond);
    for (uint64_t v = 0; v < 200; ++v) {
      progress.mutable_load()->add_variable_wait_ns(
          i * (v % 2 == 1 ? 2'000'000 : 1'000'000));
    }
    reporter.AddProgress(progress, static_cast<int64_t>(i) * kSecond);
  }
  JobReport report = Frame(1, 1);
  reporter.Fill(variables, 12 * kSecond, &report);
  ASSERT_EQ(report.layer_size(), int{Reporter::kLayersMax});
  for (int i = 0; i < report.layer_size(); ++i) {
    EXPECT_NEAR(report.layer(i).wait_share(), 0.002, 1e-9);
    if (i > 0) {
      const auto number = [&](int k) {
        return std::stoi(report.layer(k).name().substr(5));
      };
      EXPECT_LT(number(i - 1), number(i));
    }
  }
}

TEST(ReporterTest, KeepsTheNewestEvents) {
  Reporter reporter(1, 1);
  for (int i = 0; i < 250; ++i) {
    reporter.AddEvent(i % 2 == 0, "event " + std::to_string(i), i * kSecond);
  }
  JobReport report = Frame(1, 1);
  reporter.Fill({}, kSecond, &report);
  ASSERT_EQ(report.event_size(), int{Reporter::kEventsMax});
  EXPECT_EQ(report.event(0).text(), "event 150");
  EXPECT_EQ(report.event(99).text(), "event 249");
  EXPECT_DOUBLE_EQ(report.event(99).unix_seconds(), 249.0);
}

TEST(ReporterTest, TellsOfCheckpointsAndTables) {
  Reporter reporter(1, 2);
  reporter.CheckpointFailed();
  reporter.CheckpointCommitted("ckpt-7", 1e6, 1.5, 10 * kSecond);
  for (int s = 0; s < 2; ++s) {
    PsStatus status;
    status.add_table()->set_name("users");
    status.mutable_table(0)->set_rows(100);
    status.mutable_table(0)->set_bytes(1000);
    reporter.AddShard(s, status, kSecond);
  }
  JobReport report = Frame(1, 2);
  reporter.Fill({}, 14 * kSecond, &report);
  EXPECT_EQ(report.checkpoint().newest(), "ckpt-7");
  EXPECT_DOUBLE_EQ(report.checkpoint().age_seconds(), 4.0);
  EXPECT_DOUBLE_EQ(report.checkpoint().last_seconds(), 1.5);
  EXPECT_DOUBLE_EQ(report.checkpoint().failures(), 1.0);
  ASSERT_EQ(report.table_size(), 1);
  EXPECT_DOUBLE_EQ(report.table(0).rows(), 200.0);
  EXPECT_DOUBLE_EQ(report.table(0).bytes(), 2000.0);
}

TEST(ReporterTest, AHeartbeatOfNoSlotIsDropped) {
  Reporter reporter(1, 1);
  Progress progress;
  progress.set_slot(1u << 31);
  reporter.AddProgress(progress, kSecond);
  JobReport report = Frame(1, 1);
  reporter.Fill({}, kSecond, &report);
  EXPECT_EQ(report.cause().kind(), "unknown");
}

}  // namespace
}  // namespace weir
