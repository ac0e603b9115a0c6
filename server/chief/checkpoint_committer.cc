#include "server/chief/checkpoint_committer.h"

#include <ctime>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/failpoint.h"
#include "common/status.h"
#include "proto/checkpoint_io.h"
#include "proto/table_file.h"

namespace weir {
namespace {

constexpr char kListName[] = "checkpoint";
constexpr char kAsidePrefix[] = "damaged-";

CheckpointCommitter::Options WithDefaults(
    CheckpointCommitter::Options options) {
  if (options.keep == 0) {
    options.keep = 5;
  }
  return options;
}

// RFC 3339, UTC.
std::string FormatTime(int64_t wall_ns) {
  const std::time_t seconds = wall_ns / 1'000'000'000;
  std::tm utc = {};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

absl::Status IgnoreMissing(const absl::Status& status) {
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace

CheckpointCommitter::CheckpointCommitter(Options options)
    : options_(WithDefaults(std::move(options))) {}

std::string CheckpointCommitter::Path(const std::string& name) const {
  return JoinPath(options_.directory, name);
}

absl::Status CheckpointCommitter::RemoveCheckpoint(const std::string& name) {
  Files* files = options_.files;
  const std::string path = Path(name);
  const std::string manifest = JoinPath(path, kManifestName);
  WEIR_ASSIGN_OR_RETURN(const bool committed, files->Exists(manifest));
  if (committed) {
    WEIR_RETURN_IF_ERROR(files->Remove(manifest));
    WEIR_RETURN_IF_ERROR(files->SyncDirectory(path));
    Failpoint("chief.gc");
  }
  const absl::StatusOr<std::vector<std::string>> names = files->List(path);
  if (absl::IsNotFound(names.status())) {
    return absl::OkStatus();
  }
  WEIR_RETURN_IF_ERROR(names.status());
  for (const std::string& file : *names) {
    WEIR_RETURN_IF_ERROR(IgnoreMissing(files->Remove(JoinPath(path, file))));
  }
  return IgnoreMissing(files->Remove(path));
}

absl::Status CheckpointCommitter::SweepEntry(const std::string& name) {
  if (IsTemporaryPath(name)) {
    return IgnoreMissing(options_.files->Remove(Path(name)));
  }
  if (!absl::StartsWith(name, "ckpt-")) {
    return absl::OkStatus();
  }
  WEIR_ASSIGN_OR_RETURN(const bool committed, options_.files->Exists(JoinPath(
                                                  Path(name), kManifestName)));
  return committed ? absl::OkStatus() : RemoveCheckpoint(name);
}

absl::Status CheckpointCommitter::Sweep(std::string* note) {
  WEIR_RETURN_IF_ERROR(options_.files->MakeDirectories(options_.directory));
  WEIR_ASSIGN_OR_RETURN(const auto names,
                        options_.files->List(options_.directory));
  for (const std::string& name : names) {
    if (const absl::Status status = SweepEntry(name); !status.ok()) {
      *note = absl::StrCat("left for later: ", status.message());
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointCommitter::SetAside(const std::string& name) {
  const std::string aside = absl::StrCat(kAsidePrefix, name);
  WEIR_RETURN_IF_ERROR(RemoveCheckpoint(aside));
  WEIR_RETURN_IF_ERROR(options_.files->Rename(Path(name), Path(aside)));
  return options_.files->SyncDirectory(options_.directory);
}

absl::StatusOr<std::optional<FoundCheckpoint>> CheckpointCommitter::Find(
    bool verify, bool allow_older, std::string* note) {
  WEIR_ASSIGN_OR_RETURN(const auto list,
                        ListCheckpoints(options_.files, options_.directory));
  std::vector<std::string> damaged;
  std::string first_damage;
  for (auto it = list.rbegin(); it != list.rend(); ++it) {
    absl::Status status;
    FoundCheckpoint found;
    found.directory = it->path;
    if (verify) {
      auto reader = CheckpointReader::Open(options_.files, it->path);
      status = reader.ok() ? (*reader)->Verify() : reader.status();
      if (status.ok()) {
        status = VerifyTables(options_.files, it->path, (*reader)->manifest());
      }
      if (status.ok()) {
        found.manifest = (*reader)->manifest();
      }
    } else {
      auto manifest = ReadManifest(options_.files, it->path);
      status = manifest.status();
      if (status.ok()) {
        found.manifest = *std::move(manifest);
      }
    }
    if (status.ok()) {
      for (const std::string& name : damaged) {
        WEIR_RETURN_IF_ERROR(SetAside(name));
      }
      if (!damaged.empty()) {
        *note = absl::StrCat(first_damage, "; going back to ", it->name,
                             ", which loses ", list.back().step - it->step,
                             " steps; the damaged one is kept as ",
                             kAsidePrefix, damaged.front());
      }
      return std::optional<FoundCheckpoint>(std::move(found));
    }
    if (status.code() != absl::StatusCode::kDataLoss) {
      return status;
    }
    if (!allow_older) {
      return Annotate(
          absl::DataLossError(absl::StrCat(
              status.message(), "; --allow_older takes the checkpoint before")),
          absl::StrCat(it->name, " is damaged"));
    }
    if (damaged.empty()) {
      first_damage = absl::StrCat(it->name, " is damaged: ", status.message());
    }
    damaged.push_back(it->name);
  }
  if (!damaged.empty()) {
    return absl::DataLossError(
        absl::StrCat(first_damage, "; no older checkpoint is whole"));
  }
  return std::optional<FoundCheckpoint>();
}

absl::Status CheckpointCommitter::Prepare(const std::string& name) {
  WEIR_RETURN_IF_ERROR(RemoveCheckpoint(name));
  return options_.files->MakeDirectories(Path(name));
}

absl::Status CheckpointCommitter::Discard(const std::string& name) {
  return RemoveCheckpoint(name);
}

absl::Status CheckpointCommitter::CheckFiles(const Manifest& manifest) {
  for (const ShardFile& file : manifest.file()) {
    const std::string path = JoinPath(Path(manifest.name()), file.name());
    auto reader = options_.files->Open(path);
    if (absl::IsNotFound(reader.status())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "shard ", file.shard(), " was written on host '", file.host(),
          "' to '", path,
          "', which is not there on the chief's host: give every task the same "
          "shared --workdir"));
    }
    WEIR_RETURN_IF_ERROR(reader.status());
    if (static_cast<uint64_t>((*reader)->size()) != file.bytes()) {
      return absl::DataLossError(absl::StrCat(
          "'", path, "' of host '", file.host(), "' has ", (*reader)->size(),
          " bytes here, ", file.bytes(), " there"));
    }
    if (file.has_tables()) {
      WEIR_RETURN_IF_ERROR(
          TableFileReader::Open(options_.files, Path(manifest.name()), manifest,
                                static_cast<int>(file.shard()))
              .status());
      const std::string& base = file.tables().base();
      if (!base.empty() &&
          !ReadManifest(options_.files, Path(base)).status().ok()) {
        return absl::DataLossError(absl::StrCat(manifest.name(), " extends '",
                                                base, "', which is gone"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointCommitter::Commit(Manifest manifest, std::string* note) {
  WEIR_RETURN_IF_ERROR(CheckFiles(manifest));
  manifest.set_written_at(FormatTime(options_.clock->WallNowNs()));
  // The directory's own entry must be durable before what it holds counts.
  WEIR_RETURN_IF_ERROR(options_.files->SyncDirectory(options_.directory));
  Failpoint("chief.before_manifest");
  WEIR_RETURN_IF_ERROR(
      WriteManifest(options_.files, Path(manifest.name()), manifest));
  Failpoint("chief.after_manifest");
  absl::Status status = WriteList();
  if (status.ok()) {
    status = DeleteOld();
  }
  if (status.ok()) {
    status = WriteList();
  }
  if (!status.ok()) {
    *note = absl::StrCat(manifest.name(),
                         " is committed, but tidying up: ", status.message());
  }
  return absl::OkStatus();
}

absl::Status CheckpointCommitter::DeleteOld() {
  WEIR_ASSIGN_OR_RETURN(const auto list,
                        ListCheckpoints(options_.files, options_.directory));
  if (list.size() <= options_.keep) {
    return absl::OkStatus();
  }
  const size_t first_kept = list.size() - options_.keep;
  std::set<std::string> bases;  // of those that are kept
  for (size_t i = first_kept; i < list.size(); ++i) {
    const absl::StatusOr<Manifest> manifest =
        ReadManifest(options_.files, list[i].path);
    if (!manifest.ok()) {
      continue;  // damaged: of no use with its base either
    }
    for (const ShardFile& file : manifest->file()) {
      bases.insert(file.tables().base());
    }
  }
  for (size_t i = 0; i < first_kept; ++i) {
    if (bases.count(list[i].name) == 0) {
      WEIR_RETURN_IF_ERROR(RemoveCheckpoint(list[i].name));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointCommitter::WriteList() {
  WEIR_ASSIGN_OR_RETURN(const auto list,
                        ListCheckpoints(options_.files, options_.directory));
  if (list.empty()) {
    return absl::OkStatus();
  }
  std::string text =
      absl::StrCat("model_checkpoint_path: \"", list.back().name, "\"\n");
  for (const CheckpointInfo& info : list) {
    absl::StrAppend(&text, "all_model_checkpoint_paths: \"", info.name, "\"\n");
  }
  return options_.files->WriteAtomically(Path(kListName), text);
}

}  // namespace weir
