// Checkpoints in an object store that fails, and that two chiefs share.
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/io/safetensors.h"
#include "gtest/gtest.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "server/chief/checkpoint/checkpoint_committer.h"
#include "tests/support/fake_s3_store.h"

namespace weir {
namespace {

using Fault = FakeS3::Fault;

constexpr char kDirectory[] = "s3://bucket/run/checkpoints";
constexpr uint32_t kKeep = 3;

// As a chief does, whose secret is the first object (WorkdirClaim).
CheckpointCommitter MakeCommitter(FakeS3Store* fake) {
  const absl::Status secret = fake->store()->WriteNew(
      absl::StrCat(kDirectory, "/.chief_secret"), "secret");
  EXPECT_TRUE(secret.ok()) << secret;
  CheckpointCommitter::Options options;
  options.files = fake->store();
  options.directory = kDirectory;
  options.keep = kKeep;
  CheckpointCommitter committer(options);
  const absl::Status status = committer.ReadNumber();
  EXPECT_TRUE(status.ok()) << status;
  return committer;
}

// Does what the ps does: writes a shard file whose values are the step.
absl::StatusOr<FileDigest> WriteShard(ObjectStore* store, uint64_t step,
                                      const std::string& name) {
  auto writer = SafetensorsWriter::Create(
      store, absl::StrCat(kDirectory, "/", name, "/", ShardFileName(0, 1)),
      {{"values", "F32", {16}, 0, 0}, {"step_counts", "I64", {1}, 0, 0}}, {});
  if (!writer.ok()) {
    return writer.status();
  }
  const std::vector<float> values(16, static_cast<float>(step));
  const auto count = static_cast<int64_t>(step);
  EXPECT_TRUE((*writer)->Append(values.data(), 64).ok());
  EXPECT_TRUE((*writer)->Append(&count, 8).ok());
  return (*writer)->Finish();
}

// One checkpoint, as the chief and a ps make it.
absl::Status Save(FakeS3Store* fake, CheckpointCommitter* committer,
                  uint64_t step) {
  const auto name = committer->Prepare(step);
  if (!name.ok()) {
    return name.status();
  }
  const auto digest = WriteShard(fake->store(), step, *name);
  if (!digest.ok()) {
    committer->Discard(*name).IgnoreError();
    return digest.status();
  }
  Manifest manifest;
  manifest.set_name(*name);
  manifest.set_step(step);
  Declaration* const declaration = manifest.mutable_declaration();
  declaration->set_job("test");
  declaration->set_shard_count(1);
  declaration->set_block_elements(16);
  declaration->add_variable()->set_name("w");
  declaration->mutable_variable(0)->add_shape(16);
  ShardFile* const file = manifest.add_file();
  file->set_name(ShardFileName(0, 1));
  file->set_bytes(static_cast<uint64_t>(digest->bytes));
  file->set_crc32c(digest->crc32c);
  std::string note;
  return committer->Commit(manifest, &note);
}

// The step of the newest checkpoint, which has to be whole; 0 if there is none.
uint64_t NewestWholeStep(FakeS3Store* fake) {
  std::string note;
  const auto found = MakeCommitter(fake).Find(/*verify=*/true,
                                              /*allow_older=*/false, &note);
  EXPECT_TRUE(found.ok()) << found.status();
  if (!found.ok() || !found->has_value()) {
    return 0;
  }
  const uint64_t step = (*found)->manifest.step();
  const auto reader =
      CheckpointReader::Open(fake->store(), (*found)->directory);
  EXPECT_TRUE(reader.ok()) << reader.status();
  const auto values = (*reader)->ReadVariable("w");
  EXPECT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(*values, std::vector<float>(16, static_cast<float>(step)));
  return step;
}

TEST(CheckpointObjectsTest, TheChiefThatComesTooLateIsRefused) {
  FakeS3Store fake;
  CheckpointCommitter first = MakeCommitter(&fake);
  ASSERT_TRUE(Save(&fake, &first, 10).ok());
  CheckpointCommitter second = MakeCommitter(&fake);
  ASSERT_TRUE(Save(&fake, &second, 20).ok());
  const absl::Status status = Save(&fake, &first, 25);
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_EQ(NewestWholeStep(&fake), 20u);
  EXPECT_TRUE(Save(&fake, &second, 30).ok());
}

TEST(CheckpointObjectsTest, ALostAnswerOfANumberIsNoOtherChief) {
  FakeS3Store fake;
  CheckpointCommitter committer = MakeCommitter(&fake);
  fake.s3()->SetFaults([n = 0](const HttpRequest& request) mutable {
    return absl::StrContains(request.path, "numbers/") && n++ == 0
               ? Fault::kLostAnswer
               : Fault::kNone;
  });
  const absl::Status status = Save(&fake, &committer, 10);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(CheckpointObjectsTest, TheNewestIsWholeWhateverFails) {
  FakeS3Store fake;
  CheckpointCommitter committer = MakeCommitter(&fake);
  int committed = 0;
  uint64_t newest = 0;
  for (uint64_t step = 1; step <= 100; ++step) {
    std::mt19937 random(static_cast<uint32_t>(step));
    fake.s3()->SetFaults([&random](const HttpRequest&) {
      const Fault faults[] = {Fault::kCut, Fault::kLostAnswer, Fault::kSlowDown,
                              Fault::kError, Fault::kSlowBody};
      return random() % 100 < 70 ? faults[random() % 5] : Fault::kNone;
    });
    const absl::Status status = Save(&fake, &committer, step);
    fake.s3()->SetFaults(nullptr);
    const uint64_t found = NewestWholeStep(&fake);
    if (status.ok()) {
      ++committed;
      EXPECT_EQ(found, step);
    } else {
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      // An answer that was lost for good may have been a commit.
      EXPECT_TRUE(found == newest || found == step) << found;
    }
    newest = found;
  }
  EXPECT_GT(committed, 10);
  EXPECT_LT(committed, 100);
  // Repeated only after a pause, and what was left is swept in the end.
  EXPECT_GT(fake.pauses().size(), 1000u);
  for (const std::chrono::milliseconds pause : fake.pauses()) {
    EXPECT_GE(pause, S3Client::kPauseMin / 2);
  }
  for (uint64_t step = 101; step <= 101 + kKeep; ++step) {
    ASSERT_TRUE(Save(&fake, &committer, step).ok());
  }
  EXPECT_TRUE(fake.s3()->uploads().empty());
  for (const std::string& key : fake.s3()->keys()) {
    const std::string name = key.substr(sizeof("run/checkpoints/") - 1);
    const auto id = ParseCheckpointName(name.substr(0, name.find('/')));
    EXPECT_TRUE(!id.has_value() || id->step > 101) << key;
  }
}

}  // namespace
}  // namespace weir
