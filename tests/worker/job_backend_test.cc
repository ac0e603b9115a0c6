#include "worker/job_backend.h"

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(JobBackendTest, TakesThreadsFromTheJobAndTheDeviceFromTheOperator) {
  JobSpec spec;
  spec.mutable_compute()->set_threads(1);
  BackendOptions options;
  options.threads = -1;  // the job's counts
  EXPECT_EQ(CreateJobBackend(spec, options).value()->name(), "cpu");
  options.device = "abacus";
  EXPECT_EQ(CreateJobBackend(spec, options).status().code(),
            absl::StatusCode::kInvalidArgument);
  spec.mutable_compute()->set_threads(100000);
  options.device = "cpu";
  EXPECT_EQ(CreateJobBackend(spec, options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Precision is a GPU's; a job that asks for it runs on a CPU all the same.
TEST(JobBackendTest, GivesEveryPrecisionToACpuJob) {
  for (const auto precision : {Compute::FP32, Compute::TF32, Compute::BF16}) {
    JobSpec spec;
    spec.mutable_compute()->set_threads(1);
    spec.mutable_compute()->set_precision(precision);
    EXPECT_EQ(CreateJobBackend(spec, {}).value()->name(), "cpu");
  }
}

}  // namespace
}  // namespace weir
