// `weir checkpoint` on a small checkpoint that the test writes.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/exit_code.h"
#include "common/io/files.h"
#include "common/io/safetensors.h"
#include "deploy/cli/command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "tests/common/temp_dir.h"
#include "tests/deploy/cli/command_line.h"

namespace weir {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

using Words = std::vector<std::string>;

struct Result {
  absl::StatusOr<int> code = 0;
  std::string out;

  std::string error() const { return std::string(code.status().message()); }
};

// Reads `weir checkpoint FLAGS` and runs it.
Result Checkpoint(Words flags) {
  flags.insert(flags.begin(), "checkpoint");
  const Command command = ReadCommandLine(AddCheckpointCommand, flags);
  testing::internal::CaptureStdout();
  const absl::StatusOr<int> code = command();
  return {code, testing::internal::GetCapturedStdout()};
}

// Writes RUN/checkpoints/ckpt-50: variable "a" of 4 elements on one shard.
// Returns RUN.
std::string WriteRun(const std::string& job = "tiny") {
  const std::string run = MakeTempDir();
  const std::string dir = run + "/checkpoints/ckpt-50";
  EXPECT_TRUE(Files::Real()->MakeDirectories(dir).ok());
  Manifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_name("ckpt-50");
  manifest.set_step(50);
  manifest.set_job_spec_text("name: \"x\"");
  manifest.add_applied_range(0);
  manifest.add_applied_range(50);
  manifest.set_contribution_count(50);
  Declaration* const declaration = manifest.mutable_declaration();
  declaration->set_job(job);
  declaration->set_shard_count(1);
  declaration->set_block_elements(64);
  Variable* const variable = declaration->add_variable();
  variable->set_name("a");
  variable->add_shape(4);

  // A variable takes a multiple of 16 elements of the flat space.
  std::vector<float> values = {1, 2, 3, 4};
  values.resize(16);
  const std::vector<int64_t> steps = {50};
  const std::string name = ShardFileName(0, 1);
  const auto writer = *SafetensorsWriter::Create(
      Files::Real(), JoinPath(dir, name),
      {{"values", "F32", {16}}, {"step_counts", "I64", {1}}}, {});
  EXPECT_TRUE(writer->Append(values.data(), 64).ok());
  EXPECT_TRUE(writer->Append(steps.data(), 8).ok());
  const FileDigest digest = *writer->Finish();
  ShardFile* const file = manifest.add_file();
  file->set_name(name);
  file->set_bytes(digest.bytes);
  file->set_crc32c(digest.crc32c);
  EXPECT_TRUE(WriteManifest(Files::Real(), dir, manifest).ok());
  return run;
}

TEST(CheckpointTest, ListsARunOrItsFolderOfCheckpoints) {
  const std::string run = WriteRun();
  const Result listed = Checkpoint({"list", run});
  ASSERT_TRUE(listed.code.ok()) << listed.error();
  EXPECT_THAT(listed.out, StartsWith("ckpt-50        step 50 "));
  EXPECT_THAT(listed.out, HasSubstr(" 1 shards "));
  EXPECT_THAT(listed.out, HasSubstr(run + "/checkpoints/ckpt-50\n"));
  EXPECT_EQ(Checkpoint({"list", run + "/checkpoints"}).out, listed.out);
}

TEST(CheckpointTest, ListsWhatWasSetAsideAndWhy) {
  const std::string run = WriteRun();
  const std::string dir = run + "/checkpoints/ckpt-50";
  ASSERT_TRUE(Files::Real()->WriteAtomically(dir + "/damaged", "why").ok());
  const Result listed = Checkpoint({"list", run});
  ASSERT_TRUE(listed.code.ok()) << listed.error();
  EXPECT_THAT(listed.out,
              HasSubstr("damaged, set aside; " + dir + "/damaged says why\n"));
}

TEST(CheckpointTest, NamesOfAManifestDoNotMoveTheCursor) {
  const std::string run = WriteRun("evil\x1b[2J\nforged");
  const Result shown = Checkpoint({"inspect", run + "/checkpoints/ckpt-50"});
  ASSERT_TRUE(shown.code.ok()) << shown.error();
  EXPECT_THAT(shown.out, HasSubstr("of job evil\\x1b[2J\\nforged, step 50"));
}

TEST(CheckpointTest, AFolderWithoutACheckpointIsAnError) {
  const Result none = Checkpoint({"list", MakeTempDir()});
  EXPECT_EQ(none.code.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(none.error(), HasSubstr(" holds no checkpoint"));
}

TEST(CheckpointTest, InspectNamesFilesVariablesAndContributions) {
  const std::string dir = WriteRun() + "/checkpoints/ckpt-50";
  const Result result = Checkpoint({"inspect", dir});
  ASSERT_TRUE(result.code.ok()) << result.error();
  EXPECT_THAT(result.out, StartsWith("ckpt-50 of job tiny, step 50, "));
  EXPECT_THAT(result.out, HasSubstr("  shard-0-of-1.safetensors  "));
  EXPECT_THAT(result.out, HasSubstr("contributions applied: [0, 50) of 50\n"));
  EXPECT_THAT(result.out, HasSubstr(" [4] "));
}

TEST(CheckpointTest, VerifyFindsAChangedByte) {
  const std::string dir = WriteRun() + "/checkpoints/ckpt-50";
  const Result whole = Checkpoint({"verify", dir});
  ASSERT_TRUE(whole.code.ok()) << whole.error();
  EXPECT_THAT(whole.out, StartsWith(dir + " is whole: 1 files, "));

  const std::string path = dir + "/shard-0-of-1.safetensors";
  std::string bytes = *Files::Real()->ReadAll(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  ASSERT_TRUE(Files::Real()->WriteAtomically(path, bytes).ok());
  const Result damaged = Checkpoint({"verify", dir});
  EXPECT_EQ(ExitCodeFor(damaged.code.status()), kExitDataLoss);
  EXPECT_EQ(damaged.out, "");
}

TEST(CheckpointTest, BothFormatsOfTheModelHaveOneSum) {
  const std::string dir = WriteRun() + "/checkpoints/ckpt-50";
  const std::string out = MakeTempDir();
  const std::string file = out + "/m.safetensors";
  const Result one = Checkpoint({"export", dir, "--out", file});
  ASSERT_TRUE(one.code.ok()) << one.error();
  const Result many = Checkpoint({"export", dir, "--numpy", out + "/arrays"});
  ASSERT_TRUE(many.code.ok()) << many.error();
  EXPECT_TRUE(std::filesystem::exists(file));
  EXPECT_TRUE(std::filesystem::exists(out + "/arrays/a.npy"));
  const std::string said = " written; model sha256 ";
  EXPECT_THAT(one.out, StartsWith(file + said));
  EXPECT_THAT(many.out, StartsWith(out + "/arrays" + said));
  EXPECT_EQ(one.out.substr(file.size()),
            many.out.substr((out + "/arrays").size()));
}

TEST(CheckpointTest, ExportTakesOneFormatAtATime) {
  EXPECT_THROW(Checkpoint({"export", "dir", "--out", "f", "--numpy", "d"}),
               WrongUsage);
  EXPECT_THROW(Checkpoint({"verify"}), WrongUsage);
}

}  // namespace
}  // namespace weir
