// Flips every bit of every file of a checkpoint, one after the other.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/job/row_records.h"
#include "gtest/gtest.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/checkpoint/table_file.h"
#include "proto/wire/layout_io.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

// Files that are strings. They can be read and not written.
class TextFiles : public Files {
 public:
  std::map<std::string, std::string> text;  // by path

  absl::StatusOr<std::unique_ptr<FileReader>> Open(
      const std::string& path) override {
    const auto found = text.find(path);
    if (found == text.end()) {
      return FileError(ENOENT, "open", path);
    }
    return std::make_unique<Reader>(path, &found->second);
  }
  absl::StatusOr<FileInfo> Stat(const std::string& path) override {
    const auto found = text.find(path);
    if (found == text.end()) {
      return FileError(ENOENT, "stat", path);
    }
    return FileInfo{static_cast<int64_t>(found->second.size()), false};
  }
  absl::StatusOr<std::unique_ptr<FileWriter>> Create(
      const std::string& path) override {
    return FileError(EROFS, "create", path);
  }
  absl::StatusOr<std::unique_ptr<FileWriter>> CreateNew(
      const std::string& path) override {
    return FileError(EROFS, "create", path);
  }
  absl::StatusOr<std::unique_ptr<FileWriter>> OpenAppend(
      const std::string& path) override {
    return FileError(EROFS, "create", path);
  }
  absl::Status Rename(const std::string&, const std::string& to) override {
    return FileError(EROFS, "rename", to);
  }
  absl::Status RenameNew(const std::string&, const std::string& to) override {
    return FileError(EROFS, "rename", to);
  }
  absl::Status Remove(const std::string& path) override {
    return FileError(EROFS, "remove", path);
  }
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& directory) override {
    return FileError(ENOENT, "list", directory);
  }
  absl::Status MakeDirectories(const std::string& path) override {
    return FileError(EROFS, "make directory", path);
  }
  absl::Status MakeDirectory(const std::string& path) override {
    return FileError(EROFS, "make directory", path);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return FileError(EROFS, "fsync directory", path);
  }

 private:
  class Reader : public FileReader {
   public:
    Reader(std::string path, const std::string* text)
        : path_(std::move(path)), text_(text) {}
    int64_t size() const override {
      return static_cast<int64_t>(text_->size());
    }
    const std::string& path() const override { return path_; }
    absl::Status ReadAt(int64_t offset, void* data, size_t bytes) override {
      if (static_cast<size_t>(offset) + bytes > text_->size()) {
        return absl::DataLossError(path_);
      }
      text_->copy(static_cast<char*>(data), bytes, static_cast<size_t>(offset));
      return absl::OkStatus();
    }

   private:
    const std::string path_;
    const std::string* const text_;
  };
};

// Writes a checkpoint of two shards, each with a table, as ps and chief do.
void Write(const std::string& dir) {
  ASSERT_TRUE(Files::Real()->MakeDirectories(dir).ok());
  Manifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_name("ckpt-6");
  manifest.set_step(6);
  manifest.add_applied_range(0);
  manifest.add_applied_range(4);
  manifest.add_applied_range(6);
  manifest.add_applied_range(8);
  manifest.set_contribution_count(20);
  manifest.set_job_spec_text("name: \"x\"");
  manifest.set_written_at("2026-11-22T00:00:00Z");
  Declaration* const job = manifest.mutable_declaration();
  job->set_job("test");
  job->set_history(7);
  job->set_shard_count(2);
  job->set_block_elements(64);
  job->mutable_update()->mutable_async();
  Variable* const variable = job->add_variable();
  variable->set_name("w");
  variable->add_shape(300);
  job->add_table()->set_name("t");
  job->mutable_table(0)->set_dim(2);
  const Layout layout = *LayoutFromDeclaration(*job);
  for (int s = 0; s < 2; ++s) {
    const int64_t size = layout.shard_elements(s);
    int64_t segments = 0;
    for (int b = 0; b < layout.block_count(s); ++b) {
      segments += static_cast<int64_t>(layout.segments({s, b}).size());
    }
    const std::vector<float> values(static_cast<size_t>(size), 0.5f);
    const std::vector<int64_t> steps(static_cast<size_t>(segments), 6);
    const auto writer = *SafetensorsWriter::Create(
        Files::Real(), JoinPath(dir, ShardFileName(s, 2)),
        {{kValuesArray, "F32", {size}}, {kStepCountsArray, "I64", {segments}}},
        {});
    ASSERT_TRUE(writer->Append(values.data(), size * 4).ok());
    ASSERT_TRUE(writer->Append(steps.data(), segments * 8).ok());
    const FileDigest digest = *writer->Finish();
    ShardFile* const file = manifest.add_file();
    file->set_name(ShardFileName(s, 2));
    file->set_bytes(static_cast<uint64_t>(digest.bytes));
    file->set_crc32c(digest.crc32c);
    file->set_shard(static_cast<uint32_t>(s));
    file->set_host("host7");
    RowRecords rows;
    for (uint64_t id = 0; id < 6; ++id) {
      rows.ids.push_back(id);
      rows.touched.push_back(1);
      rows.updates.push_back(1);
      rows.floats.insert(rows.floats.end(), {1.0f, 2.0f});
    }
    const FileDigest rows_digest = *TableFileWriter::Write(
        Files::Real(), JoinPath(dir, TableFileName(s, 2)), {{"t", 6, 6, 2}},
        [&](int, const std::function<absl::Status(const RowRecords&)>& take) {
          return take(rows);
        });
    TableFile* const tables = file->mutable_tables();
    tables->set_name(TableFileName(s, 2));
    tables->set_bytes(static_cast<uint64_t>(rows_digest.bytes));
    tables->set_crc32c(rows_digest.crc32c);
    tables->set_rows(6);
  }
  ASSERT_TRUE(WriteManifest(Files::Real(), dir, manifest).ok());
}

// Verifies all files, as `weir checkpoint verify` does.
absl::Status Verify(Files* files, const std::string& dir) {
  const auto reader = CheckpointReader::Open(files, dir);
  if (!reader.ok()) {
    return reader.status();
  }
  absl::Status status = (*reader)->Verify();
  status.Update(VerifyTables(files, dir, (*reader)->manifest()));
  return status;
}

TEST(CheckpointFlipsTest, NoFlippedBitIsOverlooked) {
  const std::string dir = MakeTempDir() + "/ckpt-6";
  Write(dir);
  TextFiles files;
  size_t bytes = 0;
  const std::vector<std::string> names = *Files::Real()->List(dir);
  for (const std::string& name : names) {
    const std::string path = JoinPath(dir, name);
    files.text[path] = *Files::Real()->ReadAll(path);
    bytes += files.text[path].size();
  }
  ASSERT_EQ(files.text.size(), 5u);  // two of each shard, and the manifest
  EXPECT_GT(bytes, size_t{3} << 10);
  const absl::Status whole = Verify(&files, dir);
  ASSERT_TRUE(whole.ok()) << whole;
  for (auto& [path, text] : files.text) {
    for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
      const auto mask = static_cast<char>(1 << (bit % 8));
      text[bit / 8] = static_cast<char>(text[bit / 8] ^ mask);
      const absl::Status status = Verify(&files, dir);
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss)
          << path << ", bit " << bit << ": " << status;
      text[bit / 8] = static_cast<char>(text[bit / 8] ^ mask);
    }
  }
}

}  // namespace
}  // namespace weir
