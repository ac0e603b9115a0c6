#include "server/ps/block/snapshot_job.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <utility>

#include "gtest/gtest.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "tests/common/temp_dir.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

// A job over two blocks of one shard, and what it says.
struct Tester {
  explicit Tester(bool has_tables = false)
      : plan(*ShardPlan::Create(
            ParseDeclaration("variable { name: 'a' shape: 128 }"
                             "group { optimizer { sgd {} }"
                             "        schedule { learning_rate: 1 } }"
                             "update { async {} }"),
            0, int64_t{1} << 30)),
        directory(MakeTempDir()) {
    SnapshotJob::Options options;
    options.plan = plan;
    options.files = Files::Real();
    options.directory = directory;
    options.slots.resize(1);
    options.slots[0].set_next_sequence_min(UINT64_MAX);  // of no block yet
    options.has_tables = has_tables;
    options.done = [this](absl::StatusOr<SnapshotReply> reply) {
      said.push_back(std::move(reply));
    };
    options.run = [this](std::function<void()> work) {
      writes.push_back(std::move(work));
    };
    job = std::make_shared<SnapshotJob>(std::move(options));
  }

  // Hands over a block whose slot has `mark`, and runs what becomes due.
  void Add(int block, uint64_t mark) {
    FrozenBlock frozen;
    frozen.version = 4;
    frozen.values = BlockRef::Make(&arena, 64);
    std::fill_n(frozen.values.data(), 64, 1.0f);
    frozen.steps = {mark};
    frozen.marks = {mark};
    DueList due;
    SnapshotJob::Add(job, block, std::move(frozen), due);
    for (const auto& run : due) {
      run();
    }
  }
  void Write() {
    for (const auto& write : std::exchange(writes, {})) {
      write();
    }
  }
  std::string path() const { return JoinPath(directory, ShardFileName(0, 1)); }

  CountingArena arena;
  const std::shared_ptr<const ShardPlan> plan;
  const std::string directory;
  std::vector<absl::StatusOr<SnapshotReply>> said;
  std::vector<std::function<void()>> writes;
  std::shared_ptr<SnapshotJob> job;
};

TEST(SnapshotJobTest, SaysFrozenWhenAllBlocksAreHereAndThenWritten) {
  Tester tester;
  tester.Add(1, 7);
  EXPECT_TRUE(tester.said.empty());
  tester.Add(0, 5);
  ASSERT_EQ(tester.said.size(), 1u);
  ASSERT_TRUE(tester.said[0].ok());
  EXPECT_TRUE(tester.said[0]->frozen());
  EXPECT_FALSE(tester.said[0]->has_file());
  EXPECT_EQ(tester.said[0]->slot(0).next_sequence_min(), 5u);
  EXPECT_EQ(tester.said[0]->slot(0).next_sequence_max(), 7u);
  EXPECT_FALSE(std::filesystem::exists(tester.path()));
  EXPECT_GT(tester.arena.bytes(), 0);

  tester.Write();
  ASSERT_EQ(tester.said.size(), 2u);
  ASSERT_TRUE(tester.said[1].ok()) << tester.said[1].status();
  EXPECT_EQ(tester.said[1]->file().name(), ShardFileName(0, 1));
  EXPECT_EQ(tester.said[1]->file().bytes(),
            std::filesystem::file_size(tester.path()));
  EXPECT_EQ(tester.arena.bytes(), 0);  // every reference was dropped
  EXPECT_TRUE(tester.job->ended());
  tester.job->Cancel(absl::AbortedError("too late"));
  EXPECT_EQ(tester.said.size(), 2u);
}

TEST(SnapshotJobTest, ACancelledJobSaysOneErrorAndKeepsNothing) {
  Tester tester;
  tester.Add(0, 1);
  tester.job->Cancel(absl::AbortedError("first"));
  tester.job->Cancel(absl::InternalError("second"));
  tester.Add(1, 1);
  ASSERT_EQ(tester.said.size(), 1u);
  EXPECT_EQ(tester.said[0].status(), absl::AbortedError("first"));
  EXPECT_EQ(tester.arena.bytes(), 0);
  EXPECT_TRUE(tester.writes.empty());
}

TEST(SnapshotJobTest, AJobThatIsCancelledBeforeItWritesLeavesNoFile) {
  Tester tester;
  tester.Add(0, 1);
  tester.Add(1, 1);
  tester.job->Cancel(absl::AbortedError("a newer one"));
  tester.Write();
  ASSERT_EQ(tester.said.size(), 2u);  // FROZEN, and the error
  EXPECT_EQ(tester.said[1].status(), absl::AbortedError("a newer one"));
  EXPECT_FALSE(std::filesystem::exists(tester.path()));
  EXPECT_EQ(tester.arena.bytes(), 0);
}

TEST(SnapshotJobTest, AFileThatCannotBeWrittenIsAnErrorThatNamesTheShard) {
  Tester tester;
  std::filesystem::remove(tester.directory);
  tester.Add(0, 1);
  tester.Add(1, 1);
  tester.Write();
  ASSERT_EQ(tester.said.size(), 2u);
  ASSERT_FALSE(tester.said[1].ok());
  EXPECT_NE(tester.said[1].status().message().find("snapshot of shard 0"),
            std::string::npos);
  EXPECT_EQ(tester.arena.bytes(), 0);
}

TEST(SnapshotJobTest, WaitsForTheTablesAndCountsTheirMarks) {
  Tester tester(/*has_tables=*/true);
  tester.Add(0, 5);
  tester.Add(1, 5);
  EXPECT_TRUE(tester.said.empty());
  TableFile file;
  file.set_name("rows");
  SnapshotJob::AddTables(tester.job, {9}, file);
  ASSERT_EQ(tester.said.size(), 1u);
  EXPECT_EQ(tester.said[0]->slot(0).next_sequence_max(), 9u);
  tester.Write();
  ASSERT_EQ(tester.said.size(), 2u);
  EXPECT_EQ(tester.said[1]->file().tables().name(), "rows");
}

TEST(SnapshotJobTest, TablesThatCannotBeWrittenEndTheJob) {
  Tester tester(/*has_tables=*/true);
  tester.Add(0, 5);
  tester.Add(1, 5);
  SnapshotJob::AddTables(tester.job, {9}, absl::DataLossError("disk"));
  ASSERT_EQ(tester.said.size(), 1u);
  EXPECT_EQ(tester.said[0].status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(tester.arena.bytes(), 0);
}

}  // namespace
}  // namespace weir
