#include "deploy/render/job_memory.h"

#include <cstdlib>

#include "deploy/render/quantity.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/job/job_spec_text.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kJob[] = "tests/deploy/render/goldens/small_job.textproto";

JobSpec SmallJob(const std::vector<std::string>& sets = {}) {
  const auto spec = LoadJobSpec(kJob, sets);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.value();
}

JobMemory MemoryOf(const JobSpec& spec, int ps_count = 1,
                   int worker_count = 1) {
  JobMemoryOptions options;
  options.ps_count = ps_count;
  options.worker_count = worker_count;
  const auto memory = EstimateJobMemory(spec, options);
  EXPECT_TRUE(memory.ok()) << memory.status();
  return memory.value();
}

double Part(const MemoryNeed& need, const std::string& what) {
  for (const MemoryPart& part : need.parts) {
    if (part.what == what) {
      return part.bytes;
    }
  }
  ADD_FAILURE() << "there is no part " << what;
  return 0.0;
}

// By hand: 13 x 512 + 512, (512 + 32) x 1024 + 1024, 1024 + 1, each rounded up
// to 16 elements of 4 bytes.
constexpr double kFlatBytes =
    4.0 * (13 * 512 + 512 + 544 * 1024 + 1024 + 1024 + 16);

TEST(JobMemoryTest, CountsTheArraysOfAPs) {
  const JobMemory memory = MemoryOf(SmallJob());
  EXPECT_EQ(Part(memory.ps, "values"), kFlatBytes);
  EXPECT_EQ(Part(memory.ps, "optimizer state"), 2 * kFlatBytes);
  EXPECT_EQ(Part(memory.ps, "sums of a step"), kFlatBytes);  // sync
  EXPECT_EQ(Part(memory.ps, "copies during a checkpoint"), 3 * kFlatBytes);
  EXPECT_EQ(Part(memory.ps, "rows of tables"), 32.0 * kMiB);
  EXPECT_EQ(memory.checkpoint_bytes, 3 * kFlatBytes + 32.0 * kMiB);
  EXPECT_THAT(memory.assumptions, ElementsAre());

  const JobMemory async = MemoryOf(SmallJob({"update.async={}"}));
  EXPECT_EQ(Part(async.ps, "sums of a step"), 0);
  const JobMemory sgd = MemoryOf(SmallJob({"optimizer.sgd={}"}));
  EXPECT_EQ(Part(sgd.ps, "optimizer state"), 0);
}

TEST(JobMemoryTest, DividesThemAmongThePs) {
  const JobMemory memory = MemoryOf(SmallJob(), 4);
  EXPECT_NEAR(Part(memory.ps, "values"), kFlatBytes / 4, 64);
  EXPECT_EQ(memory.checkpoint_bytes, 3 * kFlatBytes + 4 * 32.0 * kMiB);
}

TEST(JobMemoryTest, SyncKeepsWhatComesEarly) {
  const JobMemory memory = MemoryOf(SmallJob(), 1, 4);
  EXPECT_EQ(Part(memory.ps, "early contributions"), 3 * kFlatBytes);
  const JobMemory bounded =
      MemoryOf(SmallJob({"limits.out_of_order_bytes=1000"}), 1, 4);
  EXPECT_EQ(Part(bounded.ps, "early contributions"), 1000);
}

TEST(JobMemoryTest, CountsRowsByTheirIdsWhereTheyHaveNoBound) {
  const JobMemory memory =
      MemoryOf(SmallJob({"table[0].expiry.memory_bytes=0"}), 2);
  // 4000 ids on two ps: a header, values and state of 8 floats, the index.
  EXPECT_EQ(Part(memory.ps, "rows of tables"), 2000 * (16 + 2 * 32 + 15));
}

TEST(JobMemoryTest, SaysWhatItAssumes) {
  const JobMemory memory = MemoryOf(SmallJob(
      {"table[0].expiry.memory_bytes=0", "data.train.criteo={path: 'x'}"}));
  ASSERT_EQ(memory.assumptions.size(), 2u);
  EXPECT_THAT(memory.assumptions[0], HasSubstr("--local_data"));
  EXPECT_THAT(memory.assumptions[1],
              HasSubstr("Table ads has no bound and its ids are not counted"));
  EXPECT_EQ(Part(memory.ps, "rows of tables"), 1.0 * kGiB);
}

TEST(JobMemoryTest, CountsWhatAWorkerHas) {
  const JobMemory memory = MemoryOf(SmallJob());
  EXPECT_EQ(Part(memory.worker, "parameters"), kFlatBytes);
  EXPECT_EQ(Part(memory.worker, "gradients"), kFlatBytes);
  // Values and gradients of 512 + 1024 + 1 outputs, at least.
  EXPECT_GT(Part(memory.worker, "layers for a batch"), 256 * 1537 * 2 * 4);
  EXPECT_EQ(Part(memory.worker, "rows of a batch"), 256.0 * 4 * 8 * 4 * 4);
  const JobMemory larger = MemoryOf(SmallJob({"train.batch_size=512"}));
  EXPECT_NEAR(Part(larger.worker, "layers for a batch"),
              2 * Part(memory.worker, "layers for a batch"), 4096);
  EXPECT_GT(memory.evaluator.total(), 0);
}

TEST(JobMemoryTest, KnowsNothingOfDataThatIsNotHere) {
  const JobMemory memory =
      MemoryOf(SmallJob({"data.train.idx={images: 'i' labels: 'l'}"}));
  EXPECT_EQ(memory.unknown, "the size of its images is in the file");
}

TEST(JobMemoryTest, NamesAModelThatIsWrong) {
  const auto memory = EstimateJobMemory(
      SmallJob({"model.layer[1].input=[\"nobody\"]"}), JobMemoryOptions());
  EXPECT_EQ(memory.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(memory.status().message()), HasSubstr("model.layer"));
}

}  // namespace
}  // namespace weir
