// weir checkpoint list|inspect|verify|export.
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "common/objects/any_store.h"
#include "deploy/cli/command.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/checkpoint/model_export.h"
#include "proto/checkpoint/table_file.h"

namespace weir {
namespace {

struct Options {
  // A checkpoint; to list them, a run's directory or its checkpoints folder.
  std::string dir;
  std::string out = "model.safetensors";
  std::string numpy;  // a directory in place of the file `out`
};

// Sums over all files of a checkpoint.
struct Totals {
  int files = 0;
  uint64_t bytes = 0;        // of all files, those of tables included
  uint64_t table_bytes = 0;  // of the files of tables
  uint64_t rows = 0;         // in these files, without those of the base
  std::string base;          // "" when these files hold all rows
};

Totals TotalsOf(const Manifest& manifest) {
  Totals totals;
  for (const ShardFile& file : manifest.file()) {
    ++totals.files;
    if (file.has_tables()) {
      ++totals.files;  // rows are in a file of their own
    }
    totals.bytes += file.bytes() + file.tables().bytes();
    totals.table_bytes += file.tables().bytes();
    totals.rows += file.tables().rows();
    if (!file.tables().base().empty()) {
      totals.base = file.tables().base();
    }
  }
  return totals;
}

std::string Extends(const std::string& base) {
  if (base.empty()) {
    return "";
  }
  return absl::StrCat(", touched since ", base);
}

absl::StatusOr<int> List(const Options& options) {
  ObjectStore* files = AnyStore();
  const std::string& dir = options.dir;
  std::string folder = JoinPath(dir, "checkpoints");
  WEIR_ASSIGN_OR_RETURN(const bool is_run, files->Exists(folder));
  if (!is_run) {
    folder = dir;
  }
  std::vector<CheckpointInfo> aside;
  WEIR_ASSIGN_OR_RETURN(const auto checkpoints,
                        ListCheckpoints(files, folder, &aside));
  if (checkpoints.empty() && aside.empty()) {
    return absl::NotFoundError(absl::StrCat(dir, " holds no checkpoint"));
  }
  for (const CheckpointInfo& checkpoint : checkpoints) {
    WEIR_ASSIGN_OR_RETURN(const Manifest manifest,
                          ReadManifest(files, checkpoint.path));
    const Totals totals = TotalsOf(manifest);
    absl::PrintF("%-14s step %-10d %2d shards %12d bytes  %s  %s\n",
                 Printable(manifest.name()), manifest.step(),
                 manifest.file_size(), totals.bytes,
                 Printable(manifest.written_at()), checkpoint.path);
    if (manifest.declaration().table_size() > 0) {
      absl::PrintF("%14s %d tables: %d rows, %d bytes%s\n", "",
                   manifest.declaration().table_size(), totals.rows,
                   totals.table_bytes, Extends(totals.base));
    }
  }
  // A start set these aside: no run goes on from them, and a user who counts
  // checkpoints must see why one is missing.
  for (const CheckpointInfo& damaged : aside) {
    absl::PrintF("%-14s step %-10d damaged, set aside; %s/%s says why\n",
                 damaged.name, damaged.step, damaged.path, kDamagedName);
  }
  return 0;
}

absl::StatusOr<int> Inspect(const Options& options) {
  WEIR_ASSIGN_OR_RETURN(const std::string dir,
                        ResolveCheckpoint(AnyStore(), options.dir));
  WEIR_ASSIGN_OR_RETURN(const auto reader,
                        CheckpointReader::Open(AnyStore(), dir));
  const Manifest& manifest = reader->manifest();
  absl::PrintF(
      "%s of job %s, step %d, written %s\n"
      "history %016x, %d shards, blocks of %d elements\n",
      Printable(manifest.name()), Printable(manifest.declaration().job()),
      manifest.step(), Printable(manifest.written_at()),
      manifest.declaration().history(), manifest.declaration().shard_count(),
      manifest.declaration().block_elements());
  for (const ShardFile& file : manifest.file()) {
    absl::PrintF("  %s  %d bytes  crc32c %08x\n", Printable(file.name()),
                 file.bytes(), file.crc32c());
    if (file.has_tables()) {
      const TableFile& tables = file.tables();
      absl::PrintF("  %s  %d bytes  crc32c %08x  %d rows%s\n",
                   Printable(tables.name()), tables.bytes(), tables.crc32c(),
                   tables.rows(), Extends(tables.base()));
    }
  }
  // What was applied. A program of the SDK has a count for each slot; a spec
  // job has ranges of its one list of contributions.
  if (manifest.pushes_size() > 0) {
    absl::PrintF("pushes by worker: %s\n",
                 absl::StrJoin(manifest.pushes(), ", "));
  }
  std::string ranges;
  for (int i = 0; i + 1 < manifest.applied_range_size(); i += 2) {
    absl::StrAppend(&ranges, " [", manifest.applied_range(i), ", ",
                    manifest.applied_range(i + 1), ")");
  }
  for (const Deal& deal : manifest.deal()) {
    absl::StrAppend(
        &ranges, " and ",
        std::accumulate(deal.next().begin(), deal.next().end(), uint64_t{0}),
        " of the others");
  }
  if (manifest.pushes_size() == 0) {
    absl::PrintF("contributions applied:%s of %d\n", ranges,
                 manifest.contribution_count());
  }
  for (const VariableSpec& variable : reader->layout().variables()) {
    absl::PrintF("  %-32s [%s] %s%s\n", Printable(variable.name),
                 absl::StrJoin(variable.shape, ", "),
                 Printable(variable.export_dtype),
                 variable.kind == VariableKind::kBuffer ? " buffer" : "");
  }
  for (const EmbeddingTable& table : manifest.declaration().table()) {
    absl::PrintF("  %-32s [rows, %d] table\n", Printable(table.name()),
                 table.dim());
  }
  return 0;
}

absl::StatusOr<int> Verify(const Options& options) {
  WEIR_ASSIGN_OR_RETURN(const std::string dir,
                        ResolveCheckpoint(AnyStore(), options.dir));
  WEIR_ASSIGN_OR_RETURN(const auto reader,
                        CheckpointReader::Open(AnyStore(), dir));
  WEIR_RETURN_IF_ERROR(reader->Verify());
  // This also reads the files of the base: without them an increment is not
  // whole.
  WEIR_RETURN_IF_ERROR(VerifyTables(AnyStore(), dir, reader->manifest()));
  const Totals totals = TotalsOf(reader->manifest());
  std::string base;
  if (!totals.base.empty()) {
    base = absl::StrCat(", and so are those of ", totals.base);
  }
  absl::PrintF("%s is whole: %d files, %d bytes%s\n", dir, totals.files,
               totals.bytes, base);
  return 0;
}

absl::StatusOr<int> Export(const Options& options) {
  WEIR_ASSIGN_OR_RETURN(const std::string dir,
                        ResolveCheckpoint(AnyStore(), options.dir));
  std::string target = options.out;
  if (options.numpy.empty()) {
    WEIR_RETURN_IF_ERROR(ExportModel(AnyStore(), dir, target));
  } else {
    target = options.numpy;
    WEIR_RETURN_IF_ERROR(ExportNumpy(AnyStore(), dir, target));
  }
  // The sum is over values and not over a file, so it is the same for both
  // formats, and equal to that of a run's summary.
  WEIR_ASSIGN_OR_RETURN(const std::string sha, ExportedSha256(AnyStore(), dir));
  absl::PrintF("%s written; model sha256 %s\n", target, sha);
  return 0;
}

}  // namespace

void AddCheckpointCommand(CLI::App* app, Command* command) {
  auto options = std::make_shared<Options>();
  CLI::App* checkpoint =
      AddCommandGroup(app, "checkpoint", "look at checkpoints");
  const auto add = [&](const char* name, const char* about,
                       absl::StatusOr<int> (*run)(const Options&)) {
    CLI::App* sub =
        AddSubcommand(checkpoint, name, about, options, run, command);
    AddOption(sub, "dir", &options->dir, "directory").Required();
    return sub;
  };
  add("list", "the checkpoints of a run", List);
  add("inspect", "what one holds", Inspect);
  add("verify", "read every file and compare checksums", Verify);
  CLI::App* sub = add(
      "export", "write the model as one safetensors file, or NumPy's", Export);
  const Flag out = AddOption(sub, "--out", &options->out, "file to write");
  AddOption(sub, "--numpy", &options->numpy,
            "directory to write .npy files into, one an array")
      .Excludes(out);
}

}  // namespace weir
