#include "common/objects/any_store.h"

#include <sys/prctl.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

std::unique_ptr<ObjectStore> With(std::map<std::string, std::string> set) {
  return MakeAnyStore(
      Files::Real(),
      [set = std::move(set)](
          const std::string& name) -> std::optional<std::string> {
        const auto found = set.find(name);
        return found == set.end() ? std::nullopt : std::optional(found->second);
      });
}

TEST(AnyStoreTest, ARunHasOnePlace) {
  EXPECT_EQ(PlaceOfRun("/a/b", ""), "/a/b");
  EXPECT_EQ(PlaceOfRun("runs", ""),
            (std::filesystem::current_path() / "runs").string());
  EXPECT_EQ(PlaceOfRun("/a/b", "s3://bucket/run//"), "s3://bucket/run");
  EXPECT_EQ(PlaceOfRun("", "/c"), "/c");
  EXPECT_EQ(PlaceOfRun("", ""), "");
  EXPECT_EQ(PlaceOfRun("/a", "s3://"), "s3://");
  EXPECT_TRUE(CheckObjectUrl("s3://bucket").ok());
  EXPECT_TRUE(CheckObjectUrl("s3://bucket/a/b/").ok());
  for (const char* name : {"s3://", "s3:///a", "s3://B/a", "s3://bucket//a",
                           "s3://bucket/../a", "/bucket/a"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckObjectUrl(name))) << name;
  }
  EXPECT_TRUE(IsObjectUrl("s3://bucket"));
  EXPECT_FALSE(IsObjectUrl("/s3:/bucket"));
}

TEST(AnyStoreTest, WhatIsOfNoUseIsNamed) {
  for (const auto& [name, part] :
       std::map<std::string, std::string>{{"s3://", "bucket ''"},
                                          {"s3://Big/x", "bucket 'Big'"},
                                          {"s3://bucket//x", "//x"},
                                          {"s3://bucket/../x", "/../x"}}) {
    const absl::Status status = With({})->ReadAll(name).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << name << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << status;
  }
  const absl::Status status =
      With({{"AWS_ENDPOINT_URL", "minio"}})->ReadAll("s3://bucket/x").status();
  EXPECT_TRUE(absl::StrContains(status.message(), "endpoint 'minio'"))
      << status;
  const absl::Status style = With({{"WEIR_S3_ADDRESSING_STYLE", "dns"}})
                                 ->ReadAll("s3://bucket/x")
                                 .status();
  EXPECT_TRUE(absl::StrContains(
      style.message(),
      "WEIR_S3_ADDRESSING_STYLE is 'dns'; it is auto, path or virtual"))
      << style;
}

TEST(AnyStoreDeathTest, WhereAStoreIsOpenedNoCoreIsLeft) {
  const auto core_and_dump = [](const std::string& name) {
    With({{"AWS_SHARED_CREDENTIALS_FILE", "/nonexistent"},
          {"AWS_EC2_METADATA_DISABLED", "true"}})
        ->ReadAll(name)
        .status()
        .IgnoreError();
    rlimit core = {};
    getrlimit(RLIMIT_CORE, &core);
    std::exit((core.rlim_max == 0 ? 1 : 0) +
              (prctl(PR_GET_DUMPABLE) == 0 ? 2 : 0));
  };
  EXPECT_EXIT(core_and_dump("/nonexistent"), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(core_and_dump("s3://bucket/x"), testing::ExitedWithCode(3), "");
}

TEST(AnyStoreTest, ABucketWithoutKeysIsSaid) {
  const absl::Status status =
      With({{"AWS_SHARED_CREDENTIALS_FILE", "/nonexistent"},
            {"AWS_EC2_METADATA_DISABLED", "true"}})
          ->ReadAll("s3://bucket/x")
          .status();
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
}

}  // namespace
}  // namespace weir
