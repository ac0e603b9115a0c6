#include "server/chief/start/resume_check.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/job/job_spec_text.h"

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
  spec.mutable_update()->mutable_sync();
  return spec;
}

// A checkpoint at step 30 of Job(), whose steps had three contributions.
FoundCheckpoint SpecCheckpoint() {
  FoundCheckpoint found;
  found.directory = "/disk/ckpt-30";
  found.manifest.set_step(30);
  found.manifest.set_job_spec_text(CanonicalJobSpecText(Job()));
  Declaration* const declaration = found.manifest.mutable_declaration();
  declaration->mutable_update()->mutable_sync()->set_contributions(3);
  return found;
}

Declaration Script() {
  Declaration declaration;
  declaration.set_job("script");
  declaration.mutable_update()->mutable_async();
  declaration.add_group()->mutable_optimizer()->mutable_sgd();
  Variable* const variable = declaration.add_variable();
  variable->set_name("w");
  variable->add_shape(8);
  return declaration;
}

// A checkpoint at push 30 of Script(): rank 0 made 10 of them, rank 1 made 20.
FoundCheckpoint SdkCheckpoint() {
  FoundCheckpoint found;
  found.directory = "/disk/ckpt-30";
  found.manifest.set_step(30);
  *found.manifest.mutable_declaration() = Script();
  found.manifest.add_pushes(10);
  found.manifest.add_pushes(20);
  return found;
}

void ExpectError(const absl::Status& status, absl::StatusCode code,
                 const std::string& text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/disk/ckpt-30"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

TEST(ResumeCheckTest, LengthScheduleAndHousekeepingMayChange) {
  JobSpec now = Job();
  now.mutable_train()->clear_steps();
  now.mutable_train()->set_epochs(9);
  now.mutable_train()->set_log_every_steps(3);
  now.mutable_schedule()->set_learning_rate(0.2f);
  now.mutable_checkpoint()->set_every_steps(7);
  now.mutable_limits()->set_lost_after_seconds(3.0);
  EXPECT_EQ(FirstResumeDifference(Job(), now), "");
}

TEST(ResumeCheckTest, WhatMakesTheContributionsMayNotChange) {
  JobSpec now = Job();
  now.mutable_train()->set_batch_size(11);
  EXPECT_THAT(FirstResumeDifference(Job(), now), HasSubstr("train.batch_size"));
  now = Job();
  now.set_seed(2);
  EXPECT_THAT(FirstResumeDifference(Job(), now), HasSubstr("seed"));
  now = Job();
  now.mutable_update()->mutable_async();
  EXPECT_NE(FirstResumeDifference(Job(), now), "");
  now = Job();
  now.mutable_optimizer()->mutable_adam();
  EXPECT_NE(FirstResumeDifference(Job(), now), "");
}

TEST(ResumeCheckTest, NamesTheCheckpointAndTheField) {
  EXPECT_TRUE(CheckResume(Job(), SpecCheckpoint()).ok());
  JobSpec now = Job();
  now.mutable_train()->set_batch_size(11);
  ExpectError(CheckResume(now, SpecCheckpoint()),
              absl::StatusCode::kInvalidArgument, "train.batch_size");
}

TEST(ResumeCheckTest, ContributionsOfAStepAreThoseThatTheJobBeganWith) {
  JobSpec now = Job();  // without a number: that of the checkpoint is kept
  EXPECT_TRUE(CheckResume(now, SpecCheckpoint()).ok());
  now.mutable_update()->mutable_sync()->set_contributions(3);
  EXPECT_TRUE(CheckResume(now, SpecCheckpoint()).ok());
  now.mutable_update()->mutable_sync()->set_contributions(2);
  ExpectError(CheckResume(now, SpecCheckpoint()),
              absl::StatusCode::kInvalidArgument,
              "update.sync.contributions 3, not 2");
}

TEST(ResumeCheckTest, ACheckpointOfTheOtherKindIsRefused) {
  ExpectError(CheckResume(Job(), SdkCheckpoint()),
              absl::StatusCode::kInvalidArgument, "without --job");
  Declaration declaration = Script();
  ExpectError(ResumeSdkJob(SpecCheckpoint(), 2, &declaration),
              absl::StatusCode::kInvalidArgument, "with --job");
}

TEST(ResumeCheckTest, EachRankGoesOnFromItsOwnPushes) {
  Declaration declaration = Script();
  ASSERT_TRUE(ResumeSdkJob(SdkCheckpoint(), 2, &declaration).ok());
  EXPECT_EQ(declaration.base_version(), 30u);
  EXPECT_THAT(declaration.pushes_before(), ElementsAre(10u, 20u));
}

TEST(ResumeCheckTest, OtherWorkersGoOnInEqualShares) {
  Declaration declaration = Script();
  ASSERT_TRUE(ResumeSdkJob(SdkCheckpoint(), 3, &declaration).ok());
  EXPECT_THAT(declaration.pushes_before(), ElementsAre(10u, 10u, 10u));
}

TEST(ResumeCheckTest, InSyncOtherWorkersGoOnFromTheStep) {
  FoundCheckpoint found = SdkCheckpoint();
  found.manifest.mutable_declaration()->mutable_update()->mutable_sync();
  Declaration declaration = Script();
  ASSERT_TRUE(ResumeSdkJob(found, 1, &declaration).ok());
  EXPECT_THAT(declaration.pushes_before(), ElementsAre(30u));
}

TEST(ResumeCheckTest, AnotherModelIsRefusedAndChangesNothing) {
  Declaration declaration = Script();
  declaration.mutable_variable(0)->set_shape(0, 9);
  ExpectError(ResumeSdkJob(SdkCheckpoint(), 2, &declaration),
              absl::StatusCode::kAlreadyExists, "'w'");
  EXPECT_EQ(declaration.base_version(), 0u);
  EXPECT_EQ(declaration.pushes_before_size(), 0);
}

}  // namespace
}  // namespace weir
