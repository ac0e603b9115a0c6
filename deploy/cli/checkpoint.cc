// weir checkpoint list|inspect|verify|export.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "deploy/cli/command.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/checkpoint/model_export.h"
#include "proto/checkpoint/table_file.h"

namespace weir {
namespace {

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

// `dir` is a run's directory, or its checkpoints folder.
absl::StatusOr<int> List(const std::string& dir) {
  Files* files = Files::Real();
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
    std::printf("%s\n", absl::StrFormat("%-14s step %-10d %2d shards %12d "
                                        "bytes  %s  %s",
                                        manifest.name(), manifest.step(),
                                        manifest.file_size(), totals.bytes,
                                        manifest.written_at(), checkpoint.path)
                            .c_str());
    if (manifest.declaration().table_size() > 0) {
      std::printf("%s\n", absl::StrFormat(
                              "%14s %d tables: %d rows, %d bytes%s", "",
                              manifest.declaration().table_size(), totals.rows,
                              totals.table_bytes, Extends(totals.base))
                              .c_str());
    }
  }
  // A start set these aside: no run goes on from them, and a user who counts
  // checkpoints must see why one is missing.
  for (const CheckpointInfo& damaged : aside) {
    std::printf("%s\n", absl::StrFormat("%-14s step %-10d damaged, set aside; "
                                        "%s/%s says why",
                                        damaged.name, damaged.step,
                                        damaged.path, kDamagedName)
                            .c_str());
  }
  return 0;
}

absl::StatusOr<int> Inspect(const std::string& named) {
  WEIR_ASSIGN_OR_RETURN(const std::string dir,
                        ResolveCheckpoint(Files::Real(), named));
  WEIR_ASSIGN_OR_RETURN(const auto reader,
                        CheckpointReader::Open(Files::Real(), dir));
  const Manifest& manifest = reader->manifest();
  std::printf("%s\n",
              absl::StrFormat("%s of job %s, step %d, written %s\n"
                              "history %016x, %d shards, blocks of %d elements",
                              manifest.name(), manifest.declaration().job(),
                              manifest.step(), manifest.written_at(),
                              manifest.declaration().history(),
                              manifest.declaration().shard_count(),
                              manifest.declaration().block_elements())
                  .c_str());
  for (const ShardFile& file : manifest.file()) {
    std::printf("%s\n",
                absl::StrFormat("  %s  %d bytes  crc32c %08x", file.name(),
                                file.bytes(), file.crc32c())
                    .c_str());
    if (file.has_tables()) {
      const TableFile& tables = file.tables();
      std::printf("%s\n", absl::StrFormat(
                              "  %s  %d bytes  crc32c %08x  %d rows%s",
                              tables.name(), tables.bytes(), tables.crc32c(),
                              tables.rows(), Extends(tables.base()))
                              .c_str());
    }
  }
  // What was applied. A program of the SDK has a count for each slot; a spec
  // job has ranges of its one list of contributions.
  if (manifest.pushes_size() > 0) {
    std::printf("pushes by worker: %s\n",
                absl::StrJoin(manifest.pushes(), ", ").c_str());
  }
  std::string ranges;
  for (int i = 0; i + 1 < manifest.applied_range_size(); i += 2) {
    absl::StrAppend(&ranges, " [", manifest.applied_range(i), ", ",
                    manifest.applied_range(i + 1), ")");
  }
  if (manifest.pushes_size() == 0) {
    std::printf("contributions applied:%s of %s\n", ranges.c_str(),
                absl::StrCat(manifest.contribution_count()).c_str());
  }
  for (const VariableSpec& variable : reader->layout().variables()) {
    std::printf("%s\n",
                absl::StrFormat(
                    "  %-32s [%s] %s%s", variable.name,
                    absl::StrJoin(variable.shape, ", "), variable.export_dtype,
                    variable.kind == VariableKind::kBuffer ? " buffer" : "")
                    .c_str());
  }
  for (const EmbeddingTable& table : manifest.declaration().table()) {
    std::printf("%s\n", absl::StrFormat("  %-32s [rows, %d] table",
                                        table.name(), table.dim())
                            .c_str());
  }
  return 0;
}

absl::StatusOr<int> Verify(const std::string& named) {
  WEIR_ASSIGN_OR_RETURN(const std::string dir,
                        ResolveCheckpoint(Files::Real(), named));
  WEIR_ASSIGN_OR_RETURN(const auto reader,
                        CheckpointReader::Open(Files::Real(), dir));
  WEIR_RETURN_IF_ERROR(reader->Verify());
  // This also reads the files of the base: without them an increment is not
  // whole.
  WEIR_RETURN_IF_ERROR(VerifyTables(Files::Real(), dir, reader->manifest()));
  const Totals totals = TotalsOf(reader->manifest());
  std::string base;
  if (!totals.base.empty()) {
    base = absl::StrCat(", and so are those of ", totals.base);
  }
  std::printf("%s is whole: %d files, %s bytes%s\n", dir.c_str(), totals.files,
              absl::StrCat(totals.bytes).c_str(), base.c_str());
  return 0;
}

// Writes the model to the directory `numpy` if it is given, else to the file
// `out`.
absl::StatusOr<int> Export(const std::string& named, const std::string& out,
                           const std::string& numpy) {
  WEIR_ASSIGN_OR_RETURN(const std::string dir,
                        ResolveCheckpoint(Files::Real(), named));
  std::string target = out;
  if (numpy.empty()) {
    WEIR_RETURN_IF_ERROR(ExportModel(Files::Real(), dir, out));
  } else {
    target = numpy;
    WEIR_RETURN_IF_ERROR(ExportNumpy(Files::Real(), dir, numpy));
  }
  // The sum is over values and not over a file, so it is the same for both
  // formats, and equal to that of a run's summary.
  WEIR_ASSIGN_OR_RETURN(const std::string sha,
                        ExportedSha256(Files::Real(), dir));
  std::printf("%s written; model sha256 %s\n", target.c_str(), sha.c_str());
  return 0;
}

}  // namespace

void AddCheckpointCommand(CLI::App* app, Command* command) {
  struct Options {
    std::string dir;
    std::string out = "model.safetensors";
    std::string numpy;
  };
  auto options = std::make_shared<Options>();
  CLI::App* checkpoint =
      app->add_subcommand("checkpoint", "look at checkpoints");
  checkpoint->require_subcommand(1);
  const auto add = [&](const char* name, const char* about,
                       absl::StatusOr<int> (*run)(const std::string&)) {
    CLI::App* sub = checkpoint->add_subcommand(name, about);
    sub->add_option("dir", options->dir, "directory")->required();
    sub->callback([options, command, run] {
      *command = [options, run] { return run(options->dir); };
    });
  };
  add("list", "the checkpoints of a run", List);
  add("inspect", "what one holds", Inspect);
  add("verify", "read every file and compare checksums", Verify);
  CLI::App* sub = checkpoint->add_subcommand(
      "export", "write the model as one safetensors file, or NumPy's");
  sub->add_option("dir", options->dir, "directory")->required();
  CLI::Option* const out =
      sub->add_option("--out", options->out, "file to write");
  sub->add_option("--numpy", options->numpy,
                  "directory to write .npy files into, one an array")
      ->excludes(out);
  sub->callback([options, command] {
    *command = [options] {
      return Export(options->dir, options->out, options->numpy);
    };
  });
}

}  // namespace weir
