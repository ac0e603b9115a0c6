#include "proto/checkpoint_io.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "nlohmann/json.hpp"
#include "proto/layout_io.h"

namespace weir {
namespace {

constexpr char kCheckpointPrefix[] = "ckpt-";
// A manifest lists variables and files; a million of each fit.
constexpr int64_t kMaxManifestBytes = 256 << 20;

absl::Status Damaged(const std::string& path, absl::string_view reason) {
  return absl::DataLossError(absl::StrCat("'", path, "': ", reason));
}

// The manifest against itself; `path` is for messages.
absl::Status CheckManifest(const Manifest& manifest, const std::string& path) {
  if (manifest.format() != kManifestFormat) {
    return Damaged(
        path, absl::StrCat("format ", manifest.format(), " is not ",
                           kManifestFormat, ", the only one this build reads"));
  }
  const int shard_count =
      static_cast<int>(manifest.declaration().shard_count());
  if (manifest.file_size() != shard_count) {
    return Damaged(path, absl::StrCat("lists ", manifest.file_size(),
                                      " files for ", shard_count, " shards"));
  }
  for (int s = 0; s < shard_count; ++s) {
    const ShardFile& file = manifest.file(s);
    // The name is never used as a path before this: no way out of the folder.
    if (file.shard() != static_cast<uint32_t>(s) ||
        file.name() != ShardFileName(s, shard_count)) {
      return Damaged(path,
                     absl::StrCat("file ", s, " is '", file.name(), "', shard ",
                                  file.shard(), "; expected '",
                                  ShardFileName(s, shard_count), "'"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string CheckpointName(uint64_t step) {
  return absl::StrCat(kCheckpointPrefix, step);
}

std::string ShardFileName(int shard, int shard_count) {
  return absl::StrCat("shard-", shard, "-of-", shard_count, ".safetensors");
}

absl::Status WriteManifest(Files* files, const std::string& checkpoint_dir,
                           const Manifest& manifest) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status =
      google::protobuf::util::MessageToJsonString(manifest, &json, options);
  if (!status.ok()) {
    return absl::InternalError(absl::StrCat("manifest of '", checkpoint_dir,
                                            "': ", status.ToString()));
  }
  return files->WriteAtomically(JoinPath(checkpoint_dir, kManifestName), json);
}

absl::StatusOr<Manifest> ReadManifest(Files* files,
                                      const std::string& checkpoint_dir) {
  const std::string path = JoinPath(checkpoint_dir, kManifestName);
  const absl::StatusOr<FileInfo> info = files->Stat(path);
  if (absl::IsNotFound(info.status())) {
    return absl::NotFoundError(absl::StrCat(
        "'", checkpoint_dir, "' is no checkpoint: it has no ", kManifestName,
        "; `weir checkpoint list DIR` shows those of a run"));
  }
  WEIR_RETURN_IF_ERROR(info.status());
  if (info->bytes > kMaxManifestBytes) {
    return Damaged(
        path, absl::StrCat(info->bytes, " bytes are over ", kMaxManifestBytes));
  }
  WEIR_ASSIGN_OR_RETURN(const std::string json, files->ReadAll(path));
  Manifest manifest;
  const auto status =
      google::protobuf::util::JsonStringToMessage(json, &manifest);
  if (!status.ok()) {
    return Damaged(path, absl::StrCat("is no manifest: ", status.ToString()));
  }
  WEIR_RETURN_IF_ERROR(CheckManifest(manifest, path));
  return manifest;
}

absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(
    Files* files, const std::string& directory) {
  std::vector<CheckpointInfo> found;
  absl::StatusOr<std::vector<std::string>> names = files->List(directory);
  if (absl::IsNotFound(names.status())) {
    return found;
  }
  WEIR_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    uint64_t step = 0;
    if (!absl::StartsWith(name, kCheckpointPrefix) ||
        !absl::SimpleAtoi(name.substr(sizeof(kCheckpointPrefix) - 1), &step) ||
        name != CheckpointName(step)) {
      continue;
    }
    const std::string path = JoinPath(directory, name);
    WEIR_ASSIGN_OR_RETURN(const bool committed,
                          files->Exists(JoinPath(path, kManifestName)));
    if (committed) {
      found.push_back({step, name, path});
    }
  }
  std::sort(found.begin(), found.end(),
            [](const CheckpointInfo& a, const CheckpointInfo& b) {
              return a.step < b.step;
            });
  return found;
}

bool JobIsDone(Files* files, const std::string& workdir,
               const std::string& spec_text) {
  const auto done = files->ReadAll(JoinPath(workdir, kDoneName));
  if (!done.ok()) {
    return false;
  }
  const auto manifest = ReadManifest(
      files, absl::StrCat(workdir, "/checkpoints/",
                          absl::StripTrailingAsciiWhitespace(*done)));
  return manifest.ok() && manifest->job_spec_text() == spec_text;
}

absl::Status WriteEnding(Files* files, const std::string& workdir,
                         const absl::Status& why) {
  const std::string path = JoinPath(workdir, kEndedName);
  if (why.ok()) {
    const absl::Status removed = files->Remove(path);
    return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
  }
  const nlohmann::json json = {{"code", why.raw_code()},
                               {"reason", std::string(why.message())}};
  return files->WriteAtomically(
      path,
      json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
          "\n");
}

absl::Status ParseEnding(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("code") ||
      !json["code"].is_number_integer() || !json.contains("reason") ||
      !json["reason"].is_string()) {
    return absl::OkStatus();
  }
  return absl::Status(static_cast<absl::StatusCode>(json["code"].get<int>()),
                      json["reason"].get<std::string>());
}

CheckpointReader::CheckpointReader(Files* files, std::string directory,
                                   Manifest manifest, Layout layout)
    : files_(files),
      directory_(std::move(directory)),
      manifest_(std::move(manifest)),
      layout_(std::move(layout)),
      verified_(layout_.shard_count(), false),
      steps_(layout_.shard_count()) {}

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(
    Files* files, const std::string& checkpoint_dir) {
  WEIR_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(files, checkpoint_dir));
  absl::StatusOr<Layout> layout = LayoutFromDeclaration(manifest.declaration());
  if (!layout.ok()) {
    return Damaged(JoinPath(checkpoint_dir, kManifestName),
                   layout.status().message());
  }
  std::unique_ptr<CheckpointReader> reader(new CheckpointReader(
      files, checkpoint_dir, std::move(manifest), *std::move(layout)));
  for (int s = 0; s < reader->layout_.shard_count(); ++s) {
    WEIR_RETURN_IF_ERROR(reader->OpenShard(s));
  }
  return reader;
}

absl::Status CheckpointReader::OpenShard(int shard) {
  const ShardFile& file = manifest_.file(shard);
  const std::string path = JoinPath(directory_, file.name());
  absl::StatusOr<FileInfo> info = files_->Stat(path);
  if (absl::IsNotFound(info.status())) {
    return Damaged(
        path, absl::StrCat("is missing; host '", file.host(), "' wrote it"));
  }
  WEIR_RETURN_IF_ERROR(info.status());
  if (static_cast<uint64_t>(info->bytes) != file.bytes()) {
    return Damaged(
        path, absl::StrCat("has ", info->bytes, " bytes, the manifest says ",
                           file.bytes()));
  }
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsReader> reader,
                        SafetensorsReader::Open(files_, path));
  for (const char* name : {kValuesArray, kStepCountsArray}) {
    if (reader->Find(name) == nullptr) {
      return Damaged(path, absl::StrCat("has no array '", name, "'"));
    }
  }
  // Before the layout is walked: the file's size bounds the walk.
  if (reader->Find(kValuesArray)->shape !=
      std::vector<int64_t>{layout_.shard_elements(shard)}) {
    return Damaged(path, "array 'values' does not fit the manifest's layout");
  }
  int64_t segments = 0;
  for (int b = 0; b < layout_.block_count(shard); ++b) {
    segments += static_cast<int64_t>(layout_.segments({shard, b}).size());
  }
  for (const SafetensorsArray& array : reader->arrays()) {
    const bool counts = array.name == kStepCountsArray;
    const std::vector<int64_t> shape = {counts ? segments
                                               : layout_.shard_elements(shard)};
    if (array.dtype != (counts ? "I64" : "F32") || array.shape != shape) {
      return Damaged(path,
                     absl::StrCat("array '", array.name,
                                  "' does not fit the manifest's layout"));
    }
  }
  shards_.push_back(std::move(reader));
  return absl::OkStatus();
}

bool CheckpointReader::HasArray(const std::string& array) const {
  return std::all_of(shards_.begin(), shards_.end(), [&](const auto& shard) {
    return shard->Find(array) != nullptr;
  });
}

absl::Status CheckpointReader::VerifyFile(int shard) {
  if (verified_[shard]) {
    return absl::OkStatus();
  }
  WEIR_ASSIGN_OR_RETURN(const uint32_t crc32c, shards_[shard]->ReadCrc32c());
  if (crc32c != manifest_.file(shard).crc32c()) {
    return Damaged(
        shards_[shard]->path(),
        absl::StrCat(
            "CRC32C is ", absl::Hex(crc32c, absl::kZeroPad8),
            ", the manifest says ",
            absl::Hex(manifest_.file(shard).crc32c(), absl::kZeroPad8)));
  }
  verified_[shard] = true;
  return absl::OkStatus();
}

absl::Status CheckpointReader::Verify() {
  for (int s = 0; s < layout_.shard_count(); ++s) {
    WEIR_RETURN_IF_ERROR(VerifyFile(s));
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::ReadFlat(const std::string& array,
                                        int64_t flat_begin, int64_t count,
                                        float* out) {
  const int64_t flat_end = flat_begin + count;
  for (int64_t flat = flat_begin; flat < flat_end;) {
    const BlockId id = layout_.block_of(flat);
    const FlatRange range = layout_.block(id);
    const int64_t n = std::min(flat_end, range.begin + range.count) - flat;
    WEIR_RETURN_IF_ERROR(VerifyFile(id.shard));
    const SafetensorsReader& shard = *shards_[id.shard];
    const SafetensorsArray* source = shard.Find(array);
    if (source == nullptr || source->dtype != "F32") {
      return absl::NotFoundError(absl::StrCat(
          "'", shard.path(), "' has no float array '", array, "'"));
    }
    const int64_t element = layout_.shard_offset(id.index) + flat - range.begin;
    const int64_t bytes = sizeof(float);
    WEIR_RETURN_IF_ERROR(shard.Read(*source, element * bytes, out, n * bytes));
    out += n;
    flat += n;
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::LoadStepCounts(int shard) {
  std::vector<BlockSteps>& blocks = steps_[shard];
  if (!blocks.empty()) {
    return absl::OkStatus();
  }
  WEIR_RETURN_IF_ERROR(VerifyFile(shard));
  const SafetensorsArray* array = shards_[shard]->Find(kStepCountsArray);
  std::vector<uint64_t> all(array->shape[0]);
  WEIR_RETURN_IF_ERROR(
      shards_[shard]->Read(*array, 0, all.data(), array->bytes()));
  auto next = all.begin();
  for (int b = 0; b < layout_.block_count(shard); ++b) {
    BlockSteps block;
    block.segments = layout_.segments({shard, b});
    const auto end = next + static_cast<int64_t>(block.segments.size());
    block.counts.assign(next, end);
    next = end;
    blocks.push_back(std::move(block));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> CheckpointReader::StepCount(int variable,
                                                     int64_t variable_begin,
                                                     int64_t count) {
  const int64_t begin = layout_.flat_begin(variable) + variable_begin;
  uint64_t largest = 0;
  for (int64_t flat = begin; flat < begin + count;) {
    const BlockId id = layout_.block_of(flat);
    WEIR_RETURN_IF_ERROR(LoadStepCounts(id.shard));
    const BlockSteps& block = steps_[id.shard][id.index];
    const FlatRange range = layout_.block(id);
    // The last segment that begins at or before the element.
    const auto after = std::upper_bound(
        block.segments.begin(), block.segments.end(), flat - range.begin,
        [](int64_t offset, const Segment& s) {
          return offset < s.block_offset;
        });
    largest =
        std::max(largest, block.counts[after - block.segments.begin() - 1]);
    flat = range.begin + range.count;
  }
  return largest;
}

absl::StatusOr<std::vector<float>> CheckpointReader::ReadVariable(
    const std::string& name) {
  const int variable = layout_.Find(name);
  if (variable < 0) {
    return absl::NotFoundError(absl::StrCat("checkpoint '", directory_,
                                            "' has no variable '", name, "'"));
  }
  std::vector<float> values(layout_.variables()[variable].elements());
  WEIR_RETURN_IF_ERROR(ReadFlat(kValuesArray, layout_.flat_begin(variable),
                                static_cast<int64_t>(values.size()),
                                values.data()));
  return values;
}

}  // namespace weir
