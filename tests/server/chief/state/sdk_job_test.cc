
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/chief/state/job_source.h"
#include "tests/common/expect_error.h"
#include "tests/server/chief/small_declaration.h"

namespace weir {
namespace {

using testing::ElementsAre;

JobOptions Workers(int count) {
  JobOptions options;
  options.sdk_job = true;
  options.ps_addresses = {"host0:1", "host1:1"};
  options.worker_count = count;
  return options;
}

Declaration Script(int workers = 2) { return SmallDeclaration(2, workers); }

RegisterRequest Worker(uint32_t rank, const Declaration& declaration) {
  RegisterRequest request;
  request.set_rank(rank);
  request.set_host("node");
  *request.mutable_declaration() = declaration;
  return request;
}

// A checkpoint at push 30 of Script(): rank 0 made 10 of them, rank 1 made 20.
FoundCheckpoint Checkpoint() {
  FoundCheckpoint found;
  found.directory = "/disk/ckpt-30";
  found.manifest.set_step(30);
  *found.manifest.mutable_declaration() = Script();
  found.manifest.add_pushes(10);
  found.manifest.add_pushes(20);
  return found;
}

// What the shards are to hold when `count` workers go on from `found`.
absl::StatusOr<Declaration> Resume(const FoundCheckpoint& found, int count,
                                   Declaration declaration) {
  declaration.set_slot_count(static_cast<uint32_t>(count));
  const JobOptions options = Workers(count);
  const auto job = MakeSdkJob(options);
  EXPECT_TRUE(job->Check(Worker(0, declaration)).ok());
  auto declared = job->Declare(&found);
  if (!declared.ok()) {
    return declared.status();
  }
  return **declared;
}

TEST(SdkJobTest, TheFirstProgramsDeclarationIsTheJob) {  // I2
  const JobOptions options = Workers(2);
  const auto job = MakeSdkJob(options);
  EXPECT_FALSE(job->Declare(nullptr)->has_value());
  ASSERT_TRUE(job->Check(Worker(1, Script())).ok());
  ASSERT_TRUE(job->Declare(nullptr)->has_value());
  EXPECT_EQ((*job->Declare(nullptr))->job(), "script");
  EXPECT_TRUE(job->Check(Worker(0, Script())).ok());

  Declaration other = Script();
  other.set_job("another");
  ExpectError(job->Check(Worker(0, other)), absl::StatusCode::kAlreadyExists,
              "the chief runs 'script'");
  other = Script();
  other.mutable_variable(0)->set_shape(0, 9);
  ExpectError(job->Check(Worker(0, other)), absl::StatusCode::kAlreadyExists,
              "every worker must declare the same");
  EXPECT_EQ((*job->Declare(nullptr))->variable(0).shape(0), 200);
}

TEST(SdkJobTest, ADeclarationMustFitTheClusterAndBeWhole) {
  const JobOptions options = Workers(2);
  const auto job = MakeSdkJob(options);
  Declaration declaration = Script();
  declaration.set_shard_count(3);
  ExpectInvalid(job->Check(Worker(0, declaration)), "names 3 ps and 2 workers");
  declaration = Script(/*workers=*/1);
  ExpectInvalid(job->Check(Worker(0, declaration)), "names 2 ps and 1 workers");
  declaration = Script();
  declaration.clear_variable();
  ExpectInvalid(job->Check(Worker(0, declaration)), "0 tensors, 0 tables");
  declaration = Script();
  declaration.clear_group();
  ExpectInvalid(job->Check(Worker(0, declaration)), "0 groups");
  declaration = Script();
  declaration.clear_job();
  ExpectInvalid(job->Check(Worker(0, declaration)), "declares job ''");
  EXPECT_FALSE(job->Declare(nullptr)->has_value());  // I1
}

TEST(SdkJobTest, ASyncStepOfProgramsHasOnePushOfEachWorker) {
  const JobOptions options = Workers(2);
  const auto job = MakeSdkJob(options);
  Declaration declaration = Script();
  declaration.mutable_update()->mutable_sync()->set_contributions(3);
  ExpectInvalid(job->Check(Worker(0, declaration)), "not 3 of 2");
  declaration.mutable_update()->mutable_sync()->set_contributions(2);
  EXPECT_TRUE(job->Check(Worker(0, declaration)).ok());
}

TEST(SdkJobTest, WhatOnlyAChiefMaySayIsNotTakenFromAWorker) {
  const JobOptions options = Workers(2);
  const auto job = MakeSdkJob(options);
  Declaration declaration = Script();
  declaration.set_base_version(12);
  declaration.set_restored_from("ckpt-1");
  declaration.set_job_spec_hash("a hash");
  declaration.add_pushes_before(3);
  declaration.add_applied_range(3);
  ASSERT_TRUE(job->Check(Worker(0, declaration)).ok());
  EXPECT_EQ((*job->Declare(nullptr))->SerializeAsString(),
            Script().SerializeAsString());
}

TEST(SdkJobTest, EachRankGoesOnFromItsOwnPushes) {
  const auto declared = Resume(Checkpoint(), 2, Script());
  ASSERT_TRUE(declared.ok()) << declared.status();
  EXPECT_EQ(declared->base_version(), 30u);
  EXPECT_THAT(declared->pushes_before(), ElementsAre(10u, 20u));
}

TEST(SdkJobTest, OtherWorkersGoOnInEqualShares) {
  const auto declared = Resume(Checkpoint(), 3, Script());
  ASSERT_TRUE(declared.ok()) << declared.status();
  EXPECT_THAT(declared->pushes_before(), ElementsAre(10u, 10u, 10u));
}

TEST(SdkJobTest, InSyncOtherWorkersGoOnFromTheStep) {
  FoundCheckpoint found = Checkpoint();
  found.manifest.mutable_declaration()->mutable_update()->mutable_sync();
  const auto declared = Resume(found, 1, Script());
  ASSERT_TRUE(declared.ok()) << declared.status();
  EXPECT_THAT(declared->pushes_before(), ElementsAre(30u));
}

TEST(SdkJobTest, AnotherModelOrACheckpointOfTheOtherKindIsRefused) {
  Declaration declaration = Script();
  declaration.mutable_variable(0)->set_shape(0, 9);
  ExpectError(Resume(Checkpoint(), 2, declaration).status(),
              absl::StatusCode::kAlreadyExists, "'w'");
  FoundCheckpoint found = Checkpoint();
  found.manifest.set_job_spec_text("name: 'ours'");
  const absl::Status status = Resume(found, 2, Script()).status();
  ExpectInvalid(status, "with --job");
  ExpectInvalid(status, "/disk/ckpt-30");
}

TEST(SdkJobTest, ShardsOfAJobWithAJobFileAreNotTakenOver) {
  const JobOptions options = Workers(2);
  const auto job = MakeSdkJob(options);
  Declaration held = Script();
  EXPECT_TRUE(job->CheckHeld(held).ok());
  held.set_job_spec_hash("a hash");
  ExpectInvalid(job->CheckHeld(held), "start the chief with --job");
}

// ------------------------------------------------------------------ its length

Roster TwoSlots(uint64_t first, uint64_t second) {
  Roster roster(2, /*now_ns=*/0);
  roster.mutable_worker(0)->next_sequence = first;
  roster.mutable_worker(1)->next_sequence = second;
  return roster;
}

TEST(SdkJobTest, AJobHasNoLengthUntilEverySlotIsRetired) {
  const JobOptions options = Workers(2);
  const auto job = MakeSdkJob(options);
  Declaration held = Script();
  held.set_base_version(30);
  job->Hold(held);
  ASSERT_TRUE(job->ReadLength(/*sample_count=*/0).ok());
  EXPECT_EQ(job->contribution_count(), 0u);
  Roster roster = TwoSlots(4, 9);
  EXPECT_EQ(job->Count(roster).step, 43u);
  EXPECT_EQ(job->Count(roster).step_count, JobSource::kEndless);
  roster.mutable_worker(0)->retired = true;
  EXPECT_TRUE(job->Done(0, roster.worker(0)));
  EXPECT_FALSE(job->Done(1, roster.worker(1)));
  EXPECT_EQ(job->Count(roster).step_count, JobSource::kEndless);
  roster.mutable_worker(1)->retired = true;
  EXPECT_EQ(job->Count(roster).step, 43u);
  EXPECT_EQ(job->Count(roster).step_count, 43u);
}

TEST(SdkJobTest, ASyncJobPassesRetiredSlotsOver) {
  const JobOptions options = Workers(2);
  const auto job = MakeSdkJob(options);
  Declaration held = Script();
  held.mutable_update()->mutable_sync()->set_contributions(2);
  job->Hold(held);
  Roster roster = TwoSlots(4, 9);
  EXPECT_EQ(job->Count(roster).step, 4u);
  roster.mutable_worker(0)->retired = true;
  EXPECT_EQ(job->Count(roster).step, 9u);
  roster.mutable_worker(1)->retired = true;
  EXPECT_EQ(job->Count(roster).step_count, 9u);
}

TEST(SdkJobTest, OnlyTheShardsSayThatASlotIsRetired) {
  const JobOptions options = Workers(2);
  const auto job = MakeSdkJob(options);
  Roster::Worker worker;
  worker.generation = 2;
  worker.next_sequence = 5;
  HelloReply hello;
  SlotStatus* const status = hello.add_slot();
  status->set_generation(1);
  status->set_retired(true);
  status->set_next_sequence_min(3);
  status->set_next_sequence_max(3);
  SlotMarks older(0);
  older.Add(hello.slot());
  job->TakeMarks(0, older, &worker);
  EXPECT_FALSE(worker.retired);  // it was the process before
  EXPECT_EQ(worker.next_sequence, 5u);
  status->set_generation(2);
  status->set_next_sequence_min(7);
  status->set_next_sequence_max(7);
  SlotMarks own(0);
  own.Add(hello.slot());
  job->TakeMarks(0, own, &worker);
  EXPECT_TRUE(worker.retired);
  EXPECT_EQ(worker.next_sequence, 7u);
}

TEST(SdkJobTest, AManifestSaysHowManyPushesEachRankMade) {
  const JobOptions options = Workers(2);
  const auto job = MakeSdkJob(options);
  Declaration held = Script();
  held.add_pushes_before(10);
  held.add_pushes_before(20);
  job->Hold(held);
  Manifest async;
  ASSERT_TRUE(job->FillManifest(/*step=*/37, {3, 4}, &async).ok());
  EXPECT_THAT(async.pushes(), ElementsAre(13u, 24u));
  held.mutable_update()->mutable_sync()->set_contributions(2);
  job->Hold(held);
  Manifest sync;
  ASSERT_TRUE(job->FillManifest(/*step=*/37, {}, &sync).ok());
  EXPECT_THAT(sync.pushes(), ElementsAre(37u, 37u));
}

}  // namespace
}  // namespace weir
