#include "proto/checkpoint/table_merge.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/row_hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

using testing::HasSubstr;

constexpr int64_t kDim = 2;
constexpr int64_t kRowFloats = 3;  // two values and one element of state

// The values that row `id` has in checkpoint `tag`.
std::vector<float> ValuesOf(uint64_t id, float tag) {
  return {static_cast<float>(id), tag};
}

// Writes one shard's file of `name`, with the rows of `ids` in this order. The
// table's clock is `tag`, and all its rows were touched then.
TableFile WriteFile(const std::string& dir, int shard, int shards,
                    const std::vector<uint64_t>& ids, float tag,
                    const std::string& base) {
  RowRecords rows;
  for (const uint64_t id : ids) {
    rows.ids.push_back(id);
    rows.touched.push_back(static_cast<uint32_t>(tag));
    rows.updates.push_back(1);
    const std::vector<float> values = ValuesOf(id, tag);
    rows.floats.insert(rows.floats.end(), values.begin(), values.end());
    rows.floats.push_back(-1);  // the optimizer state
  }
  const auto digest = TableFileWriter::Write(
      Files::Real(), JoinPath(dir, TableFileName(shard, shards)),
      {{"t", 1, static_cast<int64_t>(ids.size()), kRowFloats,
        static_cast<uint64_t>(tag)}},
      [&](int, const std::function<absl::Status(const RowRecords&)>& take) {
        return take(rows);
      });
  EXPECT_TRUE(digest.ok()) << digest.status();
  TableFile file;
  file.set_name(TableFileName(shard, shards));
  file.set_bytes(static_cast<uint64_t>(digest->bytes));
  file.set_crc32c(digest->crc32c);
  file.set_base(base);
  return file;
}

// A checkpoint of `shards` shards that holds `ids`, each on its shard.
Manifest WriteCheckpoint(const std::string& dir, const std::string& name,
                         int shards, std::vector<uint64_t> ids, float tag,
                         const std::string& base = "") {
  std::filesystem::create_directories(JoinPath(dir, name));
  std::sort(ids.begin(), ids.end(),
            [](uint64_t a, uint64_t b) { return IndexHash(a) < IndexHash(b); });
  Manifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_name(name);
  Declaration* const declaration = manifest.mutable_declaration();
  declaration->set_job("test");
  declaration->set_shard_count(static_cast<uint32_t>(shards));
  declaration->set_block_elements(16);
  EmbeddingTable* const table = declaration->add_table();
  table->set_name("t");
  table->set_dim(kDim);
  for (int s = 0; s < shards; ++s) {
    std::vector<uint64_t> mine;
    for (const uint64_t id : ids) {
      if (ShardOfId(id, shards) == s) {
        mine.push_back(id);
      }
    }
    ShardFile* const file = manifest.add_file();
    file->set_name(ShardFileName(s, shards));
    file->set_shard(static_cast<uint32_t>(s));
    *file->mutable_tables() =
        WriteFile(JoinPath(dir, name), s, shards, mine, tag, base);
  }
  EXPECT_TRUE(WriteManifest(Files::Real(), JoinPath(dir, name), manifest).ok());
  return manifest;
}

using Visited = std::vector<std::pair<uint64_t, std::vector<float>>>;

absl::StatusOr<Visited> Visit(const std::string& dir,
                              const Manifest& manifest) {
  const auto merge =
      TableMerge::Open(Files::Real(), JoinPath(dir, manifest.name()), manifest);
  if (!merge.ok()) {
    return merge.status();
  }
  Visited visited;
  const absl::Status status =
      (*merge)->Visit(0, [&](uint64_t id, const float* values) {
        visited.emplace_back(id, std::vector<float>(values, values + kDim));
      });
  if (!status.ok()) {
    return status;
  }
  return visited;
}

std::vector<uint64_t> Ids(uint64_t begin, uint64_t end) {
  std::vector<uint64_t> ids;
  for (uint64_t i = begin; i < end; ++i) {
    ids.push_back(i * 3);
  }
  return ids;
}

// There are more rows than a cursor holds, so that cursors read on.
TEST(TableRowsTest, TheOrderDoesNotDependOnShards) {
  const std::string dir = MakeTempDir();
  const std::vector<uint64_t> ids = Ids(0, 7000);
  const auto one = Visit(dir, WriteCheckpoint(dir, "ckpt-1", 1, ids, 5));
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_EQ(one->size(), ids.size());
  for (size_t i = 0; i < one->size(); ++i) {
    EXPECT_EQ((*one)[i].second, ValuesOf((*one)[i].first, 5));
    if (i > 0) {
      EXPECT_LT(IndexHash((*one)[i - 1].first), IndexHash((*one)[i].first));
    }
  }
  for (const int shards : {2, 5}) {
    EXPECT_EQ(*Visit(dir, WriteCheckpoint(dir, absl::StrCat("ckpt-", shards),
                                          shards, ids, 5)),
              *one);
  }
}

TEST(TableRowsTest, ARowOfAnIncrementReplacesThatOfTheBase) {
  const std::string dir = MakeTempDir();
  WriteCheckpoint(dir, "ckpt-1", 3, Ids(0, 300), 1);
  const auto visited =
      Visit(dir, WriteCheckpoint(dir, "ckpt-2", 3, Ids(200, 350), 2, "ckpt-1"));
  ASSERT_TRUE(visited.ok()) << visited.status();
  ASSERT_EQ(visited->size(), 350u);
  for (const auto& [id, values] : *visited) {
    EXPECT_EQ(values, ValuesOf(id, id < 600 ? 1.0f : 2.0f));
  }
}

TEST(TableRowsTest, ARowOfTheBaseThatHasExpiredSinceIsLeftOut) {
  const std::string dir = MakeTempDir();
  WriteCheckpoint(dir, "ckpt-1", 3, Ids(0, 300), 1);
  Manifest manifest =
      WriteCheckpoint(dir, "ckpt-2", 3, Ids(200, 350), 12, "ckpt-1");
  Expiry* const expiry =
      manifest.mutable_declaration()->mutable_table(0)->mutable_expiry();
  expiry->set_steps(11);
  EXPECT_EQ(Visit(dir, manifest)->size(), 350u);
  expiry->set_steps(10);
  const auto visited = Visit(dir, manifest);
  ASSERT_TRUE(visited.ok()) << visited.status();
  EXPECT_EQ(visited->size(), 150u);
  for (const auto& [id, values] : *visited) {
    EXPECT_EQ(values, ValuesOf(id, 12));
  }
}

TEST(TableRowsTest, ATableMayHaveNoRows) {
  const std::string dir = MakeTempDir();
  const auto none = Visit(dir, WriteCheckpoint(dir, "ckpt-1", 2, {}, 1));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_TRUE(none->empty());
  const auto one = Visit(dir, WriteCheckpoint(dir, "ckpt-2", 2, {7}, 1));
  EXPECT_EQ(one->size(), 1u);
}

TEST(TableRowsTest, ADisorderedFileIsDamaged) {
  const std::string dir = MakeTempDir();
  Manifest manifest = WriteCheckpoint(dir, "ckpt-1", 1, {1, 2}, 1);
  std::vector<uint64_t> ids = {1, 2};
  if (IndexHash(ids[0]) < IndexHash(ids[1])) {
    std::swap(ids[0], ids[1]);
  }
  *manifest.mutable_file(0)->mutable_tables() =
      WriteFile(JoinPath(dir, "ckpt-1"), 0, 1, ids, 1, "");
  const absl::Status status = Visit(dir, manifest).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("out of order"));
}

TEST(TableRowsTest, AFileWithoutTheTableIsNamed) {
  const std::string dir = MakeTempDir();
  Manifest manifest = WriteCheckpoint(dir, "ckpt-1", 1, {1}, 1);
  manifest.mutable_declaration()->mutable_table(0)->set_name("u");
  EXPECT_THAT(Visit(dir, manifest).status().message(),
              HasSubstr("has no table 'u' of dim 2"));
}

}  // namespace
}  // namespace weir
