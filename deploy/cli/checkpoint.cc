// weir checkpoint list|inspect|verify|export.
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/files.h"
#include "common/status.h"
#include "deploy/cli/command.h"
#include "proto/checkpoint_io.h"
#include "proto/model_export.h"

namespace weir {
namespace {

int64_t TotalBytes(const Manifest& manifest) {
  int64_t bytes = 0;
  for (const ShardFile& file : manifest.file()) {
    bytes += static_cast<int64_t>(file.bytes());
  }
  return bytes;
}

// `dir` is a run's directory, or its checkpoints folder.
absl::StatusOr<int> List(const std::string& dir) {
  Files* files = Files::Real();
  const std::string inner = JoinPath(dir, "checkpoints");
  WEIR_ASSIGN_OR_RETURN(const bool is_run, files->Exists(inner));
  WEIR_ASSIGN_OR_RETURN(const auto checkpoints,
                        ListCheckpoints(files, is_run ? inner : dir));
  if (checkpoints.empty()) {
    return absl::NotFoundError(absl::StrCat(dir, " holds no checkpoint"));
  }
  for (const CheckpointInfo& checkpoint : checkpoints) {
    WEIR_ASSIGN_OR_RETURN(const Manifest manifest,
                          ReadManifest(files, checkpoint.path));
    std::printf("%s\n",
                absl::StrFormat("%-14s step %-10d %2d shards %12d "
                                "bytes  %s  %s",
                                manifest.name(), manifest.step(),
                                manifest.file_size(), TotalBytes(manifest),
                                manifest.written_at(), checkpoint.path)
                    .c_str());
  }
  return 0;
}

absl::StatusOr<int> Inspect(const std::string& dir) {
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
  }
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
  return 0;
}

absl::StatusOr<int> Verify(const std::string& dir) {
  WEIR_ASSIGN_OR_RETURN(const auto reader,
                        CheckpointReader::Open(Files::Real(), dir));
  WEIR_RETURN_IF_ERROR(reader->Verify());
  std::printf("%s is whole: %d files, %s bytes\n", dir.c_str(),
              reader->manifest().file_size(),
              absl::StrCat(TotalBytes(reader->manifest())).c_str());
  return 0;
}

absl::StatusOr<int> Export(const std::string& dir, const std::string& out) {
  WEIR_RETURN_IF_ERROR(ExportModel(Files::Real(), dir, out));
  WEIR_ASSIGN_OR_RETURN(const std::string sha,
                        ExportedSha256(Files::Real(), dir));
  std::printf("%s written; model sha256 %s\n", out.c_str(), sha.c_str());
  return 0;
}

}  // namespace

void AddCheckpointCommand(CLI::App* app, Command* command) {
  struct Options {
    std::string dir;
    std::string out = "model.safetensors";
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
      "export", "write the model as one safetensors file");
  sub->add_option("dir", options->dir, "directory")->required();
  sub->add_option("--out", options->out, "file to write");
  sub->callback([options, command] {
    *command = [options] { return Export(options->dir, options->out); };
  });
}

}  // namespace weir
