// Simulated stores and disks keep the promises of every store, and a disk
// leaves what POSIX promises of a loss of power.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "common/threads/scheduler.h"
#include "sim/places/disk.h"
#include "sim/places/object_store.h"
#include "tests/common/objects/object_store_contract.h"

namespace weir::sim {
namespace {

TEST(SimDiskTest, WhatWasSyncedSurvives) {
  SimDisk disk;
  ASSERT_TRUE(disk.WriteAtomically("/whole", "contents").ok());
  ASSERT_TRUE(disk.MakeDirectory("/directory").ok());
  ASSERT_TRUE(disk.SyncDirectory("/").ok());
  ASSERT_TRUE(disk.WriteNew("/directory/new", "more").ok());
  disk.LosePower();
  EXPECT_EQ(*disk.ReadAll("/whole"), "contents");
  EXPECT_EQ(*disk.ReadAll("/directory/new"), "more");
}

// Everything between nothing and all of it does happen.
TEST(SimDiskTest, WhatWasNotSyncedMayBeLostInPart) {
  std::set<std::string> left;
  for (int i = 0; i < 200; ++i) {
    SimDisk disk;
    auto writer = *disk.Create("/file");
    ASSERT_TRUE(disk.SyncDirectory("/").ok());
    ASSERT_TRUE(writer->Append("ab", 2).ok());
    ASSERT_TRUE(writer->Sync().ok());
    ASSERT_TRUE(writer->Append("cd", 2).ok());
    disk.LosePower();
    left.insert(*disk.ReadAll("/file"));
  }
  EXPECT_EQ(left,
            (std::set<std::string>{"ab", "abc", "abcd", std::string("ab\0", 3),
                                   std::string("ab\0\0", 4)}));
}

TEST(SimDiskTest, NamesOfADirectoryAreLostFromTheLastOneOn) {
  std::set<std::string> left;
  for (int i = 0; i < 200; ++i) {
    SimDisk disk;
    ASSERT_TRUE(disk.MakeDirectory("/a").ok());
    ASSERT_TRUE(disk.MakeDirectory("/a/inside").ok());
    ASSERT_TRUE(disk.SyncDirectory("/a").ok());
    ASSERT_TRUE(disk.MakeDirectory("/b").ok());
    ASSERT_TRUE(disk.Remove("/b").ok());
    disk.LosePower();
    std::string names;
    for (const char* path : {"/a", "/a/inside", "/b"}) {
      names += *disk.Exists(path) ? std::string(path) + " " : "";
    }
    left.insert(names);
  }
  EXPECT_EQ(left,
            (std::set<std::string>{"", "/a /a/inside ", "/a /a/inside /b "}));
}

// Linux tells of a failure to write back once, and takes the pages for clean.
TEST(SimDiskTest, WhatASyncFailedToWriteNoLaterOneWrites) {
  std::set<std::string> left;
  int failures = 0;
  for (int i = 0; i < 200; ++i) {
    SimDisk disk;
    auto writer = *disk.Create("/file");
    ASSERT_TRUE(disk.SyncDirectory("/").ok());
    ASSERT_TRUE(writer->Append("ab", 2).ok());
    disk.SetFaults({.unavailable_one_in = 2});
    const absl::Status first = writer->Sync();
    disk.SetFaults({});
    ASSERT_TRUE(writer->Append("c", 1).ok());
    ASSERT_TRUE(writer->Sync().ok());
    disk.LosePower();
    const std::string after = *disk.ReadAll("/file");
    if (first.ok()) {
      EXPECT_EQ(after, "abc");
    } else {
      EXPECT_TRUE(absl::IsUnavailable(first));
      ++failures;
      left.insert(after);
    }
  }
  EXPECT_GT(failures, 50);
  EXPECT_EQ(left, (std::set<std::string>{"abc", std::string("\0\0\0", 3),
                                         std::string("ab\0", 3)}));
}

template <typename PlaceType>
void ExpectOneBitRots() {
  PlaceType place;
  const std::string contents(5, 'a');
  ASSERT_TRUE(place.WriteAtomically("/file", contents).ok());
  EXPECT_FALSE(place.Rot("/other"));
  EXPECT_TRUE(place.Rot("/file"));
  const std::string after = *place.ReadAll("/file");
  ASSERT_EQ(after.size(), contents.size());
  int bits = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    bits += std::popcount(static_cast<uint8_t>(after[i] ^ contents[i]));
  }
  EXPECT_EQ(bits, 1);
}

TEST(SimPlacesTest, OneBitRots) {
  ExpectOneBitRots<SimDisk>();
  ExpectOneBitRots<SimObjectStore>();
}

TEST(SimDiskTest, ALockEndsWithItsProcess) {
  SimDisk disk;
  ASSERT_TRUE(disk.TryLock("/lock", "a").ok());  // and is given back
  const auto lock = disk.TryLock("/lock", "b");
  ASSERT_TRUE(lock.ok());
  EXPECT_EQ(disk.TryLock("/lock", "c").status(), absl::AlreadyExistsError("b"));
  disk.OnProcessGone(Process());
  EXPECT_TRUE(disk.TryLock("/lock", "c").ok());
}

}  // namespace
}  // namespace weir::sim

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  using weir::ObjectStoreMember;
  weir::RegisterObjectStoreContract(
      {"SimObjectStore", [] {
         return ObjectStoreMember::Made{
             std::make_shared<weir::sim::SimObjectStore>(), "s3://sim/place"};
       }});
  weir::RegisterObjectStoreContract(
      {"SimDisk", [] {
         auto disk = std::make_shared<weir::sim::SimDisk>();
         EXPECT_TRUE(disk->MakeDirectory("/place").ok());
         return ObjectStoreMember::Made{disk, "/place"};
       }});
  int failed = 1;
  weir::sim::RunWorld(/*seed=*/1, [&failed] { failed = RUN_ALL_TESTS(); });
  return failed;
}
