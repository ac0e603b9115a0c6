#include "server/ps/rows/table_snapshot.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/files.h"
#include "common/job/row_hash.h"
#include "common/math/random.h"
#include "gmock/gmock.h"
#include "proto/checkpoint/table_file.h"
#include "tests/common/temp_dir.h"
#include "tests/server/ps/rows/table_store_tester.h"

namespace weir {
namespace {

using testing::HasSubstr;

constexpr int kRows = 400;

Declaration WithTables(const std::string& update, int shards,
                       const std::string& more = "") {
  Declaration declaration = ParseDeclaration(absl::StrCat(
      "variable { name: 'w' shape: 4 } "
      "group { optimizer { sgd {} } schedule { learning_rate: 1 } } "
      "table { name: 't' dim: 2 optimizer { adam {} } "
      "        schedule { learning_rate: 0.1 } ",
      more,
      " } "
      "table { name: 'u' dim: 1 optimizer { rowwise_adagrad {} } "
      "        schedule { learning_rate: 0.1 } } "
      "update { ",
      update, " }"));
  declaration.set_shard_count(static_cast<uint32_t>(shards));
  return declaration;
}

// A job on some shards: its stores, all fed with the same updates.
struct Shards {
  explicit Shards(const Declaration& the_declaration)
      : declaration(the_declaration) {
    for (uint32_t s = 0; s < declaration.shard_count(); ++s) {
      testers.push_back(std::make_unique<StoreTester>(declaration, s));
    }
  }

  int count() const { return static_cast<int>(testers.size()); }

  // Pushes contribution `sequence`: a random gradient of 7 times each number in
  // [begin, end).
  void Update(uint64_t sequence, uint64_t begin, uint64_t end) {
    for (int s = 0; s < count(); ++s) {
      PushRowsChunk chunk = Piece(*testers[s], 0, sequence, version);
      std::vector<float> gradients;
      for (uint32_t table = 0;
           table < static_cast<uint32_t>(declaration.table_size()); ++table) {
        const uint32_t dim = declaration.table(static_cast<int>(table)).dim();
        std::vector<uint64_t> ids;
        for (uint64_t i = begin; i < end; ++i) {
          if (ShardOfId(i * 7, count()) == s) {
            ids.push_back(i * 7);
            for (uint32_t k = 0; k < dim; ++k) {
              gradients.push_back(UnitFloat(Philox(sequence, table, i)[k % 4]) -
                                  0.5f);
            }
          }
        }
        if (!ids.empty()) {
          *chunk.add_list() = ListOf(table, ids);
        }
      }
      ASSERT_EQ(OutcomeOf(Apply(*testers[s], chunk, gradients)),
                Receipt::ACCEPTED);
    }
    ++version;
  }

  // All rows of both tables, by id.
  std::map<uint64_t, std::vector<float>> Rows() {
    std::map<uint64_t, std::vector<float>> all;
    for (uint64_t i = 0; i < kRows; ++i) {
      StoreTester& tester = *testers[ShardOfId(i * 7, count())];
      for (uint32_t table = 0; table < 2; ++table) {
        for (const float value : weir::Rows(tester, {i * 7}, table)) {
          all[i * 7].push_back(value);
        }
      }
    }
    return all;
  }

  // Writes checkpoint `name` under `dir`; returns its table files.
  std::vector<TableFile> Save(const std::string& dir, const std::string& name,
                              const std::string& base = "") {
    const std::string path = JoinPath(dir, name);
    std::filesystem::create_directories(path);
    std::vector<ShardFile> files;
    std::vector<TableFile> tables;
    for (const auto& tester : testers) {
      SnapshotRequest request;
      *request.mutable_sender() = tester->SenderOf(0, 0);
      request.set_checkpoint(NameOf(path));
      request.set_table_base(base);
      std::vector<SnapshotReply> replies;
      tester->store->Snapshot(
          request,
          [&](absl::StatusOr<SnapshotReply> reply) {
            ASSERT_TRUE(reply.ok()) << reply.status();
            replies.push_back(*std::move(reply));
          },
          [](const std::function<void()>& work) { work(); });
      EXPECT_EQ(replies.size(), 2u);
      EXPECT_EQ(replies[0].slot(0).next_sequence_max(),
                version - declaration.base_version());
      files.push_back(replies.back().file());
      tables.push_back(files.back().tables());
    }
    Manifest manifest;
    manifest.set_format(kManifestFormat);
    manifest.set_name(name);
    *manifest.mutable_declaration() = declaration;
    for (const ShardFile& file : files) {
      *manifest.add_file() = file;
    }
    EXPECT_TRUE(WriteManifest(Files::Real(), path, manifest).ok());
    return tables;
  }

  absl::Status Restore(const std::string& path) {
    declaration.set_history(declaration.history() + 1);
    for (const auto& tester : testers) {
      if (const absl::Status status = tester->Restore(declaration, path);
          !status.ok()) {
        return status;
      }
      EXPECT_TRUE(tester->SetSlot(0, 1, false).ok());
    }
    version = 0;
    return absl::OkStatus();
  }

  Declaration declaration;
  std::vector<std::unique_ptr<StoreTester>> testers;
  uint64_t version = 0;
};

TEST(TableSnapshotTest, ComesBackOnAnyNumberOfShards) {
  const std::string dir = CheckpointRoot();
  Shards before(WithTables("async {}", 2));
  before.Update(0, 0, 300);
  before.Update(1, 100, 250);
  before.Save(dir, "ckpt-2");
  const auto saved = before.Rows();
  before.Update(2, 0, kRows);
  const auto next = before.Rows();
  EXPECT_NE(next, saved);
  for (const int shards : {1, 2, 3}) {
    Shards after(WithTables("async {}", shards));
    ASSERT_TRUE(after.Restore(JoinPath(dir, "ckpt-2")).ok());
    EXPECT_EQ(after.Rows(), saved);
    // Moments, accumulators and Adam's t came along.
    after.Update(0, 0, kRows);
    const auto again = after.Rows();
    Shards other(WithTables("async {}", 2));
    ASSERT_TRUE(other.Restore(JoinPath(dir, "ckpt-2")).ok());
    other.Update(0, 0, kRows);
    EXPECT_EQ(again, other.Rows());
  }
}

TEST(TableSnapshotTest, IncrementsHoldTouchedRowsAndComeBackWithTheirBase) {
  const std::string dir = CheckpointRoot();
  Shards job(WithTables("async {}", 2));
  job.Update(0, 0, kRows);
  job.Update(1, 0, 4);
  const std::vector<TableFile> full = job.Save(dir, "ckpt-1");
  EXPECT_EQ(full[0].base(), "");
  std::vector<TableFile> last;
  for (uint64_t i = 1; i <= 5; ++i) {
    job.Update(i + 1, i * 4, i * 4 + 4);
    last = job.Save(dir, absl::StrCat("ckpt-", i + 1), "ckpt-1");
    EXPECT_EQ(last[0].base(), "ckpt-1");
    // Those of the update before the base, too: the clock was the same.
    EXPECT_EQ(last[0].rows() + last[1].rows(), 2 * (4 + 4 * i));
  }
  const auto saved = job.Rows();
  Shards after(WithTables("async {}", 3));
  ASSERT_TRUE(after.Restore(JoinPath(dir, "ckpt-6")).ok());
  EXPECT_EQ(after.Rows(), saved);
  // Without the base it is of no use, and says so.
  std::filesystem::remove(JoinPath(dir, "ckpt-1/manifest.json"));
  const absl::Status status = after.Restore(JoinPath(dir, "ckpt-6"));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("extends 'ckpt-1'"));
}

// With rows that expire after `seconds` of not being touched.
Declaration WithExpiry(uint32_t seconds) {
  return WithTables("async {}", 1,
                    absl::StrCat("expiry { seconds: ", seconds, " }"));
}

TEST(TableSnapshotTest, IncrementsHoldWhatWasTouchedAfterTheWallClockStepped) {
  for (const int hours : {-1, 1}) {
    const std::string dir = CheckpointRoot();
    std::filesystem::remove_all(dir);  // what the first round left
    Shards job(WithExpiry(60));
    StoreTester& tester = *job.testers[0];
    const auto pass = [&](int seconds) {
      tester.clock.Advance(std::chrono::seconds(seconds));
      tester.store->ExpireWaits();
    };
    pass(5);
    job.Update(0, 0, 100);
    pass(5);
    job.Update(1, 0, 0);  // another clock for table "u", too
    job.Save(dir, "ckpt-1");
    const auto before = job.Rows();
    tester.clock.StepWall(std::chrono::hours(hours));
    pass(5);
    EXPECT_EQ(job.Rows(), before) << hours;
    job.Update(2, 50, 200);
    pass(5);
    const std::vector<TableFile> files = job.Save(dir, "ckpt-2", "ckpt-1");
    EXPECT_EQ(files[0].base(), "ckpt-1");
    EXPECT_EQ(files[0].rows(), 2 * 150u) << hours;
    const auto saved = job.Rows();
    Shards after(WithExpiry(60));
    ASSERT_TRUE(after.Restore(JoinPath(dir, "ckpt-2")).ok());
    EXPECT_EQ(after.Rows(), saved) << hours;
  }
}

TEST(TableSnapshotTest, IncrementsHoldWhatWasTouchedAsTheClockPassed32Bits) {
  const std::string dir = CheckpointRoot();
  Declaration declaration = WithTables("async {}", 1);
  declaration.set_base_version((uint64_t{1} << 32) - 2);
  Shards job(declaration);
  job.version = declaration.base_version();
  job.Update(0, 0, 100);
  job.Save(dir, "ckpt-1");
  job.Update(1, 200, 210);
  job.Update(2, 210, 220);
  job.Update(3, 220, 230);
  const std::vector<TableFile> files = job.Save(dir, "ckpt-2", "ckpt-1");
  EXPECT_EQ(files[0].base(), "ckpt-1");
  // Those of the update before the base, too: the clock was the same.
  EXPECT_EQ(files[0].rows(), 2 * 130u);
  const auto saved = job.Rows();
  Shards after(WithTables("async {}", 2));
  ASSERT_TRUE(after.Restore(JoinPath(dir, "ckpt-2")).ok());
  EXPECT_EQ(after.Rows(), saved);
}

TEST(TableSnapshotTest, AgesComeBackOnAPsWithAnotherClock) {
  const std::string dir = CheckpointRoot();
  Shards job(WithExpiry(60));
  const auto pass = [](Shards& shards, int seconds) {
    shards.testers[0]->clock.Advance(std::chrono::seconds(seconds));
    shards.testers[0]->store->ExpireWaits();
  };
  job.Update(0, 0, 10);
  pass(job, 20);
  job.Save(dir, "ckpt-1");
  pass(job, 20);
  job.Update(1, 10, 20);
  job.Save(dir, "ckpt-2", "ckpt-1");  // the first ten are 40 s old
  for (const int booted : {0, 1000000}) {
    Shards after(WithExpiry(60));
    pass(after, booted);
    ASSERT_TRUE(after.Restore(JoinPath(dir, "ckpt-2")).ok());
    const auto rows = after.Rows();
    pass(after, 20);
    EXPECT_EQ(after.Rows(), rows);
    pass(after, 1);
    EXPECT_NE(after.Rows().at(0), rows.at(0));
    EXPECT_EQ(after.Rows().at(70), rows.at(70));  // of index 10
    pass(after, 40);
    EXPECT_NE(after.Rows().at(70), rows.at(70));
  }
}

TEST(TableSnapshotTest, AgesOfTheVersionBeforeAreThoseOfThatVersion) {
  const std::string dir = CheckpointRoot();
  const std::string path = JoinPath(dir, "ckpt-1");
  std::filesystem::create_directories(path);
  const Declaration declaration =
      WithTables("sync { contributions: 1 }", 1, "expiry { steps: 3 }");
  Shards job(declaration);
  StoreTester& tester = *job.testers[0];
  for (uint64_t sequence = 0; sequence < 2; ++sequence) {
    job.Update(sequence, sequence * 10, sequence * 10 + 10);
    ASSERT_TRUE(
        tester.PushConstant(tester.Chunk(0, sequence, 0, sequence), 1.0f).ok());
  }
  SnapshotRequest request;
  *request.mutable_sender() = tester.SenderOf(0, 0);
  request.set_checkpoint(NameOf(path));
  request.set_version(1);  // the tables are at 2
  std::vector<SnapshotReply> replies;
  tester.store->Snapshot(
      request,
      [&](absl::StatusOr<SnapshotReply> reply) {
        ASSERT_TRUE(reply.ok()) << reply.status();
        replies.push_back(*std::move(reply));
      },
      [](const std::function<void()>& run) { run(); });
  ASSERT_EQ(replies.size(), 2u);
  Manifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_name("ckpt-1");
  *manifest.mutable_declaration() = declaration;
  *manifest.add_file() = replies[1].file();
  ASSERT_TRUE(WriteManifest(Files::Real(), path, manifest).ok());

  Shards after(declaration);
  after.declaration.set_base_version(1);
  ASSERT_TRUE(after.Restore(path).ok());
  after.version = 1;
  const auto rows = after.Rows();
  after.Update(0, 20, 21);
  after.Update(1, 20, 21);
  // Touched in version 0, so 3 steps old in version 3, and gone in 4.
  EXPECT_EQ(after.Rows().at(0), rows.at(0));
  after.Update(2, 20, 21);
  EXPECT_NE(after.Rows().at(0), rows.at(0));
}

TEST(TableSnapshotTest, AnIncrementOfAHundredthOfTheRowsIsAsSmall) {
  const std::string dir = CheckpointRoot();
  Declaration declaration = WithTables("async {}", 1);
  declaration.mutable_table()->RemoveLast();
  declaration.mutable_table(0)->set_dim(16);
  declaration.mutable_table(0)->mutable_optimizer()->mutable_adagrad();
  Shards job(declaration);
  for (uint64_t sequence = 0; sequence < 20; ++sequence) {
    job.Update(sequence, sequence * 1000, (sequence + 1) * 1000);
  }
  job.Update(20, 0, 1);  // the last one before a full file counts as touched
  const TableFile full = job.Save(dir, "ckpt-1")[0];
  job.Update(21, 5000, 5200);
  const TableFile increment = job.Save(dir, "ckpt-2", "ckpt-1")[0];
  EXPECT_EQ(full.rows(), 20000u);
  EXPECT_EQ(increment.base(), "ckpt-1");
  EXPECT_EQ(increment.rows(), 201u);
  EXPECT_LE(increment.bytes() * 100, full.bytes() * 3);
  std::printf("full %llu bytes, increment %llu bytes, %.2f%%\n",
              static_cast<unsigned long long>(full.bytes()),
              static_cast<unsigned long long>(increment.bytes()),
              100.0 * static_cast<double>(increment.bytes()) /
                  static_cast<double>(full.bytes()));
}

TEST(TableSnapshotTest, DroppedRowsDoNotComeBack) {
  for (const bool by_age : {false, true}) {
    const std::string dir = CheckpointRoot();
    std::filesystem::remove_all(dir);  // what the first round left
    Shards job(WithTables("async {}", 1));
    job.Update(0, 0, kRows);
    job.Update(1, 0, 100);
    job.Update(2, 0, 100);
    job.Save(dir, "ckpt-1");
    ShrinkRequest shrink;
    *shrink.mutable_sender() = job.testers[0]->SenderOf(0);
    if (by_age) {
      shrink.set_age_max(1);
    } else {
      shrink.set_rows_max(100);
    }
    EXPECT_EQ(job.testers[0]->store->Shrink(shrink)->rows(), 600u);
    const std::vector<TableFile> files = job.Save(dir, "ckpt-2", "ckpt-1");
    EXPECT_EQ(files[0].base(), "") << by_age;
    EXPECT_EQ(files[0].rows(), 200u) << by_age;
    const auto saved = job.Rows();
    Shards after(WithTables("async {}", 2));
    ASSERT_TRUE(after.Restore(JoinPath(dir, "ckpt-2")).ok());
    EXPECT_EQ(after.Rows(), saved) << by_age;
  }
}

TEST(TableSnapshotTest, AnIncrementNeedsNoRowsToTellThatSomeHaveExpired) {
  const std::string dir = CheckpointRoot();
  const Declaration declaration =
      WithTables("async {}", 1, "expiry { steps: 1 }");
  Shards job(declaration);
  job.Update(0, 0, kRows);
  job.Save(dir, "ckpt-1");
  job.Update(1, 0, 100);
  job.Update(2, 0, 100);
  ShrinkRequest shrink;
  *shrink.mutable_sender() = job.testers[0]->SenderOf(0);
  EXPECT_EQ(job.testers[0]->store->Shrink(shrink)->rows(), 300u);
  const std::vector<TableFile> files = job.Save(dir, "ckpt-2", "ckpt-1");
  EXPECT_EQ(files[0].base(), "ckpt-1");
  const auto saved = job.Rows();
  Shards after(declaration);
  ASSERT_TRUE(after.Restore(JoinPath(dir, "ckpt-2")).ok());
  EXPECT_EQ(after.Rows(), saved);
}

TEST(TableSnapshotTest, RowsBeyondTheMemoryOfThePsAreRefused) {
  const std::string dir = CheckpointRoot();
  Declaration declaration = WithTables("async {}", 1);
  declaration.mutable_table(0)->set_dim(4096);  // far above an empty table
  Shards job(declaration);
  for (uint64_t sequence = 0; sequence < 8; ++sequence) {
    job.Update(sequence, sequence * 50, sequence * 50 + 50);
  }
  job.Save(dir, "ckpt-1");
  RestoreRequest request;
  *request.mutable_declaration() = declaration;
  request.set_checkpoint("ckpt-1");
  const auto store_of = [&dir](int64_t memory_bytes_max) {
    Store::Options options;
    options.checkpoint_root = dir;
    options.memory_bytes_max = memory_bytes_max;
    return *Store::Create(options);
  };
  const auto roomy = store_of(int64_t{1} << 30);
  ASSERT_TRUE(roomy->Restore(request).ok());
  const auto bytes = static_cast<int64_t>(roomy->GetStatus().bytes_resident());
  absl::Status status = store_of(bytes / 2)->Restore(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("more rows for shard 0 than fit"));
  // Once, but not beside itself.
  const auto store = store_of(bytes * 3 / 2);
  ASSERT_TRUE(store->Restore(request).ok());
  request.mutable_declaration()->set_history(2);
  status = store->Restore(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("start it anew"));
  EXPECT_EQ(store->Hello().history(), 1u);  // the old shard goes on
}

TEST(TableSnapshotTest, AForeignBaseIsNotExtended) {
  const std::string dir = CheckpointRoot();
  Shards job(WithTables("async {}", 1));
  job.Update(0, 0, 10);
  EXPECT_EQ(job.Save(dir, "ckpt-1", "ckpt-0")[0].base(), "");
}

TEST(TableSnapshotTest, DamageIsNamed) {
  const std::string dir = CheckpointRoot();
  Shards job(WithTables("async {}", 2));
  job.Update(0, 0, kRows);
  job.Save(dir, "ckpt-1");
  const std::string path = JoinPath(dir, "ckpt-1");
  const std::string file = JoinPath(path, TableFileName(1, 2));
  std::string bytes = *Files::Real()->ReadAll(file);
  bytes[bytes.size() - 5] ^= 1;
  ASSERT_TRUE(Files::Real()->WriteAtomically(file, bytes).ok());
  Shards after(WithTables("async {}", 1));
  absl::Status status = after.Restore(path);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("tables-1-of-2"));
  EXPECT_THAT(status.message(), HasSubstr("CRC32C"));
  std::filesystem::remove(file);
  EXPECT_THAT(after.Restore(path).message(), HasSubstr("is missing"));
}

TEST(TableSnapshotTest, OtherTablesAreRefused) {
  const std::string dir = CheckpointRoot();
  Shards job(WithTables("async {}", 1));
  job.Update(0, 0, 10);
  job.Save(dir, "ckpt-1");
  const std::string path = JoinPath(dir, "ckpt-1");
  Declaration other = WithTables("async {}", 1);
  other.mutable_table(0)->mutable_optimizer()->mutable_sgd();
  EXPECT_THAT(Shards(other).Restore(path).message(),
              HasSubstr("table \"t\" with 6 floats a row, the job has 2"));
  other.mutable_table(0)->set_name("x");
  EXPECT_THAT(Shards(other).Restore(path).message(),
              HasSubstr("has none of that name"));
  other.mutable_table()->RemoveLast();
  EXPECT_THAT(Shards(other).Restore(path).message(),
              HasSubstr("has 2 tables, the job 1"));
}

// Work that waits until it is let go.
TEST(TableSnapshotTest, UsesWaitWhileRowsAreWrittenAndNoLonger) {
  const std::string dir = MakeCheckpointDir();
  Shards job(WithTables("async {}", 1));
  StoreTester& tester = *job.testers[0];
  job.Update(0, 0, 10);
  SnapshotRequest request;
  *request.mutable_sender() = tester.SenderOf(0, 0);
  request.set_checkpoint(NameOf(dir));
  std::vector<std::function<void()>> work;
  int replies = 0;
  tester.store->Snapshot(
      request, [&](const absl::StatusOr<SnapshotReply>&) { ++replies; },
      [&](std::function<void()> run) { work.push_back(std::move(run)); });
  ASSERT_EQ(work.size(), 1u);
  EXPECT_EQ(replies, 0);
  const auto update = Apply(tester, Piece(tester, 0, 1, 1), {});
  const auto lookup =
      LookUp(tester, Request(tester, 0, ListOf(1, {7}), LatestWant()));
  EXPECT_FALSE(update->done);
  EXPECT_FALSE(lookup->done);
  work[0]();
  EXPECT_EQ(replies, 1);  // FROZEN
  EXPECT_TRUE(update->done);
  EXPECT_EQ(OutcomeOf(update), Receipt::ACCEPTED);
  EXPECT_TRUE(lookup->done);
  ASSERT_EQ(work.size(), 2u);
  work[1]();
  EXPECT_EQ(replies, 2);
}

TEST(TableSnapshotTest, SyncWritesTheVersionThatWasAskedFor) {
  const std::string dir = CheckpointRoot();
  Shards job(WithTables("sync { contributions: 1 }", 1));
  StoreTester& tester = *job.testers[0];
  const std::string path = JoinPath(dir, "ckpt-2");
  std::filesystem::create_directories(path);
  SnapshotRequest request;
  *request.mutable_sender() = tester.SenderOf(0, 0);
  request.set_checkpoint(NameOf(path));
  request.set_version(2);
  std::vector<SnapshotReply> replies;
  tester.store->Snapshot(
      request,
      [&](absl::StatusOr<SnapshotReply> reply) {
        replies.push_back(*std::move(reply));
      },
      [](const std::function<void()>& run) { run(); });
  std::map<uint64_t, std::vector<float>> at_two;
  for (uint64_t sequence = 0; sequence < 3; ++sequence) {
    job.Update(sequence, 0, 50);
    ASSERT_TRUE(
        tester.PushConstant(tester.Chunk(0, sequence, 0, sequence), 1.0f).ok());
    if (sequence == 1) {
      at_two = job.Rows();
    }
  }
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[0].slot(0).next_sequence_min(), 2u);
  EXPECT_EQ(replies[0].slot(0).next_sequence_max(), 2u);
  Manifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_name("ckpt-2");
  *manifest.mutable_declaration() = job.declaration;
  *manifest.add_file() = replies[1].file();
  ASSERT_TRUE(WriteManifest(Files::Real(), path, manifest).ok());
  Shards after(WithTables("sync { contributions: 1 }", 2));
  ASSERT_TRUE(after.Restore(path).ok());
  EXPECT_EQ(after.Rows(), at_two);
  EXPECT_NE(job.Rows(), at_two);
}

// The tables of another shard lack a contribution of the last step.
TEST(TableSnapshotTest, SyncWritesTheVersionBeforeItsOwn) {
  const std::string dir = CheckpointRoot();
  Declaration declaration = WithTables("sync { contributions: 2 }", 1);
  declaration.set_slot_count(2);
  Shards job(declaration);
  StoreTester& tester = *job.testers[0];
  const auto step = [&](uint64_t sequence, uint64_t id, float gradient) {
    for (const int m : {0, 1}) {
      PushRowsChunk chunk = Piece(tester, m, sequence, sequence, m);
      *chunk.add_list() = ListOf(0, {7 * id, 7 * id + 7});
      *chunk.add_list() = ListOf(1, {7 * id});
      ASSERT_EQ(
          OutcomeOf(Apply(tester, chunk, std::vector<float>(5, gradient + m))),
          Receipt::ACCEPTED);
    }
  };
  step(0, 1, 1.0f);
  const auto then = job.Rows();
  step(1, 2, 0.5f);  // ids 14 and 21: one that moved before, one that is new
  ASSERT_NE(job.Rows(), then);
  for (const int m : {0, 1}) {  // the block is behind
    ASSERT_TRUE(tester.PushConstant(tester.Chunk(m, 0, 0, 0, m), 1.0f).ok());
  }
  const std::string path = JoinPath(dir, "ckpt-1");
  std::filesystem::create_directories(path);
  const auto result = tester.Snapshot(path, 1);
  ASSERT_EQ(result.replies.size(), 2u) << result.error;
  EXPECT_EQ(result.replies[1].file().tables().rows(), 3u);
  Manifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_name("ckpt-1");
  *manifest.mutable_declaration() = job.declaration;
  *manifest.add_file() = result.replies[1].file();
  ASSERT_TRUE(WriteManifest(Files::Real(), path, manifest).ok());
  Shards after(declaration);
  ASSERT_TRUE(after.Restore(path).ok());
  EXPECT_EQ(after.Rows(), then);
  // A repeated step has the same bits: state and counts came back, too.
  const auto now = job.Rows();
  StoreTester& other = *after.testers[0];
  ASSERT_TRUE(other.SetSlot(1, 1, false).ok());
  for (const int m : {0, 1}) {
    PushRowsChunk chunk =
        Piece(other, m, 0, other.declaration.base_version(), m);
    *chunk.add_list() = ListOf(0, {14, 21});
    *chunk.add_list() = ListOf(1, {14});
    ASSERT_EQ(OutcomeOf(Apply(other, chunk, std::vector<float>(5, 0.5f + m))),
              Receipt::ACCEPTED);
  }
  EXPECT_EQ(after.Rows(), now);
}

// The files of a directory, by name.
std::map<std::string, std::string> FilesIn(const std::string& directory) {
  std::map<std::string, std::string> files;
  const std::vector<std::string> names = *Files::Real()->List(directory);
  for (const std::string& name : names) {
    files[name] = *Files::Real()->ReadAll(JoinPath(directory, name));
  }
  return files;
}

TEST(TableSnapshotTest, ACheckpointStaysAsItIs) {
  Shards shards(WithTables("async {}", 1));
  const std::string dir = CheckpointRoot();
  shards.Update(0, 0, 10);
  shards.Save(dir, "ckpt-1");
  const std::string path = JoinPath(dir, "ckpt-1");
  const std::map<std::string, std::string> before = FilesIn(path);
  shards.Update(1, 0, 20);
  const auto again = shards.testers[0]->Snapshot(path);
  EXPECT_EQ(again.error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(again.error.message(), HasSubstr("is a checkpoint already"));
  EXPECT_EQ(FilesIn(path), before);
  // The tables go on.
  shards.Update(2, 0, 20);
}

}  // namespace
}  // namespace weir
