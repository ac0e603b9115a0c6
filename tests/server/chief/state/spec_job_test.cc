
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/job/job_spec_text.h"
#include "server/chief/state/job_source.h"
#include "tests/common/expect_error.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

JobSpec Job() {
  JobSpec spec;
  spec.set_name("ours");
  spec.set_seed(1);
  spec.mutable_train()->set_batch_size(10);
  spec.mutable_train()->set_steps(20);
  spec.mutable_optimizer()->mutable_sgd();
  spec.mutable_schedule()->set_learning_rate(0.1f);
  spec.mutable_update()->mutable_async();
  return spec;
}

JobSpec SyncJob() {
  JobSpec spec = Job();
  spec.mutable_update()->mutable_sync();
  return spec;
}

JobOptions TwoWorkers(const JobSpec& spec) {
  JobOptions options;
  options.spec = spec;
  options.ps_addresses = {"host0:1", "host1:1"};
  options.worker_count = 2;
  return options;
}

RegisterRequest Worker(uint32_t rank, const JobSpec& spec = Job()) {
  RegisterRequest request;
  request.set_rank(rank);
  request.set_host("node");
  *request.mutable_job_spec() = spec;
  request.set_sample_count(100);
  Variable* const variable = request.add_variable();
  variable->set_name("w");
  variable->add_shape(8);
  return request;
}

// A checkpoint at step 30 of SyncJob(), whose steps had three contributions.
FoundCheckpoint Checkpoint() {
  FoundCheckpoint found;
  found.directory = "/disk/ckpt-30";
  found.manifest.set_step(30);
  found.manifest.set_job_spec_text(CanonicalJobSpecText(SyncJob()));
  found.manifest.add_applied_range(0);
  found.manifest.add_applied_range(90);
  Declaration* const declaration = found.manifest.mutable_declaration();
  declaration->add_variable()->set_name("w");
  declaration->mutable_update()->mutable_sync()->set_contributions(3);
  return found;
}

// ------------------------------------------------------------------- joining

TEST(SpecJobTest, ARefusedRequestChangesNothing) {  // I1
  const JobOptions options = TwoWorkers(Job());
  const auto job = MakeSpecJob(options);
  RegisterRequest other = Worker(0);
  other.mutable_job_spec()->mutable_train()->set_batch_size(7);
  other.set_sample_count(50);
  ExpectInvalid(job->Check(other), "train.batch_size");
  EXPECT_FALSE(job->Declare(nullptr)->has_value());
  // Neither did its number of samples become the job's.
  EXPECT_TRUE(job->Check(Worker(1)).ok());
}

TEST(SpecJobTest, AWorkerNeedsVariablesAndSamples) {
  const JobOptions options = TwoWorkers(Job());
  const auto job = MakeSpecJob(options);
  RegisterRequest request = Worker(0);
  request.set_sample_count(0);
  ExpectInvalid(job->Check(request), "1 variables and 0 samples");
  request = Worker(0);
  request.clear_variable();
  ExpectInvalid(job->Check(request), "0 variables and 100 samples");
}

TEST(SpecJobTest, LaterWorkersMustBringTheFirstOnesModelAndData) {  // I2
  const JobOptions options = TwoWorkers(Job());
  const auto job = MakeSpecJob(options);
  ASSERT_TRUE(job->Check(Worker(0)).ok());
  RegisterRequest request = Worker(1);
  request.set_sample_count(99);
  ExpectInvalid(job->Check(request), "99 samples, other workers have 100");
  request = Worker(1);
  request.mutable_variable(0)->set_shape(0, 9);
  ExpectInvalid(job->Check(request), "brings another model");
  const auto declared = job->Declare(nullptr);
  ASSERT_TRUE(declared.ok() && declared->has_value());
  EXPECT_EQ((*declared)->variable(0).shape(0), 8);
}

TEST(SpecJobTest, TheShardsVariablesCountBeforeAnyWorkers) {
  const JobOptions options = TwoWorkers(Job());
  const auto job = MakeSpecJob(options);
  Declaration held;
  Variable* const variable = held.add_variable();
  variable->set_name("w");
  variable->add_shape(9);
  job->Hold(held);
  ExpectInvalid(job->Check(Worker(0)), "brings another model");
}

// ----------------------------------------------------------------- declaring

TEST(SpecJobTest, ANewJobIsDeclaredAsTheFileSaysWithDefaultsFilledIn) {
  const JobOptions options = TwoWorkers(SyncJob());
  const auto job = MakeSpecJob(options);
  EXPECT_FALSE(job->Declare(nullptr)->has_value());  // nobody said the model
  ASSERT_TRUE(job->Check(Worker(0, SyncJob())).ok());
  const auto declared = job->Declare(nullptr);
  ASSERT_TRUE(declared.ok() && declared->has_value()) << declared.status();
  const Declaration& declaration = **declared;
  EXPECT_EQ(declaration.job(), "ours");
  EXPECT_EQ(declaration.shard_count(), 2u);
  EXPECT_EQ(declaration.slot_count(), 2u);
  EXPECT_EQ(declaration.variable_size(), 1);
  EXPECT_EQ(declaration.group_size(), 1);
  EXPECT_GT(declaration.block_elements(), 0u);
  EXPECT_GT(declaration.out_of_order_bytes(), 0u);
  EXPECT_EQ(declaration.seed(), 1u);
  EXPECT_EQ(declaration.job_spec_hash(), JobSpecHash(SyncJob()));
  // A step has a contribution of each worker, where the file does not say.
  EXPECT_EQ(declaration.update().sync().contributions(), 2u);
  EXPECT_EQ(declaration.history(), 0u);
}

TEST(SpecJobTest, AJobThatContinuesKeepsWhatItWasBegunWith) {
  const JobOptions options = TwoWorkers(SyncJob());
  const auto job = MakeSpecJob(options);
  const FoundCheckpoint found = Checkpoint();
  const auto declared = job->Declare(&found);  // no worker is needed
  ASSERT_TRUE(declared.ok() && declared->has_value()) << declared.status();
  EXPECT_EQ((*declared)->variable_size(), 1);
  EXPECT_EQ((*declared)->update().sync().contributions(), 3u);
  EXPECT_THAT((*declared)->applied_range(), ElementsAre(0u, 90u));
  EXPECT_EQ((*declared)->base_version(), 30u);
}

TEST(SpecJobTest, LengthScheduleAndHousekeepingMayChange) {
  JobSpec now = SyncJob();
  now.mutable_train()->clear_steps();
  now.mutable_train()->set_epochs(9);
  now.mutable_train()->set_log_every_steps(3);
  now.mutable_schedule()->set_learning_rate(0.2f);
  now.mutable_checkpoint()->set_every_steps(7);
  now.mutable_limits()->set_lost_after_seconds(3.0);
  EXPECT_EQ(FirstResumeDifference(SyncJob(), now), "");
}

TEST(SpecJobTest, WhatMakesTheContributionsMayNotChange) {
  JobSpec now = SyncJob();
  now.mutable_train()->set_batch_size(11);
  EXPECT_THAT(FirstResumeDifference(SyncJob(), now),
              HasSubstr("train.batch_size"));
  now = SyncJob();
  now.set_seed(2);
  EXPECT_THAT(FirstResumeDifference(SyncJob(), now), HasSubstr("seed"));
  now = SyncJob();
  now.mutable_update()->mutable_async();
  EXPECT_NE(FirstResumeDifference(SyncJob(), now), "");
  now = SyncJob();
  now.mutable_optimizer()->mutable_adam();
  EXPECT_NE(FirstResumeDifference(SyncJob(), now), "");
}

absl::Status Resume(const JobSpec& spec, const FoundCheckpoint& found) {
  const JobOptions options = TwoWorkers(spec);
  return MakeSpecJob(options)->Declare(&found).status();
}

TEST(SpecJobTest, NamesTheCheckpointAndTheField) {
  JobSpec now = SyncJob();
  now.mutable_train()->set_batch_size(11);
  const absl::Status status = Resume(now, Checkpoint());
  ExpectInvalid(status, "train.batch_size");
  ExpectInvalid(status, "/disk/ckpt-30");
}

TEST(SpecJobTest, ContributionsOfAStepAreThoseThatTheJobBeganWith) {
  JobSpec now = SyncJob();  // without a number: that of the checkpoint is kept
  EXPECT_TRUE(Resume(now, Checkpoint()).ok());
  now.mutable_update()->mutable_sync()->set_contributions(3);
  EXPECT_TRUE(Resume(now, Checkpoint()).ok());
  now.mutable_update()->mutable_sync()->set_contributions(2);
  ExpectInvalid(Resume(now, Checkpoint()),
                "update.sync.contributions 3, not 2");
}

TEST(SpecJobTest, ACheckpointOfTheOtherKindIsRefused) {
  FoundCheckpoint found = Checkpoint();
  found.manifest.clear_job_spec_text();
  ExpectInvalid(Resume(SyncJob(), found), "without --job");
}

TEST(SpecJobTest, ShardsWithAnotherJobFileAreNamedByTheField) {
  JobOptions options = TwoWorkers(Job());
  Declaration held;
  held.set_job_spec_hash(JobSpecHash(Job()));
  EXPECT_TRUE(MakeSpecJob(options)->CheckHeld(held).ok());
  options.spec.mutable_train()->set_batch_size(11);
  ExpectInvalid(MakeSpecJob(options)->CheckHeld(held), "another version");
  // The text of the job is in the newest checkpoint.
  options.newest.emplace().set_job_spec_text(CanonicalJobSpecText(Job()));
  ExpectInvalid(MakeSpecJob(options)->CheckHeld(held), "train.batch_size");
}

// ------------------------------------------------------------------ its length

// A job of 20 contributions or steps on two workers, begun anew.
void Begin(JobSource* job, const Update& update) {
  Declaration held;
  *held.mutable_update() = update;
  job->Hold(held);
}

Roster TwoSlots(JobSource* job, uint64_t first, uint64_t second) {
  Roster roster(2, /*now_ns=*/0);
  roster.mutable_worker(0)->next_sequence = first;
  roster.mutable_worker(1)->next_sequence = second;
  for (const int w : {0, 1}) {
    SlotMarks marks(static_cast<uint32_t>(w));
    job->TakeMarks(w, marks, roster.mutable_worker(w));
  }
  return roster;
}

TEST(SpecJobTest, AnAsyncJobIsAsLongAsItsContributions) {
  const JobOptions options = TwoWorkers(Job());
  const auto job = MakeSpecJob(options);
  Begin(job.get(), Job().update());
  ASSERT_TRUE(job->ReadLength(/*sample_count=*/100).ok());
  EXPECT_EQ(job->contribution_count(), 20u);
  const Roster roster = TwoSlots(job.get(), 4, 9);
  const JobSource::Reach reach = job->Count(roster);
  EXPECT_EQ(reach.step, 13u);
  EXPECT_EQ(reach.step_count, 20u);
  EXPECT_FALSE(job->Done(1, roster.worker(1)));
  EXPECT_TRUE(job->Done(1, TwoSlots(job.get(), 4, 10).worker(1)));
  // Nobody has more than its share.
  EXPECT_EQ(TwoSlots(job.get(), 4, 99).worker(1).next_sequence, 10u);
}

TEST(SpecJobTest, ASyncJobIsAsFarAsItsSlowestWorker) {
  const JobOptions options = TwoWorkers(SyncJob());
  const auto job = MakeSpecJob(options);
  Update update;
  update.mutable_sync()->set_contributions(3);
  Begin(job.get(), update);
  ASSERT_TRUE(job->ReadLength(/*sample_count=*/100).ok());
  // 20 steps of three contributions: two of slot 0 and one of slot 1.
  EXPECT_EQ(job->contribution_count(), 60u);
  const JobSource::Reach reach = job->Count(TwoSlots(job.get(), 9, 7));
  EXPECT_EQ(reach.step, 4u);
  EXPECT_EQ(reach.step_count, 20u);
}

TEST(SpecJobTest, EarlierHistoriesCountAndTheLastStepMayBeShort) {
  JobSpec spec = SyncJob();
  spec.mutable_train()->clear_steps();
  spec.mutable_train()->set_epochs(1);
  const JobOptions options = TwoWorkers(spec);
  const auto job = MakeSpecJob(options);
  Declaration held;
  held.mutable_update()->mutable_sync()->set_contributions(3);
  held.set_base_version(2);
  held.add_applied_range(0);
  held.add_applied_range(6);
  job->Hold(held);
  ASSERT_TRUE(job->ReadLength(/*sample_count=*/100).ok());
  EXPECT_EQ(job->contribution_count(), 10u);  // 100 samples, 10 a contribution
  // Four are left: a step of three, and one of one.
  EXPECT_EQ(job->Count(TwoSlots(job.get(), 0, 0)).step_count, 4u);
  EXPECT_EQ(job->Count(TwoSlots(job.get(), 0, 0)).step, 2u);

  Manifest manifest;
  ASSERT_TRUE(job->FillManifest(/*step=*/4, {}, &manifest).ok());
  EXPECT_THAT(manifest.applied_range(), ElementsAre(0u, 10u));
  EXPECT_EQ(manifest.contribution_count(), 10u);
  EXPECT_EQ(manifest.job_spec_text(), CanonicalJobSpecText(spec));
}

TEST(SpecJobTest, AManifestOfAsyncSaysWhatEachSlotHasDone) {
  const JobOptions options = TwoWorkers(Job());
  const auto job = MakeSpecJob(options);
  Begin(job.get(), Job().update());
  ASSERT_TRUE(job->ReadLength(/*sample_count=*/100).ok());
  Manifest manifest;
  ASSERT_TRUE(job->FillManifest(/*step=*/3, {2, 1}, &manifest).ok());
  EXPECT_THAT(manifest.applied_range(), ElementsAre(0u, 3u));
  EXPECT_TRUE(manifest.deal().empty());
  ASSERT_TRUE(job->FillManifest(/*step=*/7, {6, 1}, &manifest).ok());
  EXPECT_THAT(manifest.applied_range(), ElementsAre(0u, 2u));
  ASSERT_EQ(manifest.deal_size(), 1);
  EXPECT_THAT(manifest.deal(0).next(), ElementsAre(5u, 0u));

  // The next history goes on from it.
  const auto next = MakeSpecJob(options);
  FoundCheckpoint found;
  found.manifest = manifest;
  *found.manifest.mutable_declaration()->mutable_update() = Job().update();
  const auto declared = next->Declare(&found);
  ASSERT_TRUE(declared.ok()) << declared.status();
  next->Hold(**declared);
  ASSERT_TRUE(next->ReadLength(/*sample_count=*/100).ok());
  EXPECT_EQ(next->Count(TwoSlots(next.get(), 0, 0)).step, 7u);
}

TEST(SpecJobTest, AJobMayNotBecomeShorterThanItsCheckpoint) {
  const JobOptions options = TwoWorkers(Job());
  const auto job = MakeSpecJob(options);
  Declaration held;
  held.add_applied_range(0);
  held.add_applied_range(30);
  job->Hold(held);
  ExpectInvalid(job->ReadLength(/*sample_count=*/100),
                "the job is 20 contributions long");
}

TEST(SpecJobTest, TheCurveGoesOnBehindItsLastLine) {
  JobOptions options = TwoWorkers(SyncJob());
  options.train_lines = {{2, 1.5, 60}, {4, 2.5, 120}, {9, 5.0, 270}};
  const auto job = MakeSpecJob(options);
  Update update;
  update.mutable_sync()->set_contributions(3);
  Begin(job.get(), update);
  ASSERT_TRUE(job->ReadLength(/*sample_count=*/100).ok());
  // The line of step 9 is of work that a restore threw away.
  const auto restored = job->CurveOptions(/*step=*/6, /*adopted=*/false);
  EXPECT_EQ(restored.base_step, 6u);
  EXPECT_EQ(restored.base_seconds, 2.5);
  EXPECT_EQ(restored.base_examples, 120u);
  EXPECT_EQ(job->CurveOptions(6, /*adopted=*/true).base_step, 4u);
}

}  // namespace
}  // namespace weir
