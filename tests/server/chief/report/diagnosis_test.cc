#include "server/chief/report/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace weir {
namespace {

using ::testing::HasSubstr;

// Four workers on hosts of their own that compute 70% of a step of 100 ms, and
// three ps. Nothing stands out.
JobReport Healthy(const std::string& mode) {
  JobReport report;
  report.set_mode(mode);
  for (uint32_t w = 0; w < 4; ++w) {
    WorkerReport* const worker = report.add_worker();
    worker->set_slot(w);
    worker->set_host("host-" + std::to_string(w));
    worker->set_state("working");
    worker->set_step_seconds(0.1);
    worker->set_contributions_per_second(10);
    worker->set_bytes_pulled_per_second(10e6);
    worker->set_compute_share(0.7);
    worker->set_data_share(0.02);
    worker->set_pull_share(0.2);
    worker->set_push_share(0.05);
    worker->set_last_share(0.25);
    worker->set_alone_share(0.02);
    for (int s = 0; s < 3; ++s) {
      worker->add_shard_wait_share(0.08);
    }
    worker->mutable_host_load()->set_processors(4);
    worker->mutable_host_load()->set_cpu_seconds_per_second(2);
    worker->mutable_host_load()->set_wake_late_seconds(0.0002);
  }
  for (uint32_t s = 0; s < 3; ++s) {
    ShardReport* const shard = report.add_shard();
    shard->set_index(s);
    shard->set_apply_seconds(0.0003);
    shard->mutable_host_load()->set_processors(4);
    shard->mutable_host_load()->set_cpu_seconds_per_second(1);
    shard->mutable_host_load()->set_wake_late_seconds(0.0002);
  }
  return report;
}

TEST(DiagnosisTest, NothingIsKnownBeforeAWorkerWorks) {
  EXPECT_EQ(Diagnose(JobReport()).kind(), "unknown");
}

TEST(DiagnosisTest, AHealthyJobComputesAndNamesNoTask) {
  for (const char* mode : {"sync", "async", "bounded_staleness"}) {
    const Cause cause = Diagnose(Healthy(mode));
    EXPECT_EQ(cause.kind(), "compute") << mode;
    EXPECT_EQ(cause.task(), "");
    EXPECT_THAT(cause.sentence(), HasSubstr("70%"));
  }
}

// Worker 3 computes twice as long; in sync the others wait for it.
TEST(DiagnosisTest, NamesASlowWorker) {
  JobReport async = Healthy("async");
  async.mutable_worker(3)->set_step_seconds(0.25);
  async.mutable_worker(3)->set_compute_share(0.85);
  EXPECT_EQ(Diagnose(async).kind(), "slow_worker");
  EXPECT_EQ(Diagnose(async).task(), "worker/3");

  JobReport sync = Healthy("sync");
  for (int w = 0; w < 4; ++w) {
    sync.mutable_worker(w)->set_step_seconds(0.2);
    sync.mutable_worker(w)->set_compute_share(0.35);
    sync.mutable_worker(w)->set_pull_share(0.6);
    sync.mutable_worker(w)->set_last_share(0.03);
  }
  sync.mutable_worker(3)->set_compute_share(0.9);
  sync.mutable_worker(3)->set_pull_share(0.05);
  sync.mutable_worker(3)->set_last_share(0.91);
  sync.mutable_worker(3)->set_alone_share(0.5);
  const Cause cause = Diagnose(sync);
  EXPECT_EQ(cause.kind(), "slow_worker");
  EXPECT_EQ(cause.task(), "worker/3");
  EXPECT_THAT(cause.sentence(), HasSubstr("last contributor of 91%"));
  EXPECT_FALSE(cause.advice().empty());
}

TEST(DiagnosisTest, ASlowWorkerThatLacksProcessorsSaysSo) {
  JobReport report = Healthy("async");
  WorkerReport* const worker = report.mutable_worker(1);
  worker->set_step_seconds(0.4);
  worker->set_compute_share(0.95);
  worker->mutable_host_load()->set_processors(0.25);
  worker->mutable_host_load()->set_wake_late_seconds(0.06);
  EXPECT_THAT(Diagnose(report).sentence(), HasSubstr("0.25 processors"));
}

TEST(DiagnosisTest, NamesSlowDataOfOneWorkerAndOfAll) {
  JobReport one = Healthy("async");
  one.mutable_worker(2)->set_step_seconds(0.3);
  one.mutable_worker(2)->set_data_share(0.66);
  one.mutable_worker(2)->set_compute_share(0.24);
  EXPECT_EQ(Diagnose(one).kind(), "slow_data");
  EXPECT_EQ(Diagnose(one).task(), "worker/2");

  JobReport all = Healthy("sync");
  for (int w = 0; w < 4; ++w) {
    all.mutable_worker(w)->set_data_share(0.5);
    all.mutable_worker(w)->set_compute_share(0.3);
  }
  EXPECT_EQ(Diagnose(all).kind(), "slow_data");
  EXPECT_EQ(Diagnose(all).task(), "");
  for (int w = 0; w < 4; ++w) {
    all.mutable_worker(w)->set_on_gpu(true);
  }
  EXPECT_EQ(Diagnose(all).kind(), "gpu_input");
}

// It computes as fast as the others and comes last all the same.
TEST(DiagnosisTest, NamesTheLinkOfAWorker) {
  JobReport sync = Healthy("sync");
  for (int w = 0; w < 4; ++w) {
    sync.mutable_worker(w)->set_step_seconds(0.2);
    sync.mutable_worker(w)->set_compute_share(0.35);
    sync.mutable_worker(w)->set_pull_share(0.5);
    sync.mutable_worker(w)->set_last_share(0.05);
  }
  sync.mutable_worker(1)->set_last_share(0.85);
  sync.mutable_worker(1)->set_alone_share(0.4);
  EXPECT_EQ(Diagnose(sync).kind(), "slow_link");
  EXPECT_EQ(Diagnose(sync).task(), "worker/1");

  JobReport async = Healthy("async");
  async.mutable_worker(0)->set_step_seconds(0.3);
  async.mutable_worker(0)->set_compute_share(0.23);
  async.mutable_worker(0)->set_pull_share(0.6);
  async.mutable_worker(0)->set_push_share(0.15);
  EXPECT_EQ(Diagnose(async).kind(), "slow_link");
  EXPECT_EQ(Diagnose(async).task(), "worker/0");
}

TEST(DiagnosisTest, TellsASlowPsFromItsLink) {
  JobReport report = Healthy("async");
  for (int w = 0; w < 4; ++w) {
    report.mutable_worker(w)->set_pull_share(0.6);
    report.mutable_worker(w)->set_compute_share(0.3);
    report.mutable_worker(w)->set_shard_wait_share(1, 0.5);
  }
  EXPECT_EQ(Diagnose(report).kind(), "slow_link");
  EXPECT_EQ(Diagnose(report).task(), "ps/1");
  report.mutable_shard(1)->set_apply_seconds(0.002);
  EXPECT_EQ(Diagnose(report).kind(), "slow_ps");
  EXPECT_EQ(Diagnose(report).task(), "ps/1");
  report.mutable_shard(1)->set_apply_seconds(0.0003);
  report.mutable_shard(1)->mutable_host_load()->set_wake_late_seconds(0.04);
  EXPECT_EQ(Diagnose(report).kind(), "slow_ps");
}

TEST(DiagnosisTest, AnOnlyPsIsSlowWhenItsProcessorsAreUsedUp) {
  JobReport report = Healthy("async");
  report.mutable_shard()->DeleteSubrange(1, 2);
  for (int w = 0; w < 4; ++w) {
    report.mutable_worker(w)->mutable_shard_wait_share()->Truncate(1);
    report.mutable_worker(w)->set_shard_wait_share(0, 0.6);
    report.mutable_worker(w)->set_pull_share(0.6);
    report.mutable_worker(w)->set_compute_share(0.3);
  }
  EXPECT_EQ(Diagnose(report).task(), "");
  report.mutable_shard(0)->mutable_host_load()->set_cpu_seconds_per_second(3.9);
  EXPECT_EQ(Diagnose(report).kind(), "slow_ps");
  EXPECT_EQ(Diagnose(report).task(), "ps/0");
}

TEST(DiagnosisTest, NamesCheckpointsThatHoldTheJob) {
  JobReport report = Healthy("sync");
  for (int w = 0; w < 4; ++w) {
    report.mutable_worker(w)->set_hold_share(0.4);
  }
  EXPECT_EQ(Diagnose(report).kind(), "checkpoints");
}

TEST(DiagnosisTest, MemoryComesFirstBecauseItSlowsAllTheRest) {
  JobReport report = Healthy("async");
  report.mutable_worker(3)->set_step_seconds(0.9);
  report.mutable_worker(3)->set_compute_share(0.95);
  HostReport* const host = report.mutable_worker(3)->mutable_host_load();
  host->set_memory_stall_share(0.6);
  host->set_major_faults_per_second(4000);
  EXPECT_EQ(Diagnose(report).kind(), "memory");
  EXPECT_EQ(Diagnose(report).task(), "worker/3");
}

TEST(DiagnosisTest, TooFewProcessorsNameNoTask) {
  JobReport report = Healthy("sync");
  for (int w = 0; w < 4; ++w) {
    report.mutable_worker(w)->set_host("one");
    report.mutable_worker(w)->mutable_host_load()->set_processors(2);
    report.mutable_worker(w)->mutable_host_load()->set_cpu_seconds_per_second(
        0.45);
  }
  EXPECT_EQ(Diagnose(report).kind(), "processors");
  EXPECT_EQ(Diagnose(report).task(), "");
}

TEST(DiagnosisTest, ASmallModelIsRoundTrips) {
  JobReport report = Healthy("async");
  for (int w = 0; w < 4; ++w) {
    WorkerReport* const worker = report.mutable_worker(w);
    worker->set_step_seconds(0.0005);
    worker->set_contributions_per_second(2000);
    worker->set_bytes_pulled_per_second(2000 * 4096);
    worker->set_compute_share(0.2);
    worker->set_pull_share(0.5);
    worker->set_push_share(0.3);
    for (int s = 0; s < 3; ++s) {
      worker->set_shard_wait_share(s, 0.26);
    }
  }
  EXPECT_EQ(Diagnose(report).kind(), "small_model");
  // The same waits for much more are the network's.
  for (int w = 0; w < 4; ++w) {
    report.mutable_worker(w)->set_step_seconds(0.5);
    report.mutable_worker(w)->set_contributions_per_second(2);
    report.mutable_worker(w)->set_bytes_pulled_per_second(100e6);
  }
  EXPECT_EQ(Diagnose(report).kind(), "slow_link");
  EXPECT_EQ(Diagnose(report).task(), "");
}

// On a loaded host figures differ by a third from task to task.
TEST(DiagnosisTest, OrdinaryDifferencesNameNoTask) {
  for (const char* mode : {"sync", "async"}) {
    JobReport report = Healthy(mode);
    for (int w = 0; w < 4; ++w) {
      report.mutable_worker(w)->set_step_seconds(0.1 + 0.01 * w);
      report.mutable_worker(w)->set_compute_share(0.62 + 0.04 * w);
      report.mutable_worker(w)->set_last_share(0.1 + 0.1 * w);
      report.mutable_worker(w)->set_alone_share(0.02 * w);
      report.mutable_worker(w)->set_shard_wait_share(0, 0.11);
    }
    EXPECT_EQ(Diagnose(report).task(), "") << mode;
  }
}

}  // namespace
}  // namespace weir
