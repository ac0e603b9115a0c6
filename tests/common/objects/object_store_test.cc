// The contract over every member: files, S3's protocol against a fake,
// and against a server that others wrote where WEIR_TEST_S3 names a place there
// ("s3://bucket/prefix"; tests/objects/s3_test.py does).
#include "common/io/object_store.h"

#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/identity.h"
#include "common/objects/any_store.h"
#include "common/objects/s3_store.h"
#include "gtest/gtest.h"
#include "tests/common/objects/object_store_contract.h"
#include "tests/common/temp_dir.h"
#include "tests/support/fake_s3.h"
#include "tests/support/fake_s3_store.h"

namespace weir {
namespace {

using Made = ObjectStoreMember::Made;

TEST(ObjectStoreTest, AStoreThatIgnoresTheConditionIsFound) {
  FakeS3Store fake({.conditional = false});
  const absl::Status status = CheckWriteNew(fake.store(), "s3://bucket/run");
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(std::string(status.message()).find("s3://bucket/run: "),
            std::string::npos)
      << status;
  EXPECT_TRUE(fake.s3()->keys().empty());
}

TEST(ObjectStoreTest, GooglesConditionHolds) {
  FakeS3Store fake({.google = true});
  const absl::Status status = CheckWriteNew(fake.store(), "s3://bucket/run");
  EXPECT_TRUE(status.ok()) << status;
}

std::shared_ptr<ObjectStore> RealFiles() {
  return std::shared_ptr<ObjectStore>(Files::Real(), [](ObjectStore*) {});
}

// A store that keeps the fake alive.
std::shared_ptr<ObjectStore> Fake(const FakeS3::Options& options = {}) {
  const auto fake = std::make_shared<FakeS3Store>(options);
  return std::shared_ptr<ObjectStore>(fake, fake->store());
}

}  // namespace

void RegisterAll() {
  RegisterObjectStoreContract({"Files", [] {
                                 return Made{RealFiles(), MakeTempDir()};
                               }});
  RegisterObjectStoreContract({"S3Store", [] {
                                 return Made{Fake(), "s3://bucket/runs/one"};
                               }});
  RegisterObjectStoreContract({"S3StoreOfAWholeBucket", [] {
                                 return Made{Fake(), "s3://bucket"};
                               }});
  RegisterObjectStoreContract(
      {"S3StoreOfGoogle", [] {
         return Made{Fake({.google = true}), "s3://bucket/runs/one"};
       }});
  RegisterObjectStoreContract(
      {"AnyStoreOfFiles", [] {
         return Made{MakeAnyStore(Files::Real(), ProcessEnvironment),
                     MakeTempDir()};
       }});
  const char* const place = std::getenv("WEIR_TEST_S3");
  if (place != nullptr) {
    RegisterObjectStoreContract(
        {"S3Server", [place] {
           return Made{MakeAnyStore(Files::Real(), ProcessEnvironment),
                       absl::StrCat(place, "/", RandomHex(16))};
         }});
  }
}

}  // namespace weir

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  weir::RegisterAll();
  return RUN_ALL_TESTS();
}
