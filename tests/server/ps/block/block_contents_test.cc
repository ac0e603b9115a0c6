#include "server/ps/block/block_contents.h"

#include <atomic>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/wire/layout_io.h"
#include "tests/common/temp_dir.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

// "a" with 0.5 in every element and "b" with random values.
Declaration Job(const std::string& optimizer, int block_elements = 64) {
  return ParseDeclaration(absl::StrCat(
      "variable { name: 'a' shape: [5, 5] init_scale: 0.5 }"
      "variable { name: 'b' shape: 100 init: UNIFORM init_scale: 2 }"
      "group { optimizer { ",
      optimizer,
      " } schedule { learning_rate: 1 } }"
      "seed: 5 update { async {} } block_elements: ",
      block_elements));
}

std::shared_ptr<const ShardPlan> PlanOf(const Declaration& declaration) {
  return *ShardPlan::Create(declaration, 0, int64_t{1} << 30);
}

// The initial values of variable `v`, gathered from the blocks.
std::vector<float> Initial(const ShardPlan& plan, int v) {
  std::vector<float> values;
  for (const BlockPlan& block_plan : plan.blocks()) {
    std::atomic<int64_t> waits{0};
    Block block(&block_plan, 0, 1, &waits);
    MutexLock lock(&block.mutex);
    InitialiseBlock(plan, Arena::Heap(), block);
    for (const SegmentPlan& segment : block_plan.segments) {
      if (segment.segment.variable == v) {
        const float* const begin =
            block.values.data() + segment.segment.block_offset;
        values.insert(values.end(), begin, begin + segment.segment.count);
      }
    }
  }
  return values;
}

TEST(BlockContentsTest, InitialValuesDoNotDependOnHowBlocksAreCut) {
  const auto coarse = PlanOf(Job("sgd {}", 1024));
  const auto fine = PlanOf(Job("sgd {}", 16));
  ASSERT_NE(coarse->blocks().size(), fine->blocks().size());
  EXPECT_EQ(Initial(*coarse, 0), std::vector<float>(25, 0.5f));
  const std::vector<float> b = Initial(*coarse, 1);
  EXPECT_EQ(b.size(), 100u);
  EXPECT_EQ(b, Initial(*fine, 1));
  EXPECT_NE(b[0], b[1]);
}

TEST(BlockContentsTest, StateBeginsAsTheOptimizerSaysAndPaddingIsZero) {
  const auto plan = PlanOf(Job("adagrad { initial_accumulator: 0.25 }", 1024));
  std::atomic<int64_t> waits{0};
  Block block(&plan->blocks()[0], 0, 1, &waits);
  MutexLock lock(&block.mutex);
  InitialiseBlock(*plan, Arena::Heap(), block);
  std::vector<bool> padding(static_cast<size_t>(block.plan.range.count), true);
  for (const SegmentPlan& segment : block.plan.segments) {
    for (int64_t i = 0; i < segment.segment.count; ++i) {
      const int64_t at = segment.segment.block_offset + i;
      padding[static_cast<size_t>(at)] = false;
      EXPECT_EQ(block.state[0].data()[at], 0.25f);
    }
  }
  for (size_t i = 0; i < padding.size(); ++i) {
    if (padding[i]) {
      EXPECT_EQ(block.values.data()[i], 0.0f) << i;
      EXPECT_EQ(block.state[0].data()[i], 0.0f) << i;
    }
  }
}

// A checkpoint of that job after one step.
std::string Checkpoint(const Declaration& declaration) {
  const std::string dir = MakeCheckpointDir();
  StoreTester ps(declaration);
  for (int b = 0; b < ps.block_count(); ++b) {
    EXPECT_TRUE(ps.PushConstant(ps.Chunk(0, 0, b, 0), 1.0f).ok());
  }
  const auto result = ps.Snapshot(dir);
  EXPECT_TRUE(result.error.ok()) << result.error;
  EXPECT_TRUE(
      CommitManifest(dir, ps.declaration, {result.replies.at(1).file()}).ok());
  return dir;
}

TEST(BlockContentsTest, RestoresValuesStateAndStepsIntoOtherBlocks) {
  const auto reader = CheckpointReader::Open(
      Files::Real(), Checkpoint(Job("sgd { momentum: 1 }")));
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto plan = PlanOf(Job("sgd { momentum: 1 }", 16));
  std::atomic<int64_t> waits{0};
  Block block(&plan->blocks()[0], 0, 1, &waits);
  MutexLock lock(&block.mutex);
  ASSERT_TRUE(RestoreBlock(*plan, Arena::Heap(), **reader, block).ok());
  EXPECT_EQ(block.values.data()[0], -0.5f);   // 0.5 less a step of 1
  EXPECT_EQ(block.state[0].data()[0], 1.0f);  // the momentum
  EXPECT_EQ(block.steps[0], 1u);
}

TEST(BlockContentsTest, StateOfWhatWasFrozenBeginsAsTheOptimizerSays) {
  // Variable "b" is in a group of its own.
  const auto job = [](bool frozen) {
    Declaration declaration =
        Job("adagrad { initial_accumulator: 0.25 }", 1024);
    *declaration.add_group() = declaration.group(0);
    declaration.mutable_group(1)->set_frozen(frozen);
    declaration.mutable_variable(1)->set_group(1);
    return declaration;
  };
  for (const bool frozen : {true, false}) {
    const auto reader =
        CheckpointReader::Open(Files::Real(), Checkpoint(job(frozen)));
    ASSERT_TRUE(reader.ok()) << reader.status();
    const auto plan = PlanOf(job(false));
    std::atomic<int64_t> waits{0};
    Block block(&plan->blocks()[0], 0, 1, &waits);
    MutexLock lock(&block.mutex);
    ASSERT_TRUE(RestoreBlock(*plan, Arena::Heap(), **reader, block).ok());
    for (const SegmentPlan& segment : block.plan.segments) {
      // A step with a gradient of 1 adds 1.
      const float expected = segment.group == 1 && frozen ? 0.25f : 1.25f;
      EXPECT_EQ(block.state[0].data()[segment.segment.block_offset], expected)
          << segment.group << frozen;
    }
  }
}

TEST(BlockContentsTest, NamesAStateArrayThatTheCheckpointLacks) {
  const auto reader =
      CheckpointReader::Open(Files::Real(), Checkpoint(Job("sgd {}")));
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto plan = PlanOf(Job("sgd { momentum: 1 }"));
  std::atomic<int64_t> waits{0};
  Block block(&plan->blocks()[0], 0, 1, &waits);
  MutexLock lock(&block.mutex);
  const absl::Status status =
      RestoreBlock(*plan, Arena::Heap(), **reader, block);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "another optimizer wrote it"))
      << status;
}

TEST(BlockContentsTest, NamesTheFirstVariableThatDiffers) {
  const auto reader =
      CheckpointReader::Open(Files::Real(), Checkpoint(Job("sgd {}")));
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto check = [&](const Declaration& declaration) {
    return std::string(
        CheckSameVariables(*LayoutFromDeclaration(declaration), **reader)
            .message());
  };
  EXPECT_EQ(check(Job("sgd {}", 16)), "");  // blocks may differ
  Declaration name = Job("sgd {}");
  name.mutable_variable(1)->set_name("c");
  EXPECT_TRUE(absl::StrContains(check(name), "variable 1 is 'b' [100]"));
  Declaration shape = Job("sgd {}");
  shape.mutable_variable(0)->set_shape(1, 6);
  EXPECT_TRUE(absl::StrContains(check(shape), "the job's is 'a' [5,6]"));
  Declaration fewer = Job("sgd {}");
  fewer.mutable_variable()->RemoveLast();
  EXPECT_TRUE(absl::StrContains(check(fewer), "has 2 variables, the job 1"));
}

}  // namespace
}  // namespace weir
