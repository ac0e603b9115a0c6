#include "tests/common/objects/object_store_contract.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/files.h"
#include "common/threads/thread.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using Names = std::vector<std::string>;
// `place` ends with a slash.
using Promise = void (*)(ObjectStore* store, const std::string& place);

// More than two parts of an upload, and no multiple of one.
constexpr size_t kLargeBytes = (size_t{20} << 20) + 12345;

std::string Large() {
  std::string contents(kLargeBytes, '\0');
  uint32_t state = 1;
  for (char& c : contents) {
    state = state * 1664525 + 1013904223;
    c = static_cast<char>(state >> 24);
  }
  return contents;
}

void GivesBackWhatWasWritten(ObjectStore* store, const std::string& place) {
  const std::string contents("a\0b\nc", 5);
  const absl::Status status = store->WriteAtomically(place + "one", contents);
  ASSERT_TRUE(status.ok()) << status;
  const auto got = store->ReadAll(place + "one");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, contents);
  EXPECT_EQ(store->Stat(place + "one")->bytes, 5);
  EXPECT_FALSE(store->Stat(place + "one")->is_directory);
  ASSERT_TRUE(store->WriteAtomically(place + "one", "").ok());
  EXPECT_EQ(store->ReadAll(place + "one").value_or("error"), "");
}

void NamesTheObjectThatIsNotThere(ObjectStore* store,
                                  const std::string& place) {
  const std::string name = place + "folder/none";
  for (const absl::Status& status :
       {store->ReadAll(name).status(), store->Open(name).status(),
        store->Stat(name).status(), store->List(name).status()}) {
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_NE(std::string(status.message()).find(name), std::string::npos)
        << status;
  }
  EXPECT_FALSE(*store->Exists(name));
  const absl::Status removed = store->Remove(name);
  EXPECT_TRUE(removed.ok() || absl::IsNotFound(removed)) << removed;
}

void WritesANewObjectOnce(ObjectStore* store, const std::string& place) {
  ASSERT_TRUE(store->MakeDirectories(place + "a").ok());
  const std::string name = place + "a/manifest";
  const absl::Status first = store->WriteNew(name, "mine");
  ASSERT_TRUE(first.ok()) << first;
  // The same again: the answer was lost.
  EXPECT_TRUE(store->WriteNew(name, "mine").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(store->WriteNew(name, "other")));
  EXPECT_EQ(store->ReadAll(name).value_or("error"), "mine");
  EXPECT_TRUE(CheckWriteNew(store, place + "a").ok());
  EXPECT_EQ(*store->List(place + "a"), Names{"manifest"});
}

// Calls `call` on many threads at once: one gets OK, the others ALREADY_EXISTS.
void ExpectOnce(const std::function<absl::Status(int)>& call) {
  constexpr int kCallers = 8;
  std::atomic<int> ok{0};
  std::atomic<int> refused{0};
  std::vector<Thread> callers;
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&call, i, &ok, &refused] {
      const absl::Status status = call(i);
      ok += status.ok() ? 1 : 0;
      refused += absl::IsAlreadyExists(status) ? 1 : 0;
    });
  }
  for (Thread& caller : callers) {
    caller.join();
  }
  EXPECT_EQ(ok, 1);
  EXPECT_EQ(refused, kCallers - 1);
}

void WritesANewObjectOnceForMany(ObjectStore* store, const std::string& place) {
  ExpectOnce([&](int caller) {
    return store->WriteNew(place + "number-7", absl::StrCat("of ", caller));
  });
}

void MakesADirectoryOnceForMany(ObjectStore* store, const std::string& place) {
  ExpectOnce([&](int /*caller*/) { return store->MakeDirectory(place + "d"); });
  EXPECT_EQ(*store->List(place), Names{"d"});
  EXPECT_EQ(*store->List(place + "d"), Names());
  EXPECT_TRUE(store->Stat(place + "d")->is_directory);
  EXPECT_TRUE(store->SyncDirectory(place + "d").ok());
  ASSERT_TRUE(store->Remove(place + "d").ok());
  EXPECT_FALSE(*store->Exists(place + "d"));
}

void ListsNamesInOrder(ObjectStore* store, const std::string& place) {
  for (const char* folder : {"b", "c/x"}) {
    ASSERT_TRUE(store->MakeDirectories(place + folder).ok());
  }
  for (const char* name : {"b/2", "b/1", "a", "b/10", "c/x/y", "b-1", "b/3"}) {
    ASSERT_TRUE(store->WriteAtomically(place + name, name).ok());
  }
  EXPECT_EQ(*store->List(place), (Names{"a", "b", "b-1", "c"}));
  EXPECT_EQ(*store->List(place + "b"), (Names{"1", "10", "2", "3"}));
  EXPECT_EQ(*store->List(place + "b/"), (Names{"1", "10", "2", "3"}));
  EXPECT_EQ(*store->List(place + "c"), Names{"x"});
  ASSERT_TRUE(store->Remove(place + "b/1").ok());
  EXPECT_EQ(*store->List(place + "b"), (Names{"10", "2", "3"}));
}

void TakesNamesWithSigns(ObjectStore* store, const std::string& place) {
  const std::string folder = place + "a b+c";
  const std::string name = "\xc3\xa4 & 'x' (1)=~@.json";
  ASSERT_TRUE(store->MakeDirectories(folder).ok());
  ASSERT_TRUE(store->WriteAtomically(JoinPath(folder, name), "odd").ok());
  EXPECT_EQ(store->ReadAll(JoinPath(folder, name)).value_or("error"), "odd");
  EXPECT_EQ(*store->List(folder), Names{name});
  EXPECT_TRUE(store->Remove(JoinPath(folder, name)).ok());
}

void WritesLargeObjectsWhole(ObjectStore* store, const std::string& place) {
  const std::string contents = Large();
  const std::string name = place + "shard";
  ASSERT_TRUE(store->WriteAtomically(name, "old").ok());
  auto writer = store->BeginWrite(name, kLargeBytes);
  ASSERT_TRUE(writer.ok()) << writer.status();
  size_t begin = 0;
  for (size_t bytes = 1; begin < contents.size(); bytes = bytes * 3 + 1) {
    bytes = std::min(bytes, contents.size() - begin);
    ASSERT_TRUE((*writer)->Append(contents.data() + begin, bytes).ok());
    begin += bytes;
  }
  // Nothing of it is seen yet.
  EXPECT_EQ(store->ReadAll(name).value_or("error"), "old");
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto reader = store->Open(name);
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_EQ((*reader)->size(), static_cast<int64_t>(contents.size()));
  std::string read(contents.size(), 'x');
  ASSERT_TRUE((*reader)->ReadAt(0, read.data(), read.size()).ok());
  EXPECT_TRUE(read == contents);
}

void ReadsRanges(ObjectStore* store, const std::string& place) {
  const std::string contents = Large();
  ASSERT_TRUE(store->WriteAtomically(place + "shard", contents).ok());
  const auto reader = store->Open(place + "shard");
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->size(), static_cast<int64_t>(contents.size()));
  EXPECT_EQ((*reader)->path(), place + "shard");
  std::string read;
  for (const auto& [offset, bytes] :
       std::vector<std::pair<size_t, size_t>>{{0, 1},
                                              {100, 1000},
                                              {(8 << 20) - 5, 10},
                                              {1 << 20, 10 << 20},
                                              {kLargeBytes - 7, 7},
                                              {kLargeBytes, 0}}) {
    read.assign(bytes, 'x');
    const absl::Status status =
        (*reader)->ReadAt(static_cast<int64_t>(offset), read.data(), bytes);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(read == contents.substr(offset, bytes)) << offset;
  }
  read.assign(8, 'x');
  EXPECT_TRUE(
      absl::IsDataLoss((*reader)->ReadAt(kLargeBytes - 7, read.data(), 8)));
}

void LeavesNothingOfAWriterThatDoesNotFinish(ObjectStore* store,
                                             const std::string& place) {
  ASSERT_TRUE(store->WriteAtomically(place + "other", "x").ok());
  {
    auto writer = store->BeginWrite(place + "shard", kLargeBytes);
    ASSERT_TRUE(writer.ok()) << writer.status();
    const std::string contents = Large();
    ASSERT_TRUE((*writer)->Append(contents.data(), contents.size()).ok());
  }
  EXPECT_EQ(*store->List(place), Names{"other"});
  EXPECT_TRUE(store->DropUnfinished(place).ok());
  EXPECT_EQ(*store->List(place), Names{"other"});
}

class ContractTest : public testing::Test {
 public:
  ContractTest(ObjectStoreMember member, Promise promise)
      : member_(std::move(member)), promise_(promise) {}
  void TestBody() override {
    const ObjectStoreMember::Made made = member_.make();
    ASSERT_NE(made.store, nullptr);
    promise_(made.store.get(), made.place + "/");
  }

 private:
  const ObjectStoreMember member_;
  const Promise promise_;
};

}  // namespace

void RegisterObjectStoreContract(const ObjectStoreMember& member) {
  const std::pair<const char*, Promise> promises[] = {
      {"GivesBackWhatWasWritten", GivesBackWhatWasWritten},
      {"NamesTheObjectThatIsNotThere", NamesTheObjectThatIsNotThere},
      {"WritesANewObjectOnce", WritesANewObjectOnce},
      {"WritesANewObjectOnceForMany", WritesANewObjectOnceForMany},
      {"MakesADirectoryOnceForMany", MakesADirectoryOnceForMany},
      {"ListsNamesInOrder", ListsNamesInOrder},
      {"TakesNamesWithSigns", TakesNamesWithSigns},
      {"WritesLargeObjectsWhole", WritesLargeObjectsWhole},
      {"ReadsRanges", ReadsRanges},
      {"LeavesNothingOfAWriterThatDoesNotFinish",
       LeavesNothingOfAWriterThatDoesNotFinish},
  };
  for (const auto& [name, promise] : promises) {
    testing::RegisterTest(member.name.c_str(), name, nullptr, nullptr, __FILE__,
                          __LINE__,
                          [member, promise = promise]() -> testing::Test* {
                            return new ContractTest(member, promise);
                          });
  }
}

}  // namespace weir
