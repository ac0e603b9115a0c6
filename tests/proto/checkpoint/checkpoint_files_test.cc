#include "proto/checkpoint/checkpoint_files.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/wire/layout_io.h"
#include "tests/common/temp_dir.h"
#include "tests/support/faulty_files.h"

namespace weir {
namespace {

using absl::StatusCode;

Declaration Job(int shards, int block) {
  Declaration declaration;
  declaration.set_job("test");
  declaration.set_shard_count(shards);
  declaration.set_block_elements(block);
  const auto add = [&](const std::string& name, int64_t size) {
    Variable* const variable = declaration.add_variable();
    variable->set_name(name);
    variable->add_shape(size);
  };
  add("a", 100);
  add("b", 7);
  add("c", 300);
  return declaration;
}

// Each element of `values` is its flat index, and each of `state.m` the
// negative of that. The step count of a segment is 10 * variable + its first
// element in the variable / 64.
std::string WriteCheckpoint(const Declaration& declaration) {
  const std::string dir = MakeTempDir();
  const Layout layout = *LayoutFromDeclaration(declaration);
  Manifest manifest;
  manifest.set_format(kManifestFormat);
  *manifest.mutable_declaration() = declaration;
  manifest.set_name(dir.substr(dir.rfind('/') + 1));
  manifest.set_step(uint64_t{1} << 60);
  manifest.set_job_spec_text("name: \"x\"");
  manifest.add_applied_range(0);
  manifest.add_applied_range(uint64_t{1} << 60);
  manifest.set_contribution_count(uint64_t{1} << 60);
  for (int s = 0; s < layout.shard_count(); ++s) {
    std::vector<float> values;
    std::vector<int64_t> steps;
    for (int b = 0; b < layout.block_count(s); ++b) {
      const FlatRange range = layout.block({s, b});
      for (int64_t i = 0; i < range.count; ++i) {
        values.push_back(float(range.begin + i));
      }
      for (const Segment& segment : layout.segments({s, b})) {
        steps.push_back(int64_t{10} * segment.variable +
                        segment.variable_offset / 64);
      }
    }
    std::vector<float> slot(values.size());
    std::transform(values.begin(), values.end(), slot.begin(),
                   std::negate<float>());
    const auto size = static_cast<int64_t>(values.size());
    const std::string name = ShardFileName(s, layout.shard_count());
    const auto writer = *SafetensorsWriter::Create(
        Files::Real(), JoinPath(dir, name),
        {{"values", "F32", {size}},
         {"state.m", "F32", {size}},
         {"step_counts", "I64", {int64_t(steps.size())}}},
        {});
    EXPECT_TRUE(writer->Append(values.data(), size * 4).ok());
    EXPECT_TRUE(writer->Append(slot.data(), size * 4).ok());
    EXPECT_TRUE(writer->Append(steps.data(), int64_t(steps.size()) * 8).ok());
    const FileDigest digest = *writer->Finish();
    ShardFile* const file = manifest.add_file();
    file->set_name(name);
    file->set_bytes(digest.bytes);
    file->set_crc32c(digest.crc32c);
    file->set_shard(s);
    file->set_host("host7");
  }
  EXPECT_TRUE(WriteManifest(Files::Real(), dir, manifest).ok());
  return dir;
}

std::unique_ptr<CheckpointReader> OpenOrDie(const std::string& dir) {
  auto reader = CheckpointReader::Open(Files::Real(), dir);
  EXPECT_TRUE(reader.ok()) << reader.status();
  return *std::move(reader);
}

TEST(CheckpointFilesTest, ReadsAnyRangeOfAnyLayout) {
  for (const auto& [shards, block] :
       std::vector<std::pair<int, int>>{{1, 1024}, {1, 64}, {3, 16}, {4, 64}}) {
    const auto reader = OpenOrDie(WriteCheckpoint(Job(shards, block)));
    ASSERT_TRUE(reader->Verify().ok());
    const int64_t all = reader->layout().flat_elements();
    for (int64_t begin = 0; begin < all; begin += 13) {
      for (const int64_t count : {int64_t{1}, int64_t{50}, all - begin}) {
        if (begin + count > all) {
          continue;
        }
        std::vector<float> expected(count);
        std::iota(expected.begin(), expected.end(), float(begin));
        std::vector<float> values(count, -1.0f);
        ASSERT_TRUE(
            reader->ReadFlat("values", begin, count, values.data()).ok());
        ASSERT_EQ(values, expected);
        ASSERT_TRUE(
            reader->ReadFlat("state.m", begin, count, values.data()).ok());
        ASSERT_EQ(values.back(), -expected.back());
      }
    }
    const std::vector<float> c = *reader->ReadVariable("c");
    EXPECT_EQ(c.size(), 300u);
    EXPECT_EQ(c[299], float(reader->layout().flat_begin(2) + 299));
    EXPECT_EQ(reader->ReadVariable("d").status().code(), StatusCode::kNotFound);
    EXPECT_TRUE(reader->HasArray("state.m"));
    EXPECT_FALSE(reader->HasArray("state.v"));
    float x;
    EXPECT_EQ(reader->ReadFlat("state.v", 0, 1, &x).code(),
              StatusCode::kNotFound);
    EXPECT_EQ(reader->manifest().applied_range(1), uint64_t{1} << 60);
  }
}

TEST(CheckpointFilesTest, AStepCountIsTheLargestOverTheRange) {
  // Blocks of 64: variable c begins at flat 128, so its segments begin at
  // elements 0, 64, 128, ...
  const auto reader = OpenOrDie(WriteCheckpoint(Job(2, 64)));
  ASSERT_EQ(reader->layout().flat_begin(2), 128);
  EXPECT_EQ(*reader->StepCount(0, 0, 64), 0u);
  EXPECT_EQ(*reader->StepCount(0, 0, 100), 1u);
  EXPECT_EQ(*reader->StepCount(1, 0, 7), 10u);
  EXPECT_EQ(*reader->StepCount(2, 0, 64), 20u);
  EXPECT_EQ(*reader->StepCount(2, 63, 2), 21u);
  EXPECT_EQ(*reader->StepCount(2, 130, 1), 22u);
}

TEST(CheckpointFilesTest, FindsEveryFlippedBitAndEveryTruncation) {
  const std::string dir = WriteCheckpoint(Job(2, 64));
  const std::string path = dir + "/shard-1-of-2.safetensors";
  const std::string whole = *Files::Real()->ReadAll(path);
  const auto expect_damage = [&](const std::string& bytes) {
    ASSERT_TRUE(Files::Real()->WriteAtomically(path, bytes).ok());
    const auto reader = CheckpointReader::Open(Files::Real(), dir);
    const absl::Status status =
        reader.ok() ? (*reader)->Verify() : reader.status();
    ASSERT_EQ(status.code(), StatusCode::kDataLoss) << status;
    ASSERT_TRUE(absl::StrContains(status.message(), path)) << status;
    if (reader.ok()) {
      // I2: nothing is handed out either. The second half of c is in shard 1.
      std::vector<float> values(300);
      ASSERT_FALSE((*reader)->ReadVariable("c").ok());
    }
  };
  for (size_t at = 0; at < whole.size(); at += 37) {
    std::string bytes = whole;
    bytes[at] ^= static_cast<char>(1 << (at % 8));
    expect_damage(bytes);
    expect_damage(whole.substr(0, at));
  }
  expect_damage(whole + "x");
  ASSERT_TRUE(Files::Real()->Remove(path).ok());
  const auto missing = CheckpointReader::Open(Files::Real(), dir);
  EXPECT_EQ(missing.status().code(), StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(missing.status().message(), "host7"));
}

TEST(CheckpointFilesTest, NamesTheFormatOfAnotherRelease) {
  const std::string dir = WriteCheckpoint(Job(2, 64));
  Manifest other = *ReadManifest(Files::Real(), dir);
  other.set_format(kManifestFormatOldest);
  ASSERT_TRUE(WriteManifest(Files::Real(), dir, other).ok());
  EXPECT_TRUE(CheckpointReader::Open(Files::Real(), dir).ok());
  other.set_format(kManifestFormatOldest - 1);
  ASSERT_TRUE(WriteManifest(Files::Real(), dir, other).ok());
  const auto refused = CheckpointReader::Open(Files::Real(), dir);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(
      refused.status().message(),
      absl::StrCat("has format ", kManifestFormatOldest - 1,
                   ", and this release of Weir reads formats ",
                   kManifestFormatOldest, " to ", kManifestFormat)))
      << refused.status();
}

TEST(CheckpointFilesTest, RefusesAManifestThatCannotBe) {
  const std::string dir = WriteCheckpoint(Job(2, 64));
  const Manifest good = *ReadManifest(Files::Real(), dir);
  Manifest uneven = good;
  uneven.set_applied_range(1, good.step() - 4);
  uneven.add_deal()->add_next(3);
  uneven.mutable_deal(0)->add_next(0);
  uneven.set_step(good.step() - 1);
  EXPECT_FALSE(WriteManifest(Files::Real(), dir, uneven).ok() &&
               ReadManifest(Files::Real(), dir).ok());  // slot 0 has 2 of the 4
  uneven.mutable_deal(0)->set_next(0, 2);
  uneven.mutable_deal(0)->set_next(1, 1);
  ASSERT_TRUE(WriteManifest(Files::Real(), dir, uneven).ok());
  EXPECT_EQ(ReadManifest(Files::Real(), dir)->deal(0).next(1), 1u);
  const std::vector<std::function<void(Manifest&)>> spoils = {
      [](Manifest& m) { m.mutable_file()->RemoveLast(); },
      [](Manifest& m) { m.mutable_file(1)->set_name("../../etc/passwd"); },
      [](Manifest& m) { m.mutable_file()->SwapElements(0, 1); },
      [](Manifest& m) { m.mutable_declaration()->set_shard_count(3); },
      [](Manifest& m) { m.mutable_declaration()->clear_variable(); },
      [](Manifest& m) {
        m.mutable_declaration()->mutable_variable(2)->set_shape(
            0, int64_t{1} << 39);
      },
      [](Manifest& m) { m.mutable_file(0)->set_bytes(1); },
      [](Manifest& m) { m.set_name("ckpt-7"); },
      [](Manifest& m) { m.set_step(m.step() - 1); },
      [](Manifest& m) { m.set_applied_range(0, 1); },
      [](Manifest& m) { m.add_applied_range(5); },
      [](Manifest& m) { m.set_contribution_count(4); },
      [](Manifest& m) { m.add_deal(); },
      [](Manifest& m) { m.add_deal()->add_next(1); },  // nothing is left
      [](Manifest& m) {
        m.set_applied_range(1, m.step() - 4);
        m.add_deal()->add_next(3);
      },
      [](Manifest& m) {
        // Sync: 10 steps of 3 after 4 contributions at step 2 are 28.
        m.mutable_declaration()
            ->mutable_update()
            ->mutable_sync()
            ->set_contributions(3);
        m.mutable_declaration()->set_base_version(2);
        m.mutable_declaration()->add_applied_range(0);
        m.mutable_declaration()->add_applied_range(4);
        m.set_step(10);
        m.set_applied_range(1, 29);
      },
  };
  for (size_t i = 0; i < spoils.size(); ++i) {
    Manifest bad = good;
    spoils[i](bad);
    ASSERT_TRUE(WriteManifest(Files::Real(), dir, bad).ok());
    EXPECT_EQ(CheckpointReader::Open(Files::Real(), dir).status().code(),
              StatusCode::kDataLoss)
        << i;
  }
  ASSERT_TRUE(WriteManifest(Files::Real(), dir, good).ok());
  const std::string json = *Files::Real()->ReadAll(dir + "/manifest.json");
  for (size_t size = 0; size + 3 < json.size(); size += 29) {
    ASSERT_TRUE(
        Files::Real()
            ->WriteAtomically(dir + "/manifest.json", json.substr(0, size))
            .ok());
    EXPECT_EQ(ReadManifest(Files::Real(), dir).status().code(),
              StatusCode::kDataLoss)
        << size;
  }
}

TEST(CheckpointFilesTest, AManifestWithoutItsChecksumIsRefused) {
  const std::string dir = WriteCheckpoint(Job(1, 64));
  const std::string path = dir + "/manifest.json";
  const std::string json = *Files::Real()->ReadAll(path);
  const size_t end = json.rfind(",\n \"crc32c\": ");
  ASSERT_NE(end, std::string::npos);
  ASSERT_TRUE(
      Files::Real()->WriteAtomically(path, json.substr(0, end) + "\n}\n").ok());
  const absl::Status status = ReadManifest(Files::Real(), dir).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(status.message(), "has no checksum"));
}

TEST(CheckpointFilesTest, AShortNameIsTheNewestCommittedOfItsStep) {
  const std::string dir = MakeTempDir();
  const auto commit = [&](const std::string& name) {
    ASSERT_TRUE(Files::Real()->MakeDirectories(JoinPath(dir, name)).ok());
    Manifest manifest;
    manifest.set_format(kManifestFormat);
    ASSERT_TRUE(
        WriteManifest(Files::Real(), JoinPath(dir, name), manifest).ok());
  };
  const auto resolve = [&](const std::string& name) {
    return *ResolveCheckpoint(Files::Real(), JoinPath(dir, name));
  };
  EXPECT_EQ(resolve("ckpt-5"), dir + "/ckpt-5");
  ASSERT_TRUE(Files::Real()->MakeDirectories(dir + "/ckpt-5").ok());
  for (const char* name : {"ckpt-5-2", "ckpt-5-10", "ckpt-6", "ckpt-6-2"}) {
    commit(name);
  }
  EXPECT_EQ(resolve("ckpt-5"), dir + "/ckpt-5-10");
  EXPECT_EQ(resolve("ckpt-5/"), dir + "/ckpt-5-10");
  EXPECT_EQ(resolve("ckpt-5-2"), dir + "/ckpt-5-2");
  EXPECT_EQ(resolve("ckpt-6"), dir + "/ckpt-6-2");
  ASSERT_TRUE(
      Files::Real()->WriteAtomically(dir + "/ckpt-6-2/damaged", "why").ok());
  EXPECT_EQ(resolve("ckpt-6"), dir + "/ckpt-6");
  EXPECT_EQ(resolve("elsewhere"), dir + "/elsewhere");
}

// A place that does not answer has not said that the job goes on.
TEST(CheckpointFilesTest, WhetherAJobIsDoneIsNotGuessed) {
  FaultyFiles files(Files::Real());
  const std::string workdir = MakeTempDir();
  const std::string job = "name: \"x\"";
  const std::string checkpoint = WriteCheckpoint(Job(1, 64));
  const std::string name = checkpoint.substr(checkpoint.rfind('/') + 1);
  ASSERT_TRUE(files.MakeDirectory(workdir + "/checkpoints").ok());
  std::filesystem::rename(checkpoint, workdir + "/checkpoints/" + name);
  EXPECT_FALSE(*FindDone(&files, workdir, job));
  ASSERT_TRUE(files.WriteAtomically(workdir + "/DONE", name + "\n").ok());
  EXPECT_FALSE(*FindDone(&files, workdir, "another job"));
  files.FailCall(0, absl::OkStatus());
  EXPECT_TRUE(*FindDone(&files, workdir, job));
  const int64_t calls = files.calls();
  for (int64_t call = 1; call <= calls; ++call) {
    files.FailCall(call, absl::UnavailableError("no answer"));
    EXPECT_EQ(FindDone(&files, workdir, job).status().code(),
              StatusCode::kUnavailable)
        << call;
    files.FailCall(call, absl::UnavailableError("no answer"));
    EXPECT_FALSE(JobIsDone(&files, workdir, job));
  }
  // Last it makes the name durable, which its chief may not have come to.
  files.FailCall(calls, absl::ResourceExhaustedError("fsync"));
  EXPECT_EQ(FindDone(&files, workdir, job).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(CheckpointFilesTest, ListsCommittedCheckpointsByStep) {
  const std::string dir = MakeTempDir();
  EXPECT_TRUE(ListCheckpoints(Files::Real(), dir + "/none")->empty());
  for (const char* name : {"ckpt-10", "ckpt-9", "ckpt-100"}) {
    const std::string path = JoinPath(dir, name);
    ASSERT_TRUE(Files::Real()->MakeDirectories(path).ok());
    Manifest manifest;
    manifest.set_format(kManifestFormat);
    ASSERT_TRUE(WriteManifest(Files::Real(), path, manifest).ok());
  }
  for (const char* name : {"ckpt-11", "ckpt-", "ckpt-x", "ckpt-07", "other"}) {
    ASSERT_TRUE(Files::Real()->MakeDirectories(JoinPath(dir, name)).ok());
  }
  const auto found = *ListCheckpoints(Files::Real(), dir);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].name, "ckpt-9");
  EXPECT_EQ(found[1].step, 10u);
  EXPECT_EQ(found[2].path, JoinPath(dir, "ckpt-100"));
  EXPECT_EQ(ReadManifest(Files::Real(), dir + "/ckpt-11").status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace weir
