// What is the same for both kinds of jobs.
#include "server/chief/state/job_source.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/expect_error.h"

namespace weir {
namespace {

constexpr uint64_t kCluster = 77;

JobOptions TwoWorkers(bool sdk_job) {
  JobOptions options;
  options.sdk_job = sdk_job;
  options.ps_addresses = {"host0:1", "host1:1"};
  options.worker_count = 2;
  options.cluster_fingerprint = kCluster;
  return options;
}

// Worker `rank` of a job with a job file.
RegisterRequest SpecWorker(uint32_t rank) {
  RegisterRequest request;
  request.set_rank(rank);
  request.set_cluster_fingerprint(kCluster);
  request.mutable_job_spec();
  request.set_sample_count(100);
  request.add_variable()->set_name("w");
  return request;
}

// Worker `rank` of a program of the SDK.
RegisterRequest SdkWorker(uint32_t rank) {
  RegisterRequest request;
  request.set_rank(rank);
  request.set_cluster_fingerprint(kCluster);
  Declaration* const declaration = request.mutable_declaration();
  declaration->set_job("script");
  declaration->set_shard_count(2);
  declaration->set_slot_count(2);
  declaration->add_group();
  declaration->add_variable()->set_name("w");
  return request;
}

TEST(JobSourceTest, AdmitsEveryRankOfTheClusterAndNoOther) {
  for (const bool sdk_job : {false, true}) {
    const JobOptions options = TwoWorkers(sdk_job);
    const auto job = JobSource::Create(options);
    const auto worker = sdk_job ? SdkWorker : SpecWorker;
    EXPECT_TRUE(job->Check(worker(1)).ok());
    EXPECT_TRUE(job->Check(worker(0)).ok());
    ExpectInvalid(job->Check(worker(2)), "the cluster has 2 workers");
  }
}

TEST(JobSourceTest, AWorkerThatKnowsAPartOfTheClusterIsAdmitted) {
  const JobOptions options = TwoWorkers(/*sdk_job=*/false);
  const auto job = JobSource::Create(options);
  RegisterRequest request = SpecWorker(0);
  request.set_cluster_fingerprint(0);
  EXPECT_TRUE(job->Check(request).ok());
  request.set_cluster_fingerprint(kCluster + 1);
  ExpectInvalid(job->Check(request), "host0:1,host1:1");
}

TEST(JobSourceTest, JobFilesAndProgramsDoNotMix) {
  const JobOptions spec = TwoWorkers(/*sdk_job=*/false);
  ExpectInvalid(JobSource::Create(spec)->Check(SdkWorker(0)),
                "is a program of the SDK");
  const JobOptions sdk = TwoWorkers(/*sdk_job=*/true);
  ExpectInvalid(JobSource::Create(sdk)->Check(SpecWorker(0)),
                "runs a job file");
}

TEST(JobSourceTest, ASyncStepIsSharedOutOverTheSlots) {
  const JobOptions options = TwoWorkers(/*sdk_job=*/false);
  const auto job = JobSource::Create(options);
  EXPECT_FALSE(job->sync());
  EXPECT_EQ(job->ContributionsPerStep(0), 0u);
  Declaration held;
  held.mutable_update()->mutable_sync()->set_contributions(5);
  held.set_base_version(100);
  held.add_pushes_before(6);
  job->Hold(held);
  EXPECT_TRUE(job->sync());
  EXPECT_EQ(job->ContributionsPerStep(0), 3u);
  EXPECT_EQ(job->ContributionsPerStep(1), 2u);
  Roster::Worker worker;
  worker.next_sequence = 5;
  EXPECT_EQ(job->StepOf(0, worker), 101u);
  EXPECT_EQ(job->StepOf(1, worker), 102u);
  EXPECT_EQ(job->PushesBefore(0), 6u);
  EXPECT_EQ(job->PushesBefore(1), 0u);
}

TEST(JobSourceTest, FewerContributionsThanWorkersLeaveSomeOut) {
  const JobOptions options = TwoWorkers(/*sdk_job=*/false);
  const auto job = JobSource::Create(options);
  Declaration held;
  held.mutable_update()->mutable_sync()->set_contributions(1);
  job->Hold(held);
  EXPECT_EQ(job->ContributionsPerStep(0), 1u);
  EXPECT_EQ(job->ContributionsPerStep(1), 0u);
}

TEST(JobSourceTest, AJobIsCountedInStepsContributionsOrPushes) {
  const JobOptions spec = TwoWorkers(/*sdk_job=*/false);
  const JobOptions sdk = TwoWorkers(/*sdk_job=*/true);
  EXPECT_EQ(JobSource::Create(spec)->unit(), "contribution ");
  EXPECT_EQ(JobSource::Create(sdk)->unit(), "push ");
  const auto job = JobSource::Create(sdk);
  Declaration held;
  held.mutable_update()->mutable_sync()->set_contributions(2);
  job->Hold(held);
  EXPECT_EQ(job->unit(), "step ");
}

}  // namespace
}  // namespace weir
