// What a chief says about an object store before it trains there.
#include "server/chief/start/store_place.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/fake_s3_store.h"

namespace weir {
namespace {

constexpr char kPlace[] = "s3://bucket/run";

TEST(StorePlaceTest, AnEmptyPrefixAndARunsOwnWillDo) {
  FakeS3Store fake;
  fake.s3()->PutObject("data/train.csv", "1,2");
  fake.s3()->PutObject("runs/a", "whose name only begins alike");
  EXPECT_TRUE(CheckStorePlace(fake.store(), kPlace, false).ok());
  EXPECT_EQ(fake.s3()->keys(),
            (std::vector<std::string>{"data/train.csv", "runs/a"}));
  fake.s3()->PutObject("run/checkpoints/ckpt-5/manifest.json", "{}");
  fake.s3()->PutObject("run/model.safetensors", "a user's");
  EXPECT_TRUE(CheckStorePlace(fake.store(), kPlace, false).ok());
}

TEST(StorePlaceTest, WhatElseIsThereIsNamed) {
  FakeS3Store fake;
  fake.s3()->PutObject("run/train.csv", "1,2");
  const absl::Status status = CheckStorePlace(fake.store(), kPlace, false);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_EQ(
      status.message(),
      "s3://bucket/run holds 'train.csv' and no run: name a prefix of its "
      "own by --checkpoints");
}

TEST(StorePlaceTest, AStoreWithoutTheConditionIsRefusedUnlessItIsAllowed) {
  FakeS3Store fake({.conditional = false});
  const absl::Status status = CheckStorePlace(fake.store(), kPlace, false);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_NE(std::string(status.message()).find("--allow_unguarded"),
            std::string::npos)
      << status;
  EXPECT_TRUE(CheckStorePlace(fake.store(), kPlace, true).ok());
}

}  // namespace
}  // namespace weir
