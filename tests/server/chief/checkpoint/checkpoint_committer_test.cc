#include "server/chief/checkpoint/checkpoint_committer.h"

#include <signal.h>

#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/failpoint.h"
#include "common/io/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/checkpoint/table_file.h"
#include "tests/common/temp_dir.h"
#include "tests/support/faulty_files.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

Manifest ManifestOf(uint64_t step, const std::string& name) {
  Manifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_name(name);
  manifest.set_step(step);
  Declaration* declaration = manifest.mutable_declaration();
  declaration->set_job("test");
  declaration->set_shard_count(1);
  declaration->set_block_elements(16);
  declaration->add_variable()->set_name("w");
  declaration->mutable_variable(0)->add_shape(16);
  return manifest;
}

class JobDir {
 public:
  explicit JobDir(Files* files = Files::Real(), uint32_t keep = 2)
      : directory(MakeTempDir() + "/checkpoints"),
        committer(Make(files, keep)) {
    EXPECT_TRUE(Files::Real()->MakeDirectories(directory).ok());
  }

  CheckpointCommitter Make(Files* files, uint32_t keep) const {
    CheckpointCommitter::Options options;
    options.files = files;
    options.directory = directory;
    options.keep = keep;
    return CheckpointCommitter(options);
  }

  // Does what the ps does: writes a shard file whose values are the step.
  Manifest Write(uint64_t step, const std::string& name) const {
    Manifest manifest = ManifestOf(step, name);
    const std::string path = absl::StrCat(directory, "/", manifest.name());
    EXPECT_TRUE(Files::Real()->MakeDirectories(path).ok());
    auto writer = SafetensorsWriter::Create(
        Files::Real(), absl::StrCat(path, "/", ShardFileName(0, 1)),
        {{"values", "F32", {16}, 0, 0}, {"step_counts", "I64", {1}, 0, 0}}, {});
    const std::vector<float> values(16, static_cast<float>(step));
    const int64_t count = static_cast<int64_t>(step);
    EXPECT_TRUE((*writer)->Append(values.data(), 64).ok());
    EXPECT_TRUE((*writer)->Append(&count, 8).ok());
    const auto digest = (*writer)->Finish();
    ShardFile* file = manifest.add_file();
    file->set_name(ShardFileName(0, 1));
    file->set_bytes(static_cast<uint64_t>(digest->bytes));
    file->set_crc32c(digest->crc32c);
    file->set_host("elsewhere");
    return manifest;
  }

  Manifest Write(uint64_t step) const {
    return Write(step, CheckpointName(step));
  }

  // Does the same for a job with a table, whose file extends that of `base`.
  Manifest WriteWithRows(uint64_t step, const std::string& base) const {
    Manifest manifest = Write(step);
    EmbeddingTable* const table = manifest.mutable_declaration()->add_table();
    table->set_name("t");
    table->set_dim(1);
    const std::string name = TableFileName(0, 1);
    const RowRecords rows = {{7}, {1}, {1}, {static_cast<float>(step)}};
    const auto digest = TableFileWriter::Write(
        Files::Real(), absl::StrCat(directory, "/", manifest.name(), "/", name),
        {{"t", step, 1, 1}},
        [&](int, const std::function<absl::Status(const RowRecords&)>& take) {
          return take(rows);
        });
    EXPECT_TRUE(digest.ok()) << digest.status();
    TableFile* const tables = manifest.mutable_file(0)->mutable_tables();
    tables->set_name(name);
    tables->set_bytes(static_cast<uint64_t>(digest->bytes));
    tables->set_crc32c(digest->crc32c);
    tables->set_base(base);
    tables->set_rows(1);
    return manifest;
  }

  absl::Status CommitWithRows(uint64_t step, const std::string& base) {
    EXPECT_TRUE(committer.Prepare(step).ok());
    note.clear();
    return committer.Commit(WriteWithRows(step, base), &note);
  }

  absl::Status Commit(uint64_t step) {
    const absl::StatusOr<std::string> name = committer.Prepare(step);
    if (!name.ok()) {
      return name.status();
    }
    note.clear();
    return committer.Commit(Write(step, *name), &note);
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    const auto list = ListCheckpoints(Files::Real(), directory);
    EXPECT_TRUE(list.ok()) << list.status();
    for (const CheckpointInfo& info : *list) {
      names.push_back(info.name);
    }
    return names;
  }
  // The step of the newest checkpoint, verified: 0 if there is none, and -1 if
  // it is damaged.
  int64_t Newest() const {
    std::string ignored;
    const auto found =
        Make(Files::Real(), 2).Find(/*verify=*/true, false, &ignored);
    if (!found.ok()) {
      return -1;
    }
    return found->has_value() ? static_cast<int64_t>((*found)->manifest.step())
                              : 0;
  }
  void Damage(uint64_t step) const {
    std::fstream file(absl::StrCat(directory, "/", CheckpointName(step), "/",
                                   ShardFileName(0, 1)),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('x');
  }

  const std::string directory;
  CheckpointCommitter committer;
  std::string note;
};

TEST(CheckpointCommitterTest, CommitsKeepsTheNewestAndListsThem) {
  JobDir run;
  EXPECT_EQ(run.Newest(), 0);
  for (const uint64_t step : {5, 10, 15}) {
    ASSERT_TRUE(run.Commit(step).ok());
    EXPECT_EQ(run.note, "");
  }
  EXPECT_THAT(run.Names(), ElementsAre("ckpt-10", "ckpt-15"));
  EXPECT_EQ(run.Newest(), 15);
  EXPECT_EQ(*Files::Real()->ReadAll(run.directory + "/checkpoint"),
            "model_checkpoint_path: \"ckpt-15\"\n"
            "all_model_checkpoint_paths: \"ckpt-10\"\n"
            "all_model_checkpoint_paths: \"ckpt-15\"\n");
  EXPECT_FALSE(*Files::Real()->Exists(run.directory + "/ckpt-5"));
  const auto manifest = ReadManifest(Files::Real(), run.directory + "/ckpt-15");
  EXPECT_THAT(manifest->written_at(), HasSubstr("T"));
}

TEST(CheckpointCommitterTest, ABaseStaysWhileAKeptOneExtendsIt) {
  JobDir run;
  const auto commit = [&](uint64_t step, const std::string& base) {
    const absl::Status status = run.CommitWithRows(step, base);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(run.note, "");
    EXPECT_EQ(run.Newest(), static_cast<int64_t>(step));
  };
  commit(5, "");
  commit(10, "ckpt-5");
  commit(15, "ckpt-5");
  EXPECT_THAT(run.Names(), ElementsAre("ckpt-5", "ckpt-10", "ckpt-15"));
  commit(20, "");
  EXPECT_THAT(run.Names(), ElementsAre("ckpt-5", "ckpt-15", "ckpt-20"));
  commit(25, "ckpt-20");
  EXPECT_THAT(run.Names(), ElementsAre("ckpt-20", "ckpt-25"));
}

TEST(CheckpointCommitterTest, ATableFileIsCheckedBeforeItCounts) {
  JobDir run;
  ASSERT_TRUE(run.CommitWithRows(5, "").ok());
  // The file is cut, its header is changed, and it is missing.
  Manifest manifest = run.WriteWithRows(10, "");
  const std::string path =
      absl::StrCat(run.directory, "/ckpt-10/", TableFileName(0, 1));
  const std::string good = *Files::Real()->ReadAll(path);
  std::string changed = good;
  changed.replace(changed.find("U64"), 3, "U32");
  for (const std::string& bad : {good.substr(0, good.size() - 1), changed}) {
    ASSERT_TRUE(Files::Real()->WriteAtomically(path, bad).ok());
    const absl::Status status = run.committer.Commit(manifest, &run.note);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(Message(status), HasSubstr(path));
  }
  ASSERT_TRUE(Files::Real()->Remove(path).ok());
  EXPECT_THAT(Message(run.committer.Commit(manifest, &run.note)),
              HasSubstr("host 'elsewhere' wrote it"));
  EXPECT_EQ(run.Newest(), 5);
}

// A chief that read all rows of all ps would hold up the end of a stop.
TEST(CheckpointCommitterTest, RowsAreCheckedWhenTheyAreRestored) {
  JobDir run;
  const Manifest manifest = run.WriteWithRows(10, "");
  const std::string path =
      absl::StrCat(run.directory, "/ckpt-10/", TableFileName(0, 1));
  std::string changed = *Files::Real()->ReadAll(path);
  changed.back() ^= 1;
  ASSERT_TRUE(Files::Real()->WriteAtomically(path, changed).ok());
  ASSERT_TRUE(run.committer.Commit(manifest, &run.note).ok());
  const absl::Status status =
      run.committer.Find(/*verify=*/true, /*allow_older=*/false, &run.note)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), HasSubstr(path));
}

TEST(CheckpointCommitterTest, OneWhoseBaseIsGoneIsNotCommitted) {
  JobDir run;
  ASSERT_TRUE(run.CommitWithRows(5, "").ok());
  const absl::Status status = run.CommitWithRows(10, "ckpt-4");
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(status),
              HasSubstr("ckpt-10 extends 'ckpt-4', which is gone"));
  EXPECT_EQ(run.Newest(), 5);
}

TEST(CheckpointCommitterTest, AFileThatIsNotVisibleIsNamedWithItsHost) {
  JobDir run;
  Manifest manifest = run.Write(5);
  const std::string path =
      absl::StrCat(run.directory, "/ckpt-5/", ShardFileName(0, 1));
  ASSERT_TRUE(Files::Real()->Remove(path).ok());
  absl::Status status = run.committer.Commit(manifest, &run.note);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("host 'elsewhere'"));
  EXPECT_THAT(Message(status), HasSubstr(path));
  manifest = run.Write(5);
  manifest.mutable_file(0)->set_bytes(9);
  status = run.committer.Commit(manifest, &run.note);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(run.Newest(), 0);
}

TEST(CheckpointCommitterTest, ADamagedNewestIsRefusedOrSetAside) {
  JobDir run(Files::Real(), 3);
  for (const uint64_t step : {5, 10, 15}) {
    ASSERT_TRUE(run.Commit(step).ok());
  }
  run.Damage(15);
  std::string note;
  auto found = run.committer.Find(true, false, &note);
  EXPECT_EQ(found.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(found.status()), HasSubstr("ckpt-15 is damaged"));
  EXPECT_THAT(Message(found.status()), HasSubstr("--allow_older"));
  found = run.committer.Find(true, true, &note);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)->manifest.step(), 10u);
  EXPECT_THAT(note, HasSubstr("loses 5 steps"));
  EXPECT_THAT(run.Names(), ElementsAre("ckpt-5", "ckpt-10"));
  EXPECT_THAT(*Files::Real()->ReadAll(run.directory + "/ckpt-15/damaged"),
              HasSubstr("CRC32C is"));
  // It is not written over when training comes there again.
  EXPECT_EQ(*run.committer.Prepare(15), "ckpt-15-2");
  std::vector<CheckpointInfo> aside;
  ASSERT_TRUE(ListCheckpoints(Files::Real(), run.directory, &aside).ok());
  ASSERT_EQ(aside.size(), 1u);
  EXPECT_EQ(aside[0].name, "ckpt-15");
  run.Damage(5);
  run.Damage(10);
  found = run.committer.Find(true, true, &note);
  EXPECT_EQ(found.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(found.status()), HasSubstr("no older checkpoint"));
}

TEST(CheckpointCommitterTest, SweepRemovesOnlyWhatIsUnfinished) {
  JobDir run;
  ASSERT_TRUE(run.Commit(5).ok());
  run.Write(10);
  std::ofstream(TemporaryPath(run.directory + "/checkpoint")) << "half";
  std::ofstream(run.directory + "/notes.txt") << "mine";
  ASSERT_TRUE(run.committer.Sweep(&run.note).ok());
  EXPECT_THAT(*Files::Real()->List(run.directory),
              ElementsAre("checkpoint", "ckpt-10", "ckpt-5", "notes.txt"));
  // Its name is taken, it is empty, and it goes when training is past it.
  EXPECT_THAT(*Files::Real()->List(run.directory + "/ckpt-10"), ElementsAre());
  for (const uint64_t step : {10, 15, 20}) {
    ASSERT_TRUE(run.Commit(step).ok());
  }
  EXPECT_THAT(*Files::Real()->List(run.directory),
              ElementsAre("checkpoint", "ckpt-15", "ckpt-20", "notes.txt"));
}

TEST(CheckpointCommitterTest,
     ACommittedCheckpointIsNeverTouchedByThatOfItsStep) {
  JobDir run(Files::Real(), 1);
  ASSERT_TRUE(run.Commit(5).ok());
  const std::string manifest =
      *Files::Real()->ReadAll(run.directory + "/ckpt-5/manifest.json");
  // The chief dies before this one is committed.
  EXPECT_EQ(*run.committer.Prepare(5), "ckpt-5-2");
  EXPECT_EQ(*Files::Real()->ReadAll(run.directory + "/ckpt-5/manifest.json"),
            manifest);
  EXPECT_EQ(run.Newest(), 5);
  ASSERT_TRUE(run.committer.Sweep(&run.note).ok());
  ASSERT_TRUE(run.Commit(5).ok());
  EXPECT_THAT(run.Names(), ElementsAre("ckpt-5-3"));
  EXPECT_EQ(*run.committer.Prepare(5), "ckpt-5-4");
}

TEST(CheckpointCommitterTest, NoNameOfAnAttemptThatFailedIsGivenAgain) {
  JobDir run;
  std::set<std::string> names;
  for (int i = 0; i < 5; ++i) {
    const std::string name = *run.committer.Prepare(5);
    EXPECT_TRUE(names.insert(name).second) << name;
    run.Write(5, name);
    if (i % 2 == 0) {
      EXPECT_TRUE(run.committer.Discard(name).ok());
    } else {
      EXPECT_TRUE(run.committer.Sweep(&run.note).ok());
    }
    EXPECT_EQ(run.note, "");
    EXPECT_EQ(run.Newest(), 0);
    // What a ps writes late for it changes nothing of the next.
    run.Write(5, name);
  }
  ASSERT_TRUE(run.Commit(5).ok());
  EXPECT_THAT(run.Names(), ElementsAre("ckpt-5-6"));
  EXPECT_EQ(run.Newest(), 5);
  EXPECT_EQ(run.committer.Discard("ckpt-5-6").code(),
            absl::StatusCode::kInternal);
  EXPECT_EQ(run.Newest(), 5);
}

// Power may be lost at any time after the first checkpoint is committed.
TEST(CheckpointCommitterTest, TheNamesOfAllDirectoriesAboveAreDurable) {
  FaultyFiles files(Files::Real());
  JobDir run(&files);
  std::vector<std::string> calls;
  files.Watch([&](const std::string& call) { calls.push_back(call); });
  ASSERT_TRUE(run.committer.MakeDirectory().ok());
  std::vector<std::string> expected = {"make directory " + run.directory};
  for (std::string above = run.directory; above != "/";) {
    above = DirectoryOf(above);
    expected.push_back("fsync directory " + above);
  }
  EXPECT_EQ(calls, expected);
}

// Otherwise a job could end with one that its chief, which was killed, had only
// just named, and a loss of power would take it.
TEST(CheckpointCommitterTest, WhatIsFoundIsDurable) {
  FaultyFiles files(Files::Real());
  JobDir run(&files);
  ASSERT_TRUE(run.Commit(5).ok());
  std::set<std::string> calls;
  files.Watch([&](const std::string& call) { calls.insert(call); });
  ASSERT_TRUE(run.committer.Find(false, false, &run.note).ok());
  EXPECT_EQ(calls.count("fsync directory " + run.directory + "/ckpt-5"), 1u);
}

TEST(CheckpointCommitterTest, OneAtWhichAllHadFinishedIsKnownAsSuch) {
  JobDir run;
  ASSERT_TRUE(run.Commit(5).ok());
  EXPECT_FALSE(*run.committer.IsMarkedFinished("ckpt-5"));
  ASSERT_TRUE(run.committer.MarkFinished("ckpt-5").ok());
  ASSERT_TRUE(run.Commit(10).ok());
  EXPECT_TRUE(*run.committer.IsMarkedFinished("ckpt-5"));
  EXPECT_FALSE(*run.committer.IsMarkedFinished("ckpt-10"));
  EXPECT_TRUE((*run.committer.Find(true, false, &run.note)).has_value());
}

// It was there before the job, so its name is durable.
TEST(CheckpointCommitterTest, ADirectoryThatIsNotOursNeedsNoSync) {
  FaultyFiles files(Files::Real());
  JobDir run(&files);
  files.FailCall(3, absl::InvalidArgumentError("permission denied"));
  EXPECT_TRUE(run.committer.MakeDirectory().ok());
  files.FailCall(3, absl::InternalError("input/output error"));
  EXPECT_EQ(run.committer.MakeDirectory().code(), absl::StatusCode::kInternal);
}

// A place that does not answer has not said that it holds nothing.
TEST(CheckpointCommitterTest, WhetherAnythingWasCommittedIsNotGuessed) {
  FaultyFiles files(Files::Real());
  JobDir run(&files);
  ASSERT_TRUE(run.committer.Sweep(&run.note).ok());
  EXPECT_FALSE(run.committer.HasCommitted().value());
  files.FailCall(1, absl::UnavailableError("no answer"));
  EXPECT_EQ(run.committer.HasCommitted().status().code(),
            absl::StatusCode::kUnavailable);
  ASSERT_TRUE(run.committer.Prepare(5).ok());
  ASSERT_TRUE(run.committer.Commit(run.Write(5), &run.note).ok());
  EXPECT_TRUE(run.committer.HasCommitted().value());
}

// A checkpoint of another chief that is still being written is left alone.
TEST(CheckpointCommitterTest, CommitLeavesALaterAttemptAlone) {
  JobDir run;
  ASSERT_TRUE(run.committer.Prepare(5).ok());
  const Manifest later = run.Write(10);
  ASSERT_TRUE(run.committer.Commit(run.Write(5), &run.note).ok());
  ASSERT_TRUE(run.committer.Commit(later, &run.note).ok());
  EXPECT_EQ(run.Newest(), 10);
}

// Whatever call fails, once or from then on: a whole newest checkpoint is
// there, an older one at most, and the next try succeeds.
TEST(CheckpointCommitterTest, AnyFailingCallLeavesTheLastGoodCheckpoint) {
  for (const bool sticky : {false, true}) {
    int64_t calls = 0;
    bool all_ok = false;
    for (int64_t nth = 1; nth <= 200; ++nth) {
      FaultyFiles files(Files::Real());
      JobDir run(&files);
      for (const uint64_t step : {5, 10}) {
        ASSERT_TRUE(run.Commit(step).ok());
      }
      // Step 10 has a checkpoint already, step 15 has none.
      for (const uint64_t step : {10, 15}) {
        files.FailCall(nth, absl::ResourceExhaustedError("injected"), sticky);
        const absl::Status status = run.Commit(step);
        const auto newest = static_cast<uint64_t>(run.Newest());
        if (status.ok()) {
          EXPECT_EQ(newest, step) << "call " << nth;
        } else {
          EXPECT_TRUE(newest == 10 || newest == step) << "call " << nth;
        }
        all_ok = status.ok();
      }
      EXPECT_GE(run.Names().size(), 1u);
      calls = files.calls();
      files.FailCall(0, absl::OkStatus());
      EXPECT_TRUE(run.committer.Sweep(&run.note).ok());
      ASSERT_TRUE(run.Commit(20).ok()) << "after call " << nth;
      EXPECT_EQ(run.Newest(), 20);
      EXPECT_LE(run.Names().size(), 2u);
      if (nth > calls) {
        EXPECT_TRUE(all_ok);
        break;  // every call has failed once
      }
    }
    EXPECT_GE(calls, sticky ? 5 : 20);
  }
}

// What an increment extends stays, also when a manifest cannot be read just
// then.
TEST(CheckpointCommitterTest, AnyFailingCallLeavesTheBases) {
  int64_t calls = 0;
  for (int64_t nth = 1; nth <= calls + 1; ++nth) {
    FaultyFiles files(Files::Real());
    JobDir run(&files);
    ASSERT_TRUE(run.CommitWithRows(5, "").ok());
    ASSERT_TRUE(run.CommitWithRows(10, "").ok());
    ASSERT_TRUE(run.committer.Prepare(15).ok());
    const Manifest increment = run.WriteWithRows(15, "ckpt-5");
    files.FailCall(nth, absl::UnavailableError("no answer"));
    const absl::Status status = run.committer.Commit(increment, &run.note);
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
    calls = files.calls();
    const std::string newest = JoinPath(
        run.directory, CheckpointName(static_cast<uint64_t>(run.Newest())));
    const absl::StatusOr<Manifest> manifest =
        ReadManifest(Files::Real(), newest);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    EXPECT_TRUE(VerifyTables(Files::Real(), newest, *manifest).ok())
        << "call " << nth << " of " << calls;
  }
  EXPECT_GE(calls, 20);
}

// The chief is killed at each place: the newest checkpoint is whole, and what
// is half-deleted is swept.
TEST(CheckpointCommitterTest, KilledAtAnyPlaceItStartsAgain) {
  for (const char* name :
       {"chief.before_manifest", "chief.after_manifest", "chief.gc",
        "files.before_rename", "files.after_rename"}) {
    JobDir run;
    for (const uint64_t step : {5, 10}) {
      ASSERT_TRUE(run.Commit(step).ok());
    }
    const bool before = std::string(name) == "chief.before_manifest" ||
                        std::string(name) == "files.before_rename";
    EXPECT_EXIT(
        {
          // The shard file is renamed first.
          const bool file = absl::StrCat(name).starts_with("files.");
          InitFailpoints(absl::StrCat(name, file ? ":2" : ":1")).IgnoreError();
          run.Commit(15).IgnoreError();
          std::exit(0);
        },
        testing::KilledBySignal(SIGKILL), "");
    EXPECT_EQ(run.Newest(), before ? 10 : 15) << name;
    ASSERT_TRUE(run.committer.Sweep(&run.note).ok());
    EXPECT_EQ(run.Newest(), before ? 10 : 15) << name;
    ASSERT_TRUE(run.Commit(20).ok());
    EXPECT_EQ(run.Newest(), 20);
    EXPECT_EQ(run.Names().size(), 2u) << name;
  }
}

}  // namespace
}  // namespace weir
