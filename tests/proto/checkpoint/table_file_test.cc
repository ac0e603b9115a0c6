#include "proto/checkpoint/table_file.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/job/row_hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "tests/common/temp_dir.h"
#include "tests/support/faulty_files.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr int64_t kRowFloats = 3;
constexpr char kFile[] = "tables-0-of-1.safetensors";

// Rows with these ids, in the order that files have. No two rows and no two
// arrays have the same numbers.
RowRecords RowsOf(std::vector<uint64_t> ids) {
  std::sort(ids.begin(), ids.end(),
            [](uint64_t a, uint64_t b) { return IndexHash(a) < IndexHash(b); });
  RowRecords rows;
  rows.ids = ids;
  for (const uint64_t id : ids) {
    rows.touched.push_back(static_cast<uint32_t>(1000 + id));
    rows.updates.push_back(static_cast<uint32_t>(2000 + id));
    for (int64_t k = 0; k < kRowFloats; ++k) {
      rows.floats.push_back(static_cast<float>(id) +
                            0.25f * static_cast<float>(k));
    }
  }
  return rows;
}

// Rows [begin, end) of `rows`.
RowRecords Slice(const RowRecords& rows, int64_t begin, int64_t end) {
  RowRecords slice;
  slice.ids.assign(rows.ids.begin() + begin, rows.ids.begin() + end);
  slice.touched.assign(rows.touched.begin() + begin,
                       rows.touched.begin() + end);
  slice.updates.assign(rows.updates.begin() + begin,
                       rows.updates.begin() + end);
  slice.floats.assign(rows.floats.begin() + begin * kRowFloats,
                      rows.floats.begin() + end * kRowFloats);
  return slice;
}

// Gives `rows` to each visit in two pieces.
TableFileWriter::Visit InTwoPieces(const RowRecords& rows) {
  return [rows](int, const std::function<absl::Status(const RowRecords&)>& take)
             -> absl::Status {
    const auto size = static_cast<int64_t>(rows.ids.size());
    WEIR_RETURN_IF_ERROR(take(Slice(rows, 0, size / 2)));
    return take(Slice(rows, size / 2, size));
  };
}

TableFileEntry EntryOf(const RowRecords& rows) {
  TableFileEntry entry;
  entry.name = "t";
  entry.step = 6;
  entry.rows = static_cast<int64_t>(rows.ids.size());
  entry.row_floats = kRowFloats;
  return entry;
}

// Puts into the manifest what it says about a file.
void Describe(const FileDigest& digest, Manifest* manifest) {
  TableFile* const tables = manifest->mutable_file(0)->mutable_tables();
  tables->set_name(kFile);
  tables->set_bytes(static_cast<uint64_t>(digest.bytes));
  tables->set_crc32c(digest.crc32c);
}

// The manifest of a checkpoint of one shard with table "t", without its file.
Manifest ManifestOf(const std::string& name) {
  Manifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_name(name);
  manifest.mutable_declaration()->set_shard_count(1);
  manifest.mutable_declaration()->add_table()->set_name("t");
  ShardFile* const file = manifest.add_file();
  file->set_name(ShardFileName(0, 1));
  file->set_host("host7");
  return manifest;
}

// Writes checkpoint `name` below `root`, with rows of these ids.
Manifest WriteCheckpoint(const std::string& root, const std::string& name,
                         const std::vector<uint64_t>& ids,
                         std::optional<uint64_t> clock = std::nullopt,
                         const std::string& base = "") {
  const std::string dir = JoinPath(root, name);
  EXPECT_TRUE(Files::Real()->MakeDirectories(dir).ok());
  const RowRecords rows = RowsOf(ids);
  TableFileEntry entry = EntryOf(rows);
  entry.clock = clock;
  const auto digest = TableFileWriter::Write(
      Files::Real(), JoinPath(dir, kFile), {entry}, InTwoPieces(rows));
  EXPECT_TRUE(digest.ok()) << digest.status();
  Manifest manifest = ManifestOf(name);
  Describe(*digest, &manifest);
  manifest.mutable_file(0)->mutable_tables()->set_base(base);
  EXPECT_TRUE(WriteManifest(Files::Real(), dir, manifest).ok());
  return manifest;
}

absl::StatusOr<std::unique_ptr<TableFileReader>> Open(
    const std::string& root, const Manifest& manifest) {
  return TableFileReader::Open(Files::Real(), JoinPath(root, manifest.name()),
                               manifest, 0);
}

// The message of a DATA_LOSS; "" and a failure for anything else.
std::string Damage(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  return std::string(status.message());
}

TEST(TableFileTest, RowsComeBackAsTheyWereWritten) {
  const std::string root = MakeTempDir();
  const std::vector<uint64_t> ids = {3, 1, 4, 15, 9, 2, ~uint64_t{0}};
  const auto reader = Open(root, WriteCheckpoint(root, "ckpt-1", ids, 77));
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->path(), root + "/ckpt-1/" + kFile);
  ASSERT_EQ((*reader)->tables().size(), 1u);
  const TableFileEntry& table = (*reader)->tables()[0];
  EXPECT_EQ(table.name, "t");
  EXPECT_EQ(table.step, 6u);
  EXPECT_EQ(table.rows, 7);
  EXPECT_EQ(table.row_floats, kRowFloats);
  EXPECT_EQ(table.clock, 77u);
  EXPECT_EQ((*reader)->Find("t"), 0);
  EXPECT_EQ((*reader)->Find("u"), -1);
  const RowRecords all = RowsOf(ids);
  RowRecords read;
  ASSERT_TRUE((*reader)->Read(0, 0, 7, &read).ok());
  EXPECT_EQ(read, all);
  ASSERT_TRUE((*reader)->Read(0, 2, 3, &read).ok());
  EXPECT_EQ(read, Slice(all, 2, 5));
  ASSERT_TRUE((*reader)->Read(0, 7, 0, &read).ok());
  EXPECT_EQ(read, RowRecords());
}

TEST(TableFileTest, SeveralTablesKeepTheirOwnRows) {
  const std::string root = MakeTempDir();
  const RowRecords rows[] = {RowsOf({1, 2, 3}), RowsOf({}), RowsOf({2, 8})};
  std::vector<TableFileEntry> entries;
  for (const char* name : {"a", "b", "c"}) {
    entries.push_back(EntryOf(rows[entries.size()]));
    entries.back().name = name;
  }
  const auto digest = TableFileWriter::Write(
      Files::Real(), JoinPath(root, kFile), entries,
      [&](int t, const std::function<absl::Status(const RowRecords&)>& take) {
        return take(rows[t]);
      });
  ASSERT_TRUE(digest.ok()) << digest.status();
  Manifest manifest = ManifestOf(".");
  Describe(*digest, &manifest);
  const auto reader = Open(root, manifest);
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_EQ((*reader)->tables().size(), 3u);
  for (int t = 0; t < 3; ++t) {
    const int found = (*reader)->Find(entries[static_cast<size_t>(t)].name);
    ASSERT_GE(found, 0);
    RowRecords read;
    ASSERT_TRUE(
        (*reader)
            ->Read(found, 0, static_cast<int64_t>(rows[t].ids.size()), &read)
            .ok());
    EXPECT_EQ(read, rows[t]);
  }
}

TEST(TableFileTest, AFailedWriteLeavesNothingOrTheWholeFile) {
  const std::string root = MakeTempDir();
  const std::string path = JoinPath(root, kFile);
  const RowRecords rows = RowsOf({1, 2, 3, 4, 5});
  int64_t nth = 1;
  for (;; ++nth) {
    FaultyFiles files(Files::Real());
    files.FailCall(nth, absl::ResourceExhaustedError("disk full"));
    const auto digest = TableFileWriter::Write(&files, path, {EntryOf(rows)},
                                               InTwoPieces(rows));
    if (digest.ok()) {
      break;
    }
    EXPECT_EQ(digest.status().code(), absl::StatusCode::kResourceExhausted);
    // Only the last call, the fsync of the directory, comes after the rename.
    const std::vector<std::string> names = *Files::Real()->List(root);
    if (!names.empty()) {
      EXPECT_THAT(names, ElementsAre(kFile)) << nth;
      EXPECT_TRUE(SafetensorsReader::Open(Files::Real(), path).ok());
      ASSERT_TRUE(Files::Real()->Remove(path).ok());
    }
  }
  // Create, the header, two pieces of four arrays, and four to make it durable.
  EXPECT_GT(nth, 14);
}

TEST(TableFileTest, AVisitThatFailsOrDoesNotFitLeavesNothing) {
  const std::string root = MakeTempDir();
  const RowRecords rows = RowsOf({1, 2, 3, 4, 5});
  const auto write = [&](const RowRecords& given) {
    return TableFileWriter::Write(Files::Real(), JoinPath(root, kFile),
                                  {EntryOf(rows)}, InTwoPieces(given))
        .status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(write(Slice(rows, 0, 4))));
  EXPECT_TRUE(absl::IsInvalidArgument(write(RowsOf({1, 2, 3, 4, 5, 6}))));
  int visits = 0;
  const absl::Status failed =
      TableFileWriter::Write(
          Files::Real(), JoinPath(root, kFile), {EntryOf(rows)},
          [&](int, const std::function<absl::Status(const RowRecords&)>& take) {
            if (++visits == 3) {
              return absl::AbortedError("the table is gone");
            }
            return take(rows);
          })
          .status();
  EXPECT_TRUE(absl::IsAborted(failed)) << failed;
  EXPECT_TRUE(Files::Real()->List(root)->empty());
}

TEST(TableFileTest, WhatDoesNotFitTheManifestIsDamage) {
  const std::string root = MakeTempDir();
  const Manifest good = WriteCheckpoint(root, "ckpt-1", {1, 2, 3});
  ASSERT_TRUE(Open(root, good).ok());
  Manifest bad = good;
  TableFile* const tables = bad.mutable_file(0)->mutable_tables();
  tables->set_name("../ckpt-2/" + std::string(kFile));
  EXPECT_THAT(
      Damage(Open(root, bad).status()),
      HasSubstr("names '../ckpt-2/tables-0-of-1.safetensors' in place"));
  *tables = good.file(0).tables();
  tables->set_bytes(tables->bytes() + 1);
  EXPECT_THAT(Damage(Open(root, bad).status()), HasSubstr("manifest says"));
  *tables = good.file(0).tables();
  tables->set_crc32c(tables->crc32c() ^ 1);
  EXPECT_THAT(Damage(Open(root, bad).status()), HasSubstr("CRC32C is"));
  ASSERT_TRUE(Files::Real()->Remove(root + "/ckpt-1/" + kFile).ok());
  EXPECT_THAT(Damage(Open(root, good).status()),
              HasSubstr("is missing; host 'host7' wrote it"));
}

// Any file system may fail while a checkpoint is read; that is no damage.
TEST(TableFileTest, AnErrorOfTheDeviceIsNotDamage) {
  const std::string root = MakeTempDir();
  const Manifest manifest = WriteCheckpoint(root, "ckpt-1", {1, 2, 3});
  FaultyFiles files(Files::Real());
  int64_t nth = 1;
  for (;; ++nth) {
    files.FailCall(nth, absl::InternalError("no cable"));
    const absl::Status status =
        TableFileReader::Open(&files, root + "/ckpt-1", manifest, 0).status();
    if (status.ok()) {
      break;
    }
    EXPECT_TRUE(absl::IsInternal(status)) << status;
  }
  EXPECT_GE(nth, 4);  // at least stat, open and a read
}

struct RawFile {
  std::vector<SafetensorsArray> arrays;
  std::map<std::string, std::string> metadata;
};

// Opens a file that has these arrays, of zeros.
absl::Status OpenRaw(const RawFile& raw) {
  const std::string root = MakeTempDir();
  auto writer = SafetensorsWriter::Create(Files::Real(), JoinPath(root, kFile),
                                          raw.arrays, raw.metadata);
  EXPECT_TRUE(writer.ok()) << writer.status();
  for (const SafetensorsArray& array : (*writer)->arrays()) {
    const std::string zeros(static_cast<size_t>(array.bytes()), '\0');
    EXPECT_TRUE((*writer)->Append(zeros.data(), array.bytes()).ok());
  }
  Manifest manifest = ManifestOf(".");
  Describe(*(*writer)->Finish(), &manifest);
  return Open(root, manifest).status();
}

TEST(TableFileTest, ATableWhoseArraysDoNotFitIsDamage) {
  const RawFile good = {{{"t.ids", "U64", {2}},
                         {"t.touched", "U32", {2}},
                         {"t.updates", "U32", {2}},
                         {"t.rows", "F32", {2, 3}}},
                        {{"weir.step.t", "6"}}};
  EXPECT_EQ(OpenRaw(good), absl::OkStatus());
  const std::string want = "table 't' is not whole";
  for (size_t array = 1; array < good.arrays.size(); ++array) {
    RawFile raw = good;
    raw.arrays[array].shape[0] = 1;
    EXPECT_THAT(Damage(OpenRaw(raw)), HasSubstr(want)) << array;
    raw = good;
    raw.arrays[array].dtype = "I32";
    EXPECT_THAT(Damage(OpenRaw(raw)), HasSubstr(want)) << array;
    raw = good;
    raw.arrays.erase(raw.arrays.begin() + static_cast<int64_t>(array));
    EXPECT_THAT(Damage(OpenRaw(raw)), HasSubstr(want)) << array;
  }
  RawFile raw = good;
  raw.arrays[0].dtype = "I64";
  EXPECT_THAT(Damage(OpenRaw(raw)), HasSubstr(want));
  raw = good;
  raw.metadata.clear();
  EXPECT_THAT(Damage(OpenRaw(raw)), HasSubstr(want));
  raw = good;
  raw.metadata["weir.clock.t"] = "noon";
  EXPECT_THAT(Damage(OpenRaw(raw)), HasSubstr("clock of table 't' is 'noon'"));
}

TEST(TableFileTest, ABaseComesBeforeItsIncrementAndTakesItsClock) {
  const std::string root = MakeTempDir();
  WriteCheckpoint(root, "ckpt-1", {1, 2}, 5);
  const Manifest manifest = WriteCheckpoint(root, "ckpt-2", {2}, 9, "ckpt-1");
  const auto readers =
      OpenTables(Files::Real(), JoinPath(root, "ckpt-2/"), manifest);
  ASSERT_TRUE(readers.ok()) << readers.status();
  ASSERT_EQ(readers->size(), 2u);
  EXPECT_EQ((*readers)[0]->path(), root + "/ckpt-1/" + kFile);
  EXPECT_EQ((*readers)[0]->tables()[0].clock, 9u);
  EXPECT_EQ((*readers)[1]->tables()[0].clock, 9u);
  std::vector<size_t> rows;  // of each call
  ASSERT_TRUE(ReadTables(Files::Real(), JoinPath(root, "ckpt-2"), manifest,
                         [&](const TableFileEntry&, const RowRecords& piece) {
                           rows.push_back(piece.ids.size());
                           return absl::OkStatus();
                         })
                  .ok());
  EXPECT_THAT(rows, ElementsAre(2u, 1u));
  EXPECT_TRUE(
      VerifyTables(Files::Real(), JoinPath(root, "ckpt-2"), manifest).ok());
}

// Row i was touched at 1000 + i.
TEST(TableFileTest, RowsOfABaseThatHaveExpiredSinceAreLeftOut) {
  const std::string root = MakeTempDir();
  WriteCheckpoint(root, "ckpt-1", {1, 2, 3}, 1003);
  Manifest manifest = WriteCheckpoint(root, "ckpt-2", {9}, 1012, "ckpt-1");
  const auto read = [&](const Expiry& expiry) {
    *manifest.mutable_declaration()->mutable_table(0)->mutable_expiry() =
        expiry;
    std::vector<uint64_t> ids;
    EXPECT_TRUE(ReadTables(Files::Real(), JoinPath(root, "ckpt-2"), manifest,
                           [&](const TableFileEntry&, const RowRecords& rows) {
                             ids.insert(ids.end(), rows.ids.begin(),
                                        rows.ids.end());
                             EXPECT_EQ(rows.floats, RowsOf(rows.ids).floats);
                             return absl::OkStatus();
                           })
                    .ok());
    return ids;
  };
  Expiry expiry;
  EXPECT_THAT(read(expiry), UnorderedElementsAre(1u, 2u, 3u, 9u));
  expiry.set_steps(10);
  EXPECT_THAT(read(expiry), UnorderedElementsAre(2u, 3u, 9u));
  expiry.set_seconds(9);
  EXPECT_THAT(read(expiry), UnorderedElementsAre(3u, 9u));
}

TEST(TableFileTest, ABaseThatIsNotOneIsDamage) {
  const std::string root = MakeTempDir();
  const auto verify = [&](const Manifest& manifest) {
    return Damage(
        VerifyTables(Files::Real(), JoinPath(root, manifest.name()), manifest));
  };
  for (const char* base : {"../x", "ckpt-01", "ckpt-2", "manifest.json"}) {
    EXPECT_THAT(verify(WriteCheckpoint(root, "ckpt-2", {2}, 9, base)),
                HasSubstr("names base '" + std::string(base) + "', which is"));
  }
  const Manifest second = WriteCheckpoint(root, "ckpt-2", {2}, 9, "ckpt-1");
  EXPECT_THAT(verify(second), HasSubstr("extends 'ckpt-1', and "));
  WriteCheckpoint(root, "ckpt-1", {1}, 5);
  EXPECT_TRUE(
      VerifyTables(Files::Real(), JoinPath(root, "ckpt-2"), second).ok());
  // An increment is not a base.
  EXPECT_THAT(verify(WriteCheckpoint(root, "ckpt-3", {3}, 12, "ckpt-2")),
              HasSubstr("is no base of 'ckpt-3'"));
}

TEST(TableFileTest, WhatCannotBeReadNowIsNotDamaged) {
  const std::string root = MakeTempDir();
  WriteCheckpoint(root, "ckpt-1", {1, 2}, 5);
  const Manifest manifest = WriteCheckpoint(root, "ckpt-2", {2}, 9, "ckpt-1");
  FaultyFiles files(Files::Real());
  const auto verify = [&] {
    return VerifyTables(&files, JoinPath(root, "ckpt-2"), manifest);
  };
  ASSERT_TRUE(verify().ok());
  const int64_t calls = files.calls();
  EXPECT_GE(calls, 4);
  for (int64_t nth = 1; nth <= calls; ++nth) {
    files.FailCall(nth, absl::UnavailableError("no answer"));
    EXPECT_EQ(verify().code(), absl::StatusCode::kUnavailable)
        << "call " << nth << " of " << calls;
  }
}

TEST(TableFileTest, ATableWithoutRowsIsReadOnceForItsStep) {
  const std::string root = MakeTempDir();
  const Manifest manifest = WriteCheckpoint(root, "ckpt-1", {});
  int calls = 0;
  ASSERT_TRUE(
      ReadTables(Files::Real(), root + "/ckpt-1", manifest,
                 [&](const TableFileEntry& table, const RowRecords& rows) {
                   ++calls;
                   EXPECT_EQ(table.step, 6u);
                   EXPECT_FALSE(table.clock.has_value());
                   EXPECT_TRUE(rows.ids.empty());
                   return absl::OkStatus();
                 })
          .ok());
  EXPECT_EQ(calls, 1);
}

TEST(TableFileTest, EveryShardOfAJobWithTablesHasAFileOfThem) {
  Manifest manifest = ManifestOf("ckpt-1");
  EXPECT_THAT(Damage(VerifyTables(Files::Real(), "ckpt-1", manifest)),
              HasSubstr("names no table file of shard 0"));
  manifest.mutable_declaration()->clear_table();
  const auto readers = OpenTables(Files::Real(), "ckpt-1", manifest);
  ASSERT_TRUE(readers.ok()) << readers.status();
  EXPECT_TRUE(readers->empty());
}

}  // namespace
}  // namespace weir
