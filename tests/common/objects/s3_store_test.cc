// Readers and writers while requests fail. The contract is in
// object_store_test.cc.
#include "common/objects/s3_store.h"

#include <random>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/fake_s3_store.h"

namespace weir {
namespace {

using Fault = FakeS3::Fault;

constexpr char kLarge[] = "s3://bucket/run/large";

absl::Status WriteLarge(ObjectStore* store, const std::string& contents) {
  auto writer = store->BeginWrite(kLarge, 1);
  if (!writer.ok()) {
    return writer.status();
  }
  const absl::Status status =
      (*writer)->Append(contents.data(), contents.size());
  return status.ok() ? (*writer)->Finish() : status;
}

std::string ThreeParts() {
  std::string contents(3 * S3Store::kPartBytes - 10, 'a');
  contents[S3Store::kPartBytes] = 'b';
  contents.back() = 'c';
  return contents;
}

bool IsPart(const HttpRequest& request) {
  return request.method == "PUT" && !request.query.empty();
}

bool IsComplete(const HttpRequest& request) {
  return request.method == "POST" && request.query[0].first == "uploadId";
}

TEST(S3StoreTest, NamesAreThoseOfTheBucket) {
  FakeS3Store fake;
  for (const char* name :
       {"", "/tmp/x", "s3://other/x", "s3://bucketx/x", "s3://bucket",
        "s3://bucket/", "s3://bucket//x", "s3://bucket/a/../x",
        "s3://bucket/./x", "s3://bucket/x/"}) {
    for (const absl::Status& status :
         {fake.store()->WriteAtomically(name, "x"),
          fake.store()->WriteNew(name, "x"),
          fake.store()->ReadAll(name).status(),
          fake.store()->Open(name).status(),
          fake.store()->BeginWrite(name, 1).status(),
          fake.store()->Remove(name)}) {
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << name << ": " << status;
    }
  }
  EXPECT_EQ(fake.s3()->requests(), 0);
}

TEST(S3StoreTest, ALostAnswerOfANewObjectIsFoundOut) {
  FakeS3Store fake;
  fake.s3()->SetFaults([n = 0](const HttpRequest&) mutable {
    return n++ == 0 ? Fault::kLostAnswer : Fault::kNone;
  });
  EXPECT_TRUE(fake.store()->WriteNew("s3://bucket/run/manifest", "mine").ok());
  EXPECT_EQ(fake.s3()->requests(), 3);  // put, put again, read
}

TEST(S3StoreTest, ALostAnswerOfACompletionIsFoundOut) {
  FakeS3Store fake;
  fake.s3()->SetFaults([n = 0](const HttpRequest& request) mutable {
    return IsComplete(request) && n++ == 0 ? Fault::kLostAnswer : Fault::kNone;
  });
  const std::string contents = ThreeParts();
  const absl::Status status = WriteLarge(fake.store(), contents);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(fake.store()->ReadAll(kLarge).value_or("") == contents);
  EXPECT_TRUE(fake.s3()->uploads().empty());
}

TEST(S3StoreTest, APartThatTheStoreForgetsFailsTheObject) {
  FakeS3Store fake;
  fake.s3()->PutObject("run/large", "before");
  fake.s3()->SetFaults([n = 0](const HttpRequest& request) mutable {
    return IsPart(request) && n++ == 1 ? Fault::kLostPart : Fault::kNone;
  });
  EXPECT_FALSE(WriteLarge(fake.store(), ThreeParts()).ok());
  EXPECT_EQ(fake.store()->ReadAll(kLarge).value_or(""), "before");
  EXPECT_TRUE(fake.s3()->uploads().empty());
}

// I1 of S3Writer: a ps's memory bound counts on it.
TEST(S3StoreTest, AFewPartsAreHeldWhateverTheObjectsSize) {
  FakeS3Store fake;
  std::set<const char*> memory;
  fake.s3()->SetFaults([&memory](const HttpRequest& request) {
    if (IsPart(request)) {
      memory.insert(request.body.data());
    }
    return Fault::kNone;
  });
  const std::string contents(10 * S3Store::kPartBytes, 'a');
  EXPECT_TRUE(WriteLarge(fake.store(), contents).ok());
  EXPECT_LE(memory.size(), S3Store::kPartsHeld);
  EXPECT_EQ(fake.store()->ReadAll(kLarge).value_or(""), contents);
}

TEST(S3StoreTest, AStoreThatGoesAwayFailsTheObject) {
  FakeS3Store fake;
  fake.s3()->SetFaults([](const HttpRequest& request) {
    return IsPart(request) ? Fault::kCut : Fault::kNone;
  });
  const absl::Status status = WriteLarge(fake.store(), ThreeParts());
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), kLarge));
  EXPECT_TRUE(fake.s3()->keys().empty());
}

// A process that dies leaves its upload, and the next one's sweep finds it.
TEST(S3StoreTest, UploadsThatWereLeftAreDropped) {
  FakeS3Store fake;
  fake.s3()->SetFaults([](const HttpRequest& request) {
    return request.method == "DELETE" || IsPart(request) ? Fault::kCut
                                                         : Fault::kNone;
  });
  EXPECT_FALSE(WriteLarge(fake.store(), ThreeParts()).ok());
  fake.s3()->SetFaults(nullptr);
  EXPECT_EQ(fake.s3()->uploads(), std::vector<std::string>{"run/large"});
  EXPECT_TRUE(fake.store()->DropUnfinished("s3://bucket/ru").ok());
  EXPECT_EQ(fake.s3()->uploads().size(), 1u);
  EXPECT_TRUE(fake.store()->DropUnfinished("s3://bucket/run").ok());
  EXPECT_TRUE(fake.s3()->uploads().empty());
}

TEST(S3StoreTest, AnObjectThatIsReplacedIsNotReadInPieces) {
  FakeS3Store fake;
  fake.s3()->PutObject("run/large", std::string(10 << 20, 'a'));
  const auto reader = fake.store()->Open(kLarge);
  ASSERT_TRUE(reader.ok()) << reader.status();
  char byte = 0;
  EXPECT_TRUE((*reader)->ReadAt(0, &byte, 1).ok());
  fake.s3()->PutObject("run/large", std::string(10 << 20, 'b'));
  const absl::Status status = (*reader)->ReadAt(9 << 20, &byte, 1);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
}

TEST(S3StoreTest, AnObjectThatIsDeletedWhileItIsReadIsNotFound) {
  FakeS3Store fake;
  ASSERT_TRUE(fake.store()->WriteAtomically("s3://bucket/small", "abc").ok());
  const auto reader = fake.store()->Open("s3://bucket/small");
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_TRUE(fake.store()->Remove("s3://bucket/small").ok());
  char byte = 0;
  EXPECT_TRUE(absl::IsNotFound((*reader)->ReadAt(0, &byte, 1)));
}

// Random faults of every kind at every request: what is said to be done is
// done, and what is not is as it was.
TEST(S3StoreTest, WhatIsSaidToBeDoneIsDone) {
  FakeS3Store fake;
  const std::string contents = ThreeParts();
  int done = 0;
  std::string before;
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    std::mt19937 random(seed);
    fake.s3()->SetFaults([&random](const HttpRequest&) {
      const Fault faults[] = {Fault::kCut,      Fault::kLostAnswer,
                              Fault::kSlowDown, Fault::kError,
                              Fault::kLostPart, Fault::kSlowBody};
      return random() % 10 < 4 ? faults[random() % 6] : Fault::kNone;
    });
    std::string mine = contents;
    mine[5] = static_cast<char>('0' + seed % 10);
    const absl::Status status = WriteLarge(fake.store(), mine);
    fake.s3()->SetFaults(nullptr);
    ASSERT_TRUE(fake.store()->DropUnfinished("s3://bucket").ok());
    const auto there = fake.store()->ReadAll(kLarge);
    if (status.ok()) {
      ++done;
      ASSERT_TRUE(there.value_or("") == mine) << seed;
    } else {
      // An answer that was lost for good may have been "done".
      ASSERT_TRUE(there.value_or("") == before || there.value_or("") == mine)
          << seed << ": " << status;
    }
    before = there.value_or("");
    EXPECT_TRUE(fake.s3()->uploads().empty()) << seed;
  }
  EXPECT_GT(done, 20);
  EXPECT_LT(done, 100);
}

}  // namespace
}  // namespace weir
