#include "proto/checkpoint/model_export.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/io/npy.h"
#include "common/io/safetensors.h"
#include "common/job/row_hash.h"
#include "common/math/half.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/checkpoint/table_file.h"
#include "proto/wire/layout_io.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kDim = 2;
constexpr int64_t kRowFloats = 3;  // two values and one element of state

// A model and its values, without shards and blocks.
struct Model {
  std::vector<Variable> variables;
  std::map<std::string, std::vector<float>> values;  // by variable
  std::vector<uint64_t> ids;                         // rows of table "t"
  float first_of_row_5 = 5.0f;

  void Add(const std::string& name, const std::vector<int64_t>& shape,
           const std::string& dtype, const std::vector<float>& elements) {
    Variable variable;
    variable.set_name(name);
    for (const int64_t dim : shape) {
      variable.add_shape(dim);
    }
    variable.set_export_dtype(dtype);
    variables.push_back(variable);
    values[name] = elements;
  }
};

// One variable of each kind of dtype, and a table.
Model SmallModel() {
  Model model;
  model.Add("dense/kernel", {2, 2}, "", {1.5f, -2.25f, 0.1f, 1e30f});
  model.variables[0].add_alias("tied");
  model.Add("half", {3}, "BF16", {1.5f, -0.25f, 1024.0f});
  model.Add("count", {3}, "I64", {0.4f, 2.6f, -1.7f});
  model.ids = {300, 1, uint64_t{1} << 63, 5};
  return model;
}

std::vector<float> RowOf(const Model& model, uint64_t id) {
  float first = static_cast<float>(id);
  if (id == 5) {
    first = model.first_of_row_5;
  }
  return {first, static_cast<float>(id) + 0.5f};
}

// Writes the dense file of shard `s` and describes it in `file`.
void WriteValues(const Model& model, const Layout& layout, int s,
                 const std::string& dir, ShardFile* file) {
  std::vector<float> values(static_cast<size_t>(layout.shard_elements(s)));
  std::vector<int64_t> steps;
  for (int b = 0; b < layout.block_count(s); ++b) {
    for (const Segment& segment : layout.segments({s, b})) {
      const std::string& name =
          layout.variables()[static_cast<size_t>(segment.variable)].name;
      const std::vector<float>& from = model.values.at(name);
      std::copy_n(
          from.begin() + segment.variable_offset, segment.count,
          values.begin() + layout.shard_offset(b) + segment.block_offset);
      steps.push_back(6);
    }
  }
  file->set_name(ShardFileName(s, layout.shard_count()));
  file->set_shard(static_cast<uint32_t>(s));
  const auto writer = *SafetensorsWriter::Create(
      Files::Real(), JoinPath(dir, file->name()),
      {{kValuesArray, "F32", {static_cast<int64_t>(values.size())}},
       {kStepCountsArray, "I64", {static_cast<int64_t>(steps.size())}}},
      {});
  EXPECT_TRUE(
      writer->Append(values.data(), static_cast<int64_t>(values.size()) * 4)
          .ok());
  EXPECT_TRUE(
      writer->Append(steps.data(), static_cast<int64_t>(steps.size()) * 8)
          .ok());
  const FileDigest digest = *writer->Finish();
  file->set_bytes(static_cast<uint64_t>(digest.bytes));
  file->set_crc32c(digest.crc32c);
}

// Writes the rows of shard `s` of `shards` and describes their file.
void WriteRows(const Model& model, int s, int shards, const std::string& dir,
               TableFile* file) {
  std::vector<uint64_t> ids;
  for (const uint64_t id : model.ids) {
    if (ShardOfId(id, shards) == s) {
      ids.push_back(id);
    }
  }
  std::sort(ids.begin(), ids.end(),
            [](uint64_t a, uint64_t b) { return IndexHash(a) < IndexHash(b); });
  RowRecords rows;
  for (const uint64_t id : ids) {
    rows.ids.push_back(id);
    rows.touched.push_back(1);
    rows.updates.push_back(1);
    for (const float value : RowOf(model, id)) {
      rows.floats.push_back(value);
    }
    rows.floats.push_back(-1.0f);  // the state, which is not exported
  }
  file->set_name(TableFileName(s, shards));
  TableFileEntry entry;
  entry.name = "t";
  entry.rows = static_cast<int64_t>(ids.size());
  entry.row_floats = kRowFloats;
  const FileDigest digest = *TableFileWriter::Write(
      Files::Real(), JoinPath(dir, file->name()), {entry},
      [&](int, const std::function<absl::Status(const RowRecords&)>& take) {
        return take(rows);
      });
  file->set_bytes(static_cast<uint64_t>(digest.bytes));
  file->set_crc32c(digest.crc32c);
}

// Writes a checkpoint of `model` in a directory of its own; returns its path.
std::string WriteCheckpoint(const Model& model, int shards = 1,
                            int64_t block_elements = 64) {
  const std::string dir = MakeTempDir() + "/ckpt-6";
  EXPECT_TRUE(Files::Real()->MakeDirectories(dir).ok());
  Manifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_name("ckpt-6");
  manifest.set_step(6);
  Declaration* const job = manifest.mutable_declaration();
  job->set_job("test");
  job->set_shard_count(static_cast<uint32_t>(shards));
  job->set_block_elements(static_cast<uint64_t>(block_elements));
  for (const Variable& variable : model.variables) {
    *job->add_variable() = variable;
  }
  if (!model.ids.empty()) {
    job->add_table()->set_name("t");
    job->mutable_table(0)->set_dim(kDim);
  }
  const Layout layout = *LayoutFromDeclaration(*job);
  for (int s = 0; s < shards; ++s) {
    ShardFile* const file = manifest.add_file();
    WriteValues(model, layout, s, dir, file);
    if (!model.ids.empty()) {
      WriteRows(model, s, shards, dir, file->mutable_tables());
    }
  }
  EXPECT_TRUE(WriteManifest(Files::Real(), dir, manifest).ok());
  return dir;
}

// All elements of an array; a failure when it has another type or shape.
template <class T>
std::vector<T> Read(const SafetensorsReader& file, const std::string& name,
                    const std::string& dtype,
                    const std::vector<int64_t>& shape) {
  const SafetensorsArray* const array = file.Find(name);
  if (array == nullptr) {
    ADD_FAILURE() << "there is no " << name;
    return {};
  }
  EXPECT_EQ(array->dtype, dtype) << name;
  EXPECT_EQ(array->shape, shape) << name;
  std::vector<T> elements(static_cast<size_t>(array->bytes()) / sizeof(T));
  EXPECT_TRUE(file.Read(*array, 0, elements.data(), array->bytes()).ok());
  return elements;
}

TEST(ModelExportTest, TensorsHaveTheirDtypesAndAllTheirNames) {
  const std::string out = MakeTempDir() + "/model.safetensors";
  const absl::Status status =
      ExportModel(Files::Real(), WriteCheckpoint(SmallModel()), out);
  ASSERT_TRUE(status.ok()) << status;
  const auto file = *SafetensorsReader::Open(Files::Real(), out);
  EXPECT_EQ(file->metadata().at("format"), "pt");
  EXPECT_EQ(file->metadata().at("weir.step"), "6");
  EXPECT_EQ(file->arrays().size(), 6u);  // three, an alias, two of the table
  for (const char* name : {"dense/kernel", "tied"}) {
    EXPECT_THAT(Read<float>(*file, name, "F32", {2, 2}),
                ElementsAre(1.5f, -2.25f, 0.1f, 1e30f));
  }
  const auto bf16 = Read<uint16_t>(*file, "half", "BF16", {3});
  std::vector<float> halves(3);
  Bf16ToFloats(reinterpret_cast<const char*>(bf16.data()), 3, halves.data());
  EXPECT_THAT(halves, ElementsAre(1.5f, -0.25f, 1024.0f));
  // To nearest, and not towards zero.
  EXPECT_THAT(Read<int64_t>(*file, "count", "I64", {3}), ElementsAre(0, 3, -2));
}

TEST(ModelExportTest, RowsComeInTheOrderOfTheirSignedIds) {
  const Model model = SmallModel();
  const std::string out = MakeTempDir() + "/model.safetensors";
  ASSERT_TRUE(ExportModel(Files::Real(), WriteCheckpoint(model), out).ok());
  const auto file = *SafetensorsReader::Open(Files::Real(), out);
  const std::vector<uint64_t> order = {uint64_t{1} << 63, 1, 5, 300};
  EXPECT_EQ(Read<uint64_t>(*file, "t.ids", "I64", {4}), order);
  std::vector<float> rows;
  for (const uint64_t id : order) {
    for (const float value : RowOf(model, id)) {
      rows.push_back(value);
    }
  }
  EXPECT_EQ(Read<float>(*file, "t.rows", "F32", {4, kDim}), rows);
}

TEST(ModelExportTest, FilesAndFingerprintsDoNotDependOnShardsAndBlocks) {
  Model model = SmallModel();
  model.Add("long", {1000}, "F64", std::vector<float>(1000, 0.125f));
  const std::string dir = MakeTempDir();
  std::string first_file;
  std::string first_sha;
  for (const auto& [shards, block] :
       std::vector<std::pair<int, int64_t>>{{1, 1024}, {1, 64}, {3, 16}}) {
    const std::string checkpoint = WriteCheckpoint(model, shards, block);
    const std::string out = dir + "/model.safetensors";
    ASSERT_TRUE(ExportModel(Files::Real(), checkpoint, out).ok());
    const std::string bytes = *Files::Real()->ReadAll(out);
    const auto sha = ExportedSha256(Files::Real(), checkpoint);
    ASSERT_TRUE(sha.ok()) << sha.status();
    if (first_file.empty()) {
      first_file = bytes;
      first_sha = *sha;
    }
    EXPECT_EQ(bytes, first_file) << shards << " shards of blocks of " << block;
    EXPECT_EQ(*sha, first_sha) << shards << " shards of blocks of " << block;
  }
}

TEST(ModelExportTest, AFingerprintChangesWithEveryValueAndRow) {
  const auto sha = [](const Model& model) {
    return *ExportedSha256(Files::Real(), WriteCheckpoint(model));
  };
  const Model model = SmallModel();
  const std::string before = sha(model);
  EXPECT_EQ(before.size(), 64u);
  EXPECT_EQ(sha(model), before);
  Model other = model;
  other.variables[0].clear_alias();
  EXPECT_EQ(sha(other), before);  // an alias is the same tensor again
  other = model;
  other.values["half"][2] = 2048.0f;
  EXPECT_NE(sha(other), before);
  other = model;
  other.first_of_row_5 = 6.0f;
  EXPECT_NE(sha(other), before);
  other = model;
  other.ids.push_back(6);
  EXPECT_NE(sha(other), before);
}

TEST(ModelExportTest, NumpyHasOneFileForEachArray) {
  const std::string dir = MakeTempDir() + "/arrays";
  const absl::Status status =
      ExportNumpy(Files::Real(), WriteCheckpoint(SmallModel()), dir);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(*Files::Real()->List(dir),
              ElementsAre("count.npy", "dense.kernel.npy", "half.npy",
                          "t.ids.npy", "t.rows.npy"));
  // NumPy has no bfloat16.
  const float halves[] = {1.5f, -0.25f, 1024.0f};
  std::string expected = NpyHeader("<f4", {3});
  expected.append(reinterpret_cast<const char*>(halves), sizeof(halves));
  EXPECT_EQ(*Files::Real()->ReadAll(dir + "/half.npy"), expected);
}

TEST(ModelExportTest, NamesThatBecomeOneFileAreRefused) {
  Model model;
  model.Add("a/b", {1}, "", {1.0f});
  model.Add("a.b", {1}, "", {2.0f});
  const absl::Status status = ExportNumpy(Files::Real(), WriteCheckpoint(model),
                                          MakeTempDir() + "/arrays");
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("'a.b'"));
  EXPECT_THAT(status.message(), HasSubstr("a.b.npy"));
}

TEST(ModelExportTest, AValueThatAnIntegerCannotHoldNamesItsVariable) {
  for (const float bad : {NAN, INFINITY, 0x1p31f, -0x1.000002p31f}) {
    Model model;
    model.Add("count", {2}, "I32", {-0x1p31f, bad});
    const auto sha = ExportedSha256(Files::Real(), WriteCheckpoint(model));
    EXPECT_TRUE(absl::IsInvalidArgument(sha.status())) << bad;
    EXPECT_THAT(sha.status().message(), HasSubstr("'count'"));
  }
  Model model;
  model.Add("count", {2}, "I64", {-0x1p63f, 0x1.fffffep62f});
  EXPECT_TRUE(ExportedSha256(Files::Real(), WriteCheckpoint(model)).ok());
}

TEST(ModelExportTest, ADtypeThatIsNotKnownNamesItsVariable) {
  Model model;
  model.Add("w", {1}, "U8", {1.0f});
  const std::string checkpoint = WriteCheckpoint(model);
  const std::string dir = MakeTempDir();
  for (const absl::Status& status :
       {ExportModel(Files::Real(), checkpoint, dir + "/model.safetensors"),
        ExportNumpy(Files::Real(), checkpoint, dir),
        ExportedSha256(Files::Real(), checkpoint).status()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.message(),
                HasSubstr("variable 'w' has export dtype U8"));
  }
  EXPECT_TRUE(Files::Real()->List(dir)->empty());
}

}  // namespace
}  // namespace weir
