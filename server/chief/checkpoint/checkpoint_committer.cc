#include "server/chief/checkpoint/checkpoint_committer.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/failpoint.h"
#include "common/base/identity.h"
#include "common/base/plant.h"
#include "common/base/status.h"
#include "proto/checkpoint/table_file.h"

namespace weir {
namespace {

constexpr char kListName[] = "checkpoint";
constexpr char kNumbersName[] = "numbers";
// Another chief may take a name between our look and our turn, rarely.
constexpr int kNamesTried = 10;

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

// Reads every file of a checkpoint and compares it with its checksum.
absl::StatusOr<Manifest> ReadWhole(ObjectStore* files,
                                   const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(const auto reader, CheckpointReader::Open(files, path));
  WEIR_RETURN_IF_ERROR(reader->Verify());
  WEIR_RETURN_IF_ERROR(VerifyTables(files, path, reader->manifest()));
  return reader->manifest();
}

absl::Status IgnoreMissing(const absl::Status& status) {
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace

std::string NextCheckpointName(const std::vector<std::string>& names,
                               uint64_t step) {
  // I3: attempts that failed count, too, and so do directories without a
  // manifest: a late writer may still know their names.
  uint64_t last = 0;
  for (const std::string& name : names) {
    const auto id = ParseCheckpointName(name);
    if (id.has_value() && id->step == step &&
        !Planted("checkpoint.rewrites_in_place")) {
      last = std::max(last, id->attempt);
    }
  }
  return CheckpointName(step, last + 1);
}

CheckpointCommitter::CheckpointCommitter(Options options)
    : options_(WithDefaults(std::move(options))), chief_(RandomHex(16)) {}

std::string CheckpointCommitter::Path(const std::string& name) const {
  return JoinPath(options_.directory, name);
}

absl::StatusOr<std::vector<CheckpointCommitter::Entry>>
CheckpointCommitter::ReadEntries() {
  WEIR_ASSIGN_OR_RETURN(const auto names,
                        options_.files->List(options_.directory));
  std::vector<Entry> entries;
  for (const std::string& name : names) {
    if (const auto id = ParseCheckpointName(name); id.has_value()) {
      WEIR_ASSIGN_OR_RETURN(
          const bool committed,
          options_.files->Exists(JoinPath(Path(name), kManifestName)));
      entries.push_back({*id, name, committed});
    }
  }
  return entries;
}

absl::Status CheckpointCommitter::RemoveFiles(const std::string& name) {
  const std::string path = Path(name);
  WEIR_RETURN_IF_ERROR(options_.files->DropUnfinished(path));
  const auto names = options_.files->List(path);
  WEIR_RETURN_IF_ERROR(IgnoreMissing(names.status()));
  for (const std::string& file : names.value_or(std::vector<std::string>())) {
    WEIR_RETURN_IF_ERROR(
        IgnoreMissing(options_.files->Remove(JoinPath(path, file))));
  }
  return absl::OkStatus();
}

absl::Status CheckpointCommitter::RemoveCheckpoint(const std::string& name) {
  ObjectStore* files = options_.files;
  const std::string path = Path(name);
  const std::string manifest = JoinPath(path, kManifestName);
  WEIR_ASSIGN_OR_RETURN(const bool committed, files->Exists(manifest));
  if (committed) {
    // I2: without its manifest it is no checkpoint any more, also after a crash
    // right here; with it and without a file it would be a damaged one.
    WEIR_RETURN_IF_ERROR(files->Remove(manifest));
    WEIR_RETURN_IF_ERROR(files->SyncDirectory(path));
    Failpoint("chief.gc");
  }
  WEIR_RETURN_IF_ERROR(RemoveFiles(name));
  return IgnoreMissing(files->Remove(path));
}

absl::Status CheckpointCommitter::ClearTraces(bool all) {
  WEIR_ASSIGN_OR_RETURN(const std::vector<Entry> entries, ReadEntries());
  // Training begins at a checkpoint, so it comes to no step before the oldest
  // committed one again.
  std::optional<CheckpointId> oldest;
  std::map<uint64_t, uint64_t> last;  // attempt of each step
  for (const Entry& entry : entries) {
    uint64_t& attempt = last[entry.id.step];
    attempt = std::max(attempt, entry.id.attempt);
    if (entry.committed && (!oldest.has_value() || entry.id < *oldest)) {
      oldest = entry.id;
    }
  }
  absl::Status result;
  for (const Entry& entry : entries) {
    const bool followed = entry.id.attempt < last[entry.id.step] ||
                          (oldest.has_value() && entry.id < *oldest);
    if (entry.committed || !(followed || all)) {
      continue;
    }
    // I3: the directory itself goes only when its name cannot be given again.
    absl::Status status = RemoveFiles(entry.name);
    if (status.ok() && followed) {
      status = IgnoreMissing(options_.files->Remove(Path(entry.name)));
    }
    result.Update(status);
  }
  return result;
}

absl::Status CheckpointCommitter::MakeDirectory() {
  ObjectStore* files = options_.files;
  WEIR_RETURN_IF_ERROR(files->MakeDirectories(options_.directory));
  // Whoever made one of the directories above may not have synced its name.
  std::string above = options_.directory;
  while (!numbered() && above != DirectoryOf(above)) {
    above = DirectoryOf(above);
    const absl::Status synced = files->SyncDirectory(above);
    // A directory that is not ours to open was there before the job.
    if (!absl::IsInvalidArgument(synced)) {
      WEIR_RETURN_IF_ERROR(synced);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointCommitter::Sweep(std::string* note) {
  ObjectStore* files = options_.files;
  WEIR_ASSIGN_OR_RETURN(const auto names, files->List(options_.directory));
  absl::Status status;
  for (const std::string& name : names) {
    if (IsTemporaryPath(name)) {
      status.Update(IgnoreMissing(files->Remove(Path(name))));
    }
  }
  status.Update(ClearTraces(/*all=*/true));
  if (!status.ok()) {
    *note = absl::StrCat("left for later: ", status.message());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<FoundCheckpoint>> CheckpointCommitter::Find(
    bool verify, bool allow_older, std::string* note) {
  WEIR_ASSIGN_OR_RETURN(auto list,
                        ListCheckpoints(options_.files, options_.directory));
  if (Planted("resume.sorts_by_text")) {
    std::sort(list.begin(), list.end(),
              [](const CheckpointInfo& a, const CheckpointInfo& b) {
                return a.name < b.name;
              });
  }
  std::vector<std::pair<std::string, std::string>> damaged;  // name and why
  for (auto it = list.rbegin(); it != list.rend(); ++it) {
    absl::StatusOr<Manifest> manifest =
        verify ? ReadWhole(options_.files, it->path)
               : ReadManifest(options_.files, it->path);
    const absl::Status& status = manifest.status();
    if (status.ok()) {
      // Set aside only now that there is an older one to go on from.
      for (const auto& [name, why] : damaged) {
        WEIR_RETURN_IF_ERROR(options_.files->WriteAtomically(
            JoinPath(Path(name), kDamagedName), why + "\n"));
      }
      if (!damaged.empty()) {
        *note = absl::StrCat(
            damaged.front().second, "; going back to ", it->name,
            ", which loses ", list.back().step - it->step,
            " steps; the damaged one stays, marked by the file '",
            JoinPath(Path(damaged.front().first), kDamagedName), "'");
      }
      // Its chief may have been killed before the name was durable.
      WEIR_RETURN_IF_ERROR(options_.files->SyncDirectory(it->path));
      return FoundCheckpoint{it->path, *std::move(manifest)};
    }
    // A file that cannot be read now is no damaged one: to go back for it would
    // throw work away.
    if (status.code() != absl::StatusCode::kDataLoss) {
      return status;
    }
    if (!allow_older) {
      return Annotate(
          absl::DataLossError(absl::StrCat(
              status.message(), "; --allow_older takes the checkpoint before")),
          absl::StrCat(it->name, " is damaged"));
    }
    damaged.emplace_back(
        it->name, absl::StrCat(it->name, " is damaged: ", status.message()));
  }
  if (!damaged.empty()) {
    return absl::DataLossError(
        absl::StrCat(damaged.front().second, "; no older checkpoint is whole"));
  }
  return std::optional<FoundCheckpoint>();
}

absl::StatusOr<bool> CheckpointCommitter::HasCommitted() {
  return options_.files->Exists(Path(kListName));
}

absl::StatusOr<std::string> CheckpointCommitter::Prepare(uint64_t step) {
  ObjectStore* files = options_.files;
  WEIR_RETURN_IF_ERROR(files->MakeDirectories(options_.directory));
  if (Planted("checkpoint.rewrites_in_place")) {
    WEIR_RETURN_IF_ERROR(RemoveCheckpoint(CheckpointName(step)));
  }
  for (int i = 0; i < kNamesTried; ++i) {
    WEIR_ASSIGN_OR_RETURN(const auto names, files->List(options_.directory));
    // MakeDirectory fails if the name is taken, so two chiefs never share one.
    const std::string name = NextCheckpointName(names, step);
    const absl::Status made = files->MakeDirectory(Path(name));
    if (made.ok()) {
      return name;
    }
    if (!absl::IsAlreadyExists(made)) {
      return made;
    }
  }
  return absl::AbortedError(
      absl::StrCat("another chief makes directories for step ", step, " in '",
                   options_.directory, "': end one of the two"));
}

absl::Status CheckpointCommitter::Discard(const std::string& name) {
  WEIR_ASSIGN_OR_RETURN(const bool committed, options_.files->Exists(JoinPath(
                                                  Path(name), kManifestName)));
  if (committed) {  // I1
    return absl::InternalError(
        absl::StrCat(name, " is committed and is not thrown away"));
  }
  // The directory stays: its name is not given again (I3).
  return RemoveFiles(name);
}

absl::Status CheckpointCommitter::MarkFinished(const std::string& name) {
  return options_.files->WriteAtomically(JoinPath(Path(name), kFinishedName),
                                         "every program had finished\n");
}

absl::StatusOr<bool> CheckpointCommitter::IsMarkedFinished(
    const std::string& name) {
  return options_.files->Exists(JoinPath(Path(name), kFinishedName));
}

absl::Status CheckpointCommitter::CheckFiles(const Manifest& manifest) {
  for (const ShardFile& file : manifest.file()) {
    const std::string path = JoinPath(Path(manifest.name()), file.name());
    // The ps wrote it, maybe on another host: the chief must see the same file
    // system, or nobody could restore from what it commits.
    auto reader = options_.files->Open(path);
    if (absl::IsNotFound(reader.status())) {
      return Invalid(
          "shard ", file.shard(), " was written on host '", file.host(),
          "' to '", path,
          "', which is not there on the chief's host: give every task the same "
          "shared --workdir");
    }
    WEIR_RETURN_IF_ERROR(reader.status());
    if (static_cast<uint64_t>((*reader)->size()) != file.bytes()) {
      return absl::DataLossError(absl::StrCat(
          "'", path, "' of host '", file.host(), "' has ", (*reader)->size(),
          " bytes here, ", file.bytes(), " there"));
    }
    if (file.has_tables()) {
      // As of a shard file: whoever restores compares the checksum. Reading
      // all rows of all shards would take longer than writing them did.
      WEIR_RETURN_IF_ERROR(TableFileReader::CheckWithoutRows(
          options_.files, Path(manifest.name()), manifest,
          static_cast<int>(file.shard())));
      // An increment without its base is no whole checkpoint (I1).
      const std::string& base = file.tables().base();
      if (base.empty()) {
        continue;
      }
      const absl::Status read =
          ReadManifest(options_.files, Path(base)).status();
      if (absl::IsNotFound(read) || absl::IsDataLoss(read)) {
        return absl::DataLossError(absl::StrCat(manifest.name(), " extends '",
                                                base, "', which is gone"));
      }
      WEIR_RETURN_IF_ERROR(read);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointCommitter::Commit(Manifest manifest, std::string* note) {
  WEIR_RETURN_IF_ERROR(CheckFiles(manifest));
  manifest.set_format(kManifestFormat);
  manifest.set_written_at(FormatTime(options_.clock->WallNowNs()));
  // The directory's own entry must be durable before what it holds counts.
  WEIR_RETURN_IF_ERROR(options_.files->SyncDirectory(options_.directory));
  WEIR_RETURN_IF_ERROR(TakeNumber(manifest.name()));  // I4
  Failpoint("chief.before_manifest");
  // I1: it counts from here on, and everything that it names is durable.
  WEIR_RETURN_IF_ERROR(
      WriteManifest(options_.files, Path(manifest.name()), manifest));
  Failpoint("chief.after_manifest");
  const absl::Status status = TidyUp();
  if (!status.ok()) {
    *note = absl::StrCat(manifest.name(),
                         " is committed, but tidying up: ", status.message());
  }
  return absl::OkStatus();
}

absl::Status CheckpointCommitter::ReadNumber() {
  if (!numbered()) {
    return absl::OkStatus();
  }
  const std::string directory = Path(kNumbersName);
  const auto names = options_.files->List(directory);
  if (absl::IsNotFound(names.status())) {
    return absl::OkStatus();
  }
  WEIR_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    uint64_t number = 0;
    if (!absl::SimpleAtoi(name, &number)) {
      return Invalid("'", JoinPath(directory, name), "' is no number");
    }
    number_ = std::max(number_, number);
  }
  return absl::OkStatus();
}

absl::Status CheckpointCommitter::TakeNumber(const std::string& name) {
  while (numbered()) {
    const std::string path =
        JoinPath(Path(kNumbersName), absl::StrFormat("%08d", number_ + 1));
    const absl::Status status =
        options_.files->WriteNew(path, absl::StrCat(chief_, " ", name, "\n"));
    if (!status.ok() && !absl::IsAlreadyExists(status)) {
      return status;
    }
    if (status.ok()) {
      ++number_;
      break;
    }
    // Ours, if the answer for an earlier checkpoint never came.
    WEIR_ASSIGN_OR_RETURN(const std::string taken,
                          options_.files->ReadAll(path));
    if (!absl::StartsWith(taken, chief_)) {
      return absl::PermissionDeniedError(
          absl::StrCat("another chief has committed a checkpoint in ",
                       options_.directory, " and goes on with the job"));
    }
    ++number_;
  }
  return absl::OkStatus();
}

absl::Status CheckpointCommitter::TidyUp() {
  // The list names the new checkpoint even if a deletion fails. It is written
  // again without those that were deleted.
  WEIR_RETURN_IF_ERROR(WriteList());
  WEIR_RETURN_IF_ERROR(DeleteOld());
  WEIR_RETURN_IF_ERROR(ClearTraces(/*all=*/false));
  return WriteList();
}

absl::Status CheckpointCommitter::DeleteOld() {
  WEIR_ASSIGN_OR_RETURN(const auto list,
                        ListCheckpoints(options_.files, options_.directory));
  if (list.size() <= options_.keep) {
    return absl::OkStatus();
  }
  const size_t first_kept = list.size() - options_.keep;
  // I1: what a kept increment extends is kept, however old it is.
  std::set<std::string> bases;
  for (size_t i = first_kept; i < list.size(); ++i) {
    const absl::StatusOr<Manifest> manifest =
        ReadManifest(options_.files, list[i].path);
    if (absl::IsDataLoss(manifest.status())) {
      continue;  // damaged: its base would not make it whole
    }
    // What cannot be read now may extend any of the others.
    WEIR_RETURN_IF_ERROR(manifest.status());
    for (const ShardFile& file : manifest->file()) {
      bases.insert(file.tables().base());
    }
  }
  for (size_t i = 0; i < first_kept; ++i) {
    if (bases.count(list[i].name) == 0 || Planted("checkpoint.drops_bases")) {
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
