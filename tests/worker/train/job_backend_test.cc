#include "worker/train/job_backend.h"

#include <utility>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(JobBackendTest, TakesThreadsFromTheJobAndTheDeviceFromTheOperator) {
  JobSpec spec;
  spec.mutable_compute()->set_threads(1);
  BackendOptions options;
  options.threads = -1;  // the job's number replaces it
  EXPECT_EQ(CreateJobBackend(spec, options).value()->name(), "cpu");
  options.device = "abacus";
  EXPECT_EQ(CreateJobBackend(spec, options).status().code(),
            absl::StatusCode::kInvalidArgument);
  spec.mutable_compute()->set_threads(100000);
  options.device = "cpu";
  EXPECT_EQ(CreateJobBackend(spec, options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Only GPUs have other precisions. A job that asks for one runs on a CPU, too.
TEST(JobBackendTest, GivesEveryPrecisionToACpuJob) {
  for (const auto precision : {Compute::FP32, Compute::TF32, Compute::BF16}) {
    JobSpec spec;
    spec.mutable_compute()->set_threads(1);
    spec.mutable_compute()->set_precision(precision);
    EXPECT_EQ(CreateJobBackend(spec, {}).value()->name(), "cpu");
  }
}

TEST(JobBackendTest, TakesThreadsAndPrecisionFromTheJob) {
  JobSpec spec;
  spec.mutable_compute()->set_threads(3);
  BackendOptions device;
  device.device = "cuda:1";
  device.threads = 7;
  const std::pair<Compute::Precision, Precision> precisions[] = {
      {Compute::FP32, Precision::kFp32},
      {Compute::TF32, Precision::kTf32},
      {Compute::BF16, Precision::kBf16}};
  for (const auto& [job, expected] : precisions) {
    spec.mutable_compute()->set_precision(job);
    const BackendOptions options = JobBackendOptions(spec, device);
    EXPECT_EQ(options.precision, expected);
    EXPECT_EQ(options.threads, 3);
    EXPECT_EQ(options.device, "cuda:1");
  }
}

TEST(JobBackendTest, IsDeterministicWhereTheJobSaysSoAndInSync) {
  JobSpec spec;
  spec.mutable_update()->mutable_async();
  EXPECT_FALSE(JobBackendOptions(spec, {}).deterministic);
  spec.mutable_compute()->set_deterministic(true);
  EXPECT_TRUE(JobBackendOptions(spec, {}).deterministic);
  spec.mutable_compute()->set_deterministic(false);
  spec.mutable_update()->mutable_bounded_staleness();
  EXPECT_FALSE(JobBackendOptions(spec, {}).deterministic);
  spec.mutable_update()->mutable_sync();
  EXPECT_TRUE(JobBackendOptions(spec, {}).deterministic);
}

TEST(JobBackendTest, MakesTheBackend) {
  JobSpec spec;
  spec.mutable_compute()->set_threads(1);
  EXPECT_EQ(CreateJobBackend(spec, {}).value()->name(), "cpu");
}

}  // namespace
}  // namespace weir
