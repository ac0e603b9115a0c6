#include "server/chief/state/register_check.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::HasSubstr;

constexpr uint64_t kCluster = 77;

JobSpec SmallJob() {
  JobSpec spec;
  spec.set_name("small");
  spec.mutable_train()->set_batch_size(10);
  spec.mutable_optimizer()->mutable_sgd();
  spec.mutable_update()->mutable_async();
  return spec;
}

RegisterCheck::Options TwoWorkers(bool sdk_job) {
  RegisterCheck::Options options;
  options.sdk_job = sdk_job;
  if (!sdk_job) {
    options.spec = SmallJob();
  }
  options.ps_addresses = {"host0:1", "host1:1"};
  options.worker_count = 2;
  options.cluster_fingerprint = kCluster;
  return options;
}

// Worker `rank` of a job with a job file.
RegisterRequest SpecWorker(uint32_t rank) {
  RegisterRequest request;
  request.set_rank(rank);
  request.set_host("node");
  request.set_cluster_fingerprint(kCluster);
  *request.mutable_job_spec() = SmallJob();
  request.set_sample_count(100);
  Variable* const variable = request.add_variable();
  variable->set_name("w");
  variable->add_shape(8);
  return request;
}

// Worker `rank` of a program of the SDK.
RegisterRequest SdkWorker(uint32_t rank) {
  RegisterRequest request;
  request.set_rank(rank);
  request.set_host("node");
  request.set_cluster_fingerprint(kCluster);
  Declaration* const declaration = request.mutable_declaration();
  declaration->set_job("script");
  declaration->set_shard_count(2);
  declaration->set_slot_count(2);
  declaration->set_block_elements(16);
  declaration->mutable_update()->mutable_async();
  declaration->add_group()->mutable_optimizer()->mutable_sgd();
  Variable* const variable = declaration->add_variable();
  variable->set_name("w");
  variable->add_shape(8);
  return request;
}

void ExpectRefused(const absl::Status& status, absl::StatusCode code,
                   const std::string& text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

void ExpectInvalid(const absl::Status& status, const std::string& text) {
  ExpectRefused(status, absl::StatusCode::kInvalidArgument, text);
}

TEST(RegisterCheckTest, AdmitsEveryRankOfTheClusterAndNoOther) {
  RegisterCheck check(TwoWorkers(/*sdk_job=*/false));
  EXPECT_TRUE(check.Check(SpecWorker(1)).ok());
  EXPECT_TRUE(check.Check(SpecWorker(0)).ok());
  ExpectInvalid(check.Check(SpecWorker(2)), "the cluster has 2 workers");
}

TEST(RegisterCheckTest, AWorkerThatKnowsAPartOfTheClusterIsAdmitted) {
  RegisterCheck check(TwoWorkers(/*sdk_job=*/false));
  RegisterRequest request = SpecWorker(0);
  request.set_cluster_fingerprint(0);
  EXPECT_TRUE(check.Check(request).ok());
  request.set_cluster_fingerprint(kCluster + 1);
  ExpectInvalid(check.Check(request), "host0:1,host1:1");
}

TEST(RegisterCheckTest, JobFilesAndProgramsDoNotMix) {
  RegisterCheck spec(TwoWorkers(/*sdk_job=*/false));
  ExpectInvalid(spec.Check(SdkWorker(0)), "is a program of the SDK");
  RegisterCheck sdk(TwoWorkers(/*sdk_job=*/true));
  ExpectInvalid(sdk.Check(SpecWorker(0)), "runs a job file");
}

TEST(RegisterCheckTest, ARefusedRequestChangesNothing) {  // I1
  RegisterCheck check(TwoWorkers(/*sdk_job=*/false));
  RegisterRequest other = SpecWorker(0);
  other.mutable_job_spec()->mutable_train()->set_batch_size(7);
  other.set_sample_count(50);
  ExpectInvalid(check.Check(other), "train.batch_size");
  EXPECT_TRUE(check.variables().empty());
  // Neither did its number of samples become the job's.
  EXPECT_TRUE(check.Check(SpecWorker(1)).ok());
}

TEST(RegisterCheckTest, AWorkerNeedsVariablesAndSamples) {
  RegisterCheck check(TwoWorkers(/*sdk_job=*/false));
  RegisterRequest request = SpecWorker(0);
  request.set_sample_count(0);
  ExpectInvalid(check.Check(request), "1 variables and 0 samples");
  request = SpecWorker(0);
  request.clear_variable();
  ExpectInvalid(check.Check(request), "0 variables and 100 samples");
}

TEST(RegisterCheckTest, LaterWorkersMustBringTheFirstOnesModelAndData) {  // I2
  RegisterCheck check(TwoWorkers(/*sdk_job=*/false));
  ASSERT_TRUE(check.Check(SpecWorker(0)).ok());
  ASSERT_EQ(check.variables().size(), 1);
  RegisterRequest request = SpecWorker(1);
  request.set_sample_count(99);
  ExpectInvalid(check.Check(request), "99 samples, other workers have 100");
  request = SpecWorker(1);
  request.mutable_variable(0)->set_shape(0, 9);
  ExpectInvalid(check.Check(request), "brings another model");
  EXPECT_EQ(check.variables().Get(0).shape(0), 8);
}

TEST(RegisterCheckTest, TheShardsVariablesCountBeforeAnyWorkers) {
  RegisterCheck check(TwoWorkers(/*sdk_job=*/false));
  Declaration held;
  Variable* const variable = held.add_variable();
  variable->set_name("w");
  variable->add_shape(9);
  check.SetDeclaration(held);
  ExpectInvalid(check.Check(SpecWorker(0)), "brings another model");
  EXPECT_FALSE(check.declaration().has_value());
}

TEST(RegisterCheckTest, TheFirstProgramsDeclarationIsTheJob) {  // I2
  RegisterCheck check(TwoWorkers(/*sdk_job=*/true));
  EXPECT_FALSE(check.declaration().has_value());
  ASSERT_TRUE(check.Check(SdkWorker(1)).ok());
  ASSERT_TRUE(check.declaration().has_value());
  EXPECT_EQ(check.declaration()->job(), "script");
  EXPECT_TRUE(check.Check(SdkWorker(0)).ok());

  RegisterRequest other = SdkWorker(0);
  other.mutable_declaration()->set_job("another");
  ExpectRefused(check.Check(other), absl::StatusCode::kAlreadyExists,
                "the chief runs 'script'");
  other = SdkWorker(0);
  other.mutable_declaration()->mutable_variable(0)->set_shape(0, 9);
  ExpectRefused(check.Check(other), absl::StatusCode::kAlreadyExists,
                "every worker must declare the same");
  EXPECT_EQ(check.declaration()->variable(0).shape(0), 8);
}

TEST(RegisterCheckTest, ADeclarationMustFitTheClusterAndBeWhole) {
  RegisterCheck check(TwoWorkers(/*sdk_job=*/true));
  RegisterRequest request = SdkWorker(0);
  request.mutable_declaration()->set_shard_count(3);
  ExpectInvalid(check.Check(request), "names 3 ps and 2 workers");
  request = SdkWorker(0);
  request.mutable_declaration()->set_slot_count(1);
  ExpectInvalid(check.Check(request), "names 2 ps and 1 workers");
  request = SdkWorker(0);
  request.mutable_declaration()->clear_variable();
  ExpectInvalid(check.Check(request), "0 tensors, 0 tables");
  request = SdkWorker(0);
  request.mutable_declaration()->clear_group();
  ExpectInvalid(check.Check(request), "0 groups");
  request = SdkWorker(0);
  request.mutable_declaration()->clear_job();
  ExpectInvalid(check.Check(request), "declares job ''");
  EXPECT_FALSE(check.declaration().has_value());  // I1
}

TEST(RegisterCheckTest, ASyncStepOfProgramsHasOnePushOfEachWorker) {
  RegisterCheck check(TwoWorkers(/*sdk_job=*/true));
  RegisterRequest request = SdkWorker(0);
  Update* const update = request.mutable_declaration()->mutable_update();
  update->mutable_sync()->set_contributions(3);
  ExpectInvalid(check.Check(request), "not 3 of 2");
  update->mutable_sync()->set_contributions(2);
  EXPECT_TRUE(check.Check(request).ok());
}

}  // namespace
}  // namespace weir
