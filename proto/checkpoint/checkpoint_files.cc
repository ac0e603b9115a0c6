#include "proto/checkpoint/checkpoint_files.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"
#include "common/io/crc32c.h"
#include "common/job/contribution_list.h"
#include "nlohmann/json.hpp"
#include "proto/wire/applied_work.h"
#include "proto/wire/layout_io.h"

namespace weir {
namespace {

// How the manifest's last field begins.
constexpr char kChecksumKey[] = ",\n \"crc32c\": ";
// A manifest lists variables and files; a million of each fit.
constexpr int64_t kMaxManifestBytes = 256 << 20;

std::string LastComponent(const std::string& path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

// The end of a manifest: the field with the checksum of the text `before` it.
std::string ChecksumField(absl::string_view before) {
  return absl::StrCat(kChecksumKey, Crc32c(before.data(), before.size()),
                      "\n}\n");
}

// The field is found from the end and compared as a text, before any byte is
// parsed: a flip inside the field itself is found, too.
absl::Status CheckText(const std::string& text, const std::string& path) {
  const size_t end = text.rfind(kChecksumKey);
  if (end == std::string::npos) {
    return DamagedFile(path, "has no checksum at its end");
  }
  const absl::string_view whole = text;
  const std::string expected = ChecksumField(whole.substr(0, end));
  if (whole.substr(end) != expected) {
    return DamagedFile(path,
                       absl::StrCat("its CRC32C is ", Crc32c(text.data(), end),
                                    ", not what its last field says"));
  }
  return absl::OkStatus();
}

// Checks the contributions applied against one another and against the step.
absl::Status CheckRanges(const Manifest& manifest, const std::string& path) {
  if (manifest.applied_range().empty() && manifest.deal().empty()) {
    return absl::OkStatus();  // an SDK job, or nothing was applied
  }
  if (manifest.applied_range_size() % 2 != 0) {
    return DamagedFile(
        path, absl::StrCat("applied_range has ", manifest.applied_range_size(),
                           " numbers"));
  }
  const absl::StatusOr<ContributionList> list = ContributionList::Create(
      AppliedIn(manifest), static_cast<int64_t>(manifest.contribution_count()));
  if (!list.ok()) {
    return DamagedFile(path, list.status().message());
  }
  const auto applied = static_cast<uint64_t>(list->applied_count());
  const Declaration& job = manifest.declaration();
  uint64_t expected = manifest.step();
  // In sync a step stands for n contributions, and only the job's last step may
  // have fewer. What was applied before this history may have been in steps of
  // another size.
  if (job.update().has_sync()) {
    const uint64_t steps = manifest.step() - job.base_version();
    uint64_t before = 0;
    for (int i = 0; i + 1 < job.applied_range_size(); i += 2) {
      before += job.applied_range(i + 1) - job.applied_range(i);
    }
    expected = std::min(before + steps * job.update().sync().contributions(),
                        manifest.contribution_count());
  }
  if (applied != expected) {
    return DamagedFile(
        path, absl::StrCat("step ", manifest.step(), " is that of ", expected,
                           " contributions, and ", applied, " were applied"));
  }
  return absl::OkStatus();
}

// Checks the format and the list of files. `path` is for messages.
absl::Status CheckManifest(const Manifest& manifest, const std::string& path) {
  if (manifest.format() < kManifestFormatOldest ||
      manifest.format() > kManifestFormat) {
    return Invalid("checkpoint '", path, "' has format ", manifest.format(),
                   ", and this release of Weir reads formats ",
                   kManifestFormatOldest, " to ", kManifestFormat,
                   ": use the release that wrote it");
  }
  const int shard_count =
      static_cast<int>(manifest.declaration().shard_count());
  if (manifest.file_size() != shard_count) {
    return DamagedFile(
        path, absl::StrCat("lists ", manifest.file_size(), " files for ",
                           shard_count, " shards"));
  }
  for (int s = 0; s < shard_count; ++s) {
    const ShardFile& file = manifest.file(s);
    // The name is not used as a path before this check, so it cannot lead out
    // of the folder.
    if (file.shard() != static_cast<uint32_t>(s) ||
        file.name() != ShardFileName(s, shard_count)) {
      return DamagedFile(
          path, absl::StrCat("file ", s, " is '", file.name(), "', shard ",
                             file.shard(), "; expected '",
                             ShardFileName(s, shard_count), "'"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteManifest(ObjectStore* files,
                           const std::string& checkpoint_dir,
                           const Manifest& manifest) {
  Manifest without_checksum = manifest;
  without_checksum.clear_crc32c();
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(
      without_checksum, &json, options);
  absl::string_view before = json;
  // The checksum covers the text up to the field, so the field is put in by
  // hand, in the form in which protobuf prints the others.
  if (!status.ok() || !absl::ConsumeSuffix(&before, "\n}\n")) {
    return absl::InternalError(absl::StrCat("manifest of '", checkpoint_dir,
                                            "': ", status.ToString()));
  }
  // I1: this rename commits. The caller has written all other files by now.
  return files->WriteAtomically(JoinPath(checkpoint_dir, kManifestName),
                                absl::StrCat(before, ChecksumField(before)));
}

absl::StatusOr<Manifest> ReadManifest(ObjectStore* files,
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
    return DamagedFile(
        path, absl::StrCat(info->bytes, " bytes are over ", kMaxManifestBytes));
  }
  WEIR_ASSIGN_OR_RETURN(const std::string json, files->ReadAll(path));
  WEIR_RETURN_IF_ERROR(CheckText(json, path));
  Manifest manifest;
  const auto status =
      google::protobuf::util::JsonStringToMessage(json, &manifest);
  if (!status.ok()) {
    return DamagedFile(path,
                       absl::StrCat("is no manifest: ", status.ToString()));
  }
  WEIR_RETURN_IF_ERROR(CheckManifest(manifest, path));
  WEIR_RETURN_IF_ERROR(CheckRanges(manifest, path));
  // A directory that was renamed or copied over another would break the bases
  // of increments, which are named. "." and ".." say nothing about the name.
  const std::string name =
      LastComponent(std::string(absl::StripSuffix(checkpoint_dir, "/")));
  if (name != manifest.name() && name != "." && name != "..") {
    return DamagedFile(path,
                       absl::StrCat("is that of '", manifest.name(),
                                    "'; a checkpoint's directory keeps its "
                                    "name"));
  }
  return manifest;
}

absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(
    ObjectStore* files, const std::string& directory,
    std::vector<CheckpointInfo>* set_aside) {
  std::vector<CheckpointInfo> found;
  absl::StatusOr<std::vector<std::string>> names = files->List(directory);
  if (absl::IsNotFound(names.status())) {
    return found;
  }
  WEIR_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    const std::optional<CheckpointId> id = ParseCheckpointName(name);
    if (!id.has_value()) {
      continue;
    }
    // I1: of the two files in this order, the first makes the checkpoint and
    // the second sets it aside.
    const std::string path = JoinPath(directory, name);
    WEIR_ASSIGN_OR_RETURN(const bool committed,
                          files->Exists(JoinPath(path, kManifestName)));
    if (!committed) {
      continue;
    }
    WEIR_ASSIGN_OR_RETURN(const bool damaged,
                          files->Exists(JoinPath(path, kDamagedName)));
    if (!damaged) {
      found.push_back({id->step, name, path});
    } else if (set_aside != nullptr) {
      set_aside->push_back({id->step, name, path});
    }
  }
  const auto older = [](const CheckpointInfo& a, const CheckpointInfo& b) {
    return *ParseCheckpointName(a.name) < *ParseCheckpointName(b.name);
  };
  std::sort(found.begin(), found.end(), older);
  if (set_aside != nullptr) {
    std::sort(set_aside->begin(), set_aside->end(), older);
  }
  return found;
}

absl::StatusOr<std::string> ResolveCheckpoint(ObjectStore* files,
                                              const std::string& path) {
  const std::string whole(absl::StripSuffix(path, "/"));
  const std::optional<CheckpointId> id =
      ParseCheckpointName(LastComponent(whole));
  if (!id.has_value() || id->attempt != 1) {
    return path;  // a full name means this directory and no other
  }
  WEIR_ASSIGN_OR_RETURN(const std::vector<CheckpointInfo> list,
                        ListCheckpoints(files, DirectoryOf(whole)));
  // The list has the newest last. Without any committed one the path itself is
  // returned, and whoever opens it says what is wrong with it.
  std::string newest = path;
  for (const CheckpointInfo& info : list) {
    if (info.step == id->step) {
      newest = info.path;
    }
  }
  return newest;
}

absl::StatusOr<bool> FindDone(ObjectStore* files, const std::string& workdir,
                              const std::string& spec_text) {
  const auto done = files->ReadAll(JoinPath(workdir, kDoneName));
  const std::string path = absl::StrCat(
      workdir, "/checkpoints/", absl::StripAsciiWhitespace(done.value_or("")));
  const auto manifest = done.ok() ? ReadManifest(files, path) : done.status();
  if (absl::IsUnavailable(manifest.status())) {
    return manifest.status();
  }
  // The same directory may have been used for another job before.
  if (!manifest.ok() || manifest->job_spec_text() != spec_text) {
    return false;
  }
  // Its chief may have been killed before the name was durable.
  WEIR_RETURN_IF_ERROR(files->SyncDirectory(workdir));
  return true;
}

absl::Status WriteEnding(ObjectStore* files, const std::string& workdir,
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

absl::StatusOr<std::unique_ptr<SafetensorsReader>> OpenListedFile(
    ObjectStore* files, const std::string& path, const std::string& host,
    uint64_t bytes) {
  const absl::StatusOr<FileInfo> info = files->Stat(path);
  if (absl::IsNotFound(info.status())) {
    return DamagedFile(path,
                       absl::StrCat("is missing; host '", host, "' wrote it"));
  }
  WEIR_RETURN_IF_ERROR(info.status());
  if (static_cast<uint64_t>(info->bytes) != bytes) {
    return DamagedFile(path, absl::StrCat("has ", info->bytes,
                                          " bytes, the manifest says ", bytes));
  }
  return SafetensorsReader::Open(files, path);
}

absl::Status CheckListedCrc32c(const SafetensorsReader& file, uint32_t crc32c) {
  WEIR_ASSIGN_OR_RETURN(const uint32_t actual, file.ReadCrc32c());
  if (actual != crc32c) {
    return DamagedFile(
        file.path(),
        absl::StrCat("CRC32C is ", absl::Hex(actual, absl::kZeroPad8),
                     ", the manifest says ",
                     absl::Hex(crc32c, absl::kZeroPad8)));
  }
  return absl::OkStatus();
}

absl::Status DamagedFile(const std::string& path, absl::string_view reason) {
  return absl::DataLossError(absl::StrCat("'", path, "': ", reason));
}

CheckpointReader::CheckpointReader(ObjectStore* files, std::string directory,
                                   Manifest manifest, Layout layout)
    : files_(files),
      directory_(std::move(directory)),
      manifest_(std::move(manifest)),
      layout_(std::move(layout)),
      verified_(layout_.shard_count(), false),
      steps_(layout_.shard_count()) {}

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(
    ObjectStore* files, const std::string& checkpoint_dir) {
  WEIR_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(files, checkpoint_dir));
  absl::StatusOr<Layout> layout = LayoutFromDeclaration(manifest.declaration());
  if (!layout.ok()) {
    return DamagedFile(JoinPath(checkpoint_dir, kManifestName),
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
  WEIR_ASSIGN_OR_RETURN(
      std::unique_ptr<SafetensorsReader> reader,
      OpenListedFile(files_, path, file.host(), file.bytes()));
  for (const char* name : {kValuesArray, kStepCountsArray}) {
    if (reader->Find(name) == nullptr) {
      return DamagedFile(path, absl::StrCat("has no array '", name, "'"));
    }
  }
  // Checked before the loop over the layout's blocks below: from here on the
  // file's size bounds that loop, whatever the manifest declares.
  if (reader->Find(kValuesArray)->shape !=
      std::vector<int64_t>{layout_.shard_elements(shard)}) {
    return DamagedFile(path,
                       "array 'values' does not fit the manifest's layout");
  }
  int64_t segments = 0;
  for (int b = 0; b < layout_.block_count(shard); ++b) {
    segments += static_cast<int64_t>(layout_.segments({shard, b}).size());
  }
  for (const SafetensorsArray& array : reader->arrays()) {
    // Step counts are by segment; values and optimizer state by element.
    SafetensorsArray expected;
    expected.dtype = "F32";
    expected.shape = {layout_.shard_elements(shard)};
    if (array.name == kStepCountsArray) {
      expected.dtype = "I64";
      expected.shape = {segments};
    }
    if (array.dtype != expected.dtype || array.shape != expected.shape) {
      return DamagedFile(path,
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
  WEIR_RETURN_IF_ERROR(
      CheckListedCrc32c(*shards_[shard], manifest_.file(shard).crc32c()));
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
    // I2: the checksum of the whole file, before the first value of it.
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
  WEIR_RETURN_IF_ERROR(VerifyFile(shard));  // I2
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
    // The last segment that begins at or before the element. There is one,
    // because a variable's elements are never padding.
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
