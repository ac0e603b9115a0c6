#include "worker/train/table_values.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/io/files.h"
#include "common/job/initializer.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/checkpoint/table_file.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

using testing::HasSubstr;

// A checkpoint of two shards with rows 10 and 12 of table `t`, values {id, -id}
// and one slot.
Manifest WriteCheckpoint(const std::string& dir) {
  Manifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_name("ckpt-1");
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "job: 'x' shard_count: 2 seed: 5 "
      "table { name: 't' dim: 2 initializer { uniform_limit: 0.5 } }",
      manifest.mutable_declaration()));
  for (int s = 0; s < 2; ++s) {
    const uint64_t id = s == 0 ? 10 : 12;
    const RowRecords rows = {{id}, {1}, {1}, {1.0f * id, -1.0f * id, 99.0f}};
    const auto digest = TableFileWriter::Write(
        Files::Real(), JoinPath(dir, TableFileName(s, 2)), {{"t", 1, 1, 3}},
        [&](int, const std::function<absl::Status(const RowRecords&)>& take) {
          return take(rows);
        });
    EXPECT_TRUE(digest.ok()) << digest.status();
    ShardFile* const file = manifest.add_file();
    file->set_shard(static_cast<uint32_t>(s));
    file->set_name(ShardFileName(s, 2));
    file->mutable_tables()->set_name(TableFileName(s, 2));
    file->mutable_tables()->set_bytes(static_cast<uint64_t>(digest->bytes));
    file->mutable_tables()->set_crc32c(digest->crc32c);
  }
  return manifest;
}

TEST(TableValuesTest, ReadsRowsAndMakesThoseThatAreNotThere) {
  const std::string dir = MakeTempDir();
  const Manifest manifest = WriteCheckpoint(dir);
  TableValues values;
  const absl::Status status =
      values.Load(Files::Real(), dir, manifest, {{"t", 2, {}}});
  ASSERT_TRUE(status.ok()) << status;
  std::vector<float> rows(6);
  values.Lookup(0, std::vector<uint64_t>{10, 11, 12}, rows.data());
  std::vector<float> initial(2);
  FillInitialRow({InitKind::kUniform, 0.5f}, RowInitKey(TableSeed(5, "t")), 11,
                 2, initial.data());
  EXPECT_EQ(rows,
            (std::vector<float>{10, -10, initial[0], initial[1], 12, -12}));
  EXPECT_NE(initial[0], 0.0f);
}

TEST(TableValuesTest, OtherTablesAreNamed) {
  const std::string dir = MakeTempDir();
  const Manifest manifest = WriteCheckpoint(dir);
  TableValues values;
  EXPECT_THAT(
      values.Load(Files::Real(), dir, manifest, {{"t", 3, {}}}).message(),
      HasSubstr("no table 't' of dim 3"));
  EXPECT_THAT(
      values.Load(Files::Real(), dir, manifest, {{"u", 2, {}}}).message(),
      HasSubstr("no table 'u'"));
  EXPECT_TRUE(values.Load(Files::Real(), dir, manifest, {}).ok());
}

}  // namespace
}  // namespace weir
