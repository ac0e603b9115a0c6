// Reads and writes checkpoints: manifest.json and the shard files it names.
//
// Place: a ps restores from a checkpoint and the chief commits it; the
// evaluator, export and the tools read it. docs/formats.md has the bytes.
//
//   <dir>/ckpt-<step>/shard-<i>-of-<S>.safetensors   arrays `values`,
//       `state.<name>` [shard elements] in shard order (blocks end to end) and
//       `step_counts` I64, one for each segment in shard order
//   <dir>/ckpt-<step>/manifest.json                  written last: the commit
//
// No directory is renamed, and checkpoint_names.h says how a step gets several.
// What a user calls "ckpt-<step>" is the newest committed one of that step
// (ResolveCheckpoint).
//
// Terms
//   flat range  elements of the flat space (common/job/layout.h). It is the
//               same in every layout of the same variables, whatever the number
//               of shards and the size of a block.
//
// Invariants
//   I1. A directory without manifest.json is not a checkpoint. One with a file
//       `damaged` was set aside, and is used only when a user names it.
//   I2. No value is handed out before its file's size and CRC32C were checked
//       against the manifest.
// Threads: the functions are safe; a reader is compatible.
// Errors: NOT_FOUND  there is no such checkpoint.
//         DATA_LOSS  a file is damaged, missing or foreign; the message names
//                    it and says why.
#ifndef PROTO_CHECKPOINT_CHECKPOINT_FILES_H_
#define PROTO_CHECKPOINT_CHECKPOINT_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/files.h"
#include "common/io/safetensors.h"
#include "common/job/layout.h"
#include "proto/checkpoint.pb.h"
#include "proto/checkpoint/checkpoint_names.h"  // IWYU pragma: export

namespace weir {

inline constexpr uint32_t kManifestFormat = 3;
inline constexpr uint32_t kManifestFormatOldest = 2;  // that is read
inline constexpr char kManifestName[] = "manifest.json";
// A file in the work directory, beside checkpoints/. It says that the job is
// done and holds the name of the last checkpoint.
inline constexpr char kDoneName[] = "DONE";
// A file beside it that says why a run ended before it was done (WriteEnding).
inline constexpr char kEndedName[] = "ENDED";
// A file in a checkpoint that was set aside; it says why.
inline constexpr char kDamagedName[] = "damaged";
// A file in a checkpoint at which every program of an SDK job had finished.
// Whoever goes on from there cannot count on those that ended well.
inline constexpr char kFinishedName[] = "finished";
// Arrays of a shard file.
inline constexpr char kValuesArray[] = "values";
inline constexpr char kStatePrefix[] = "state.";
inline constexpr char kStepCountsArray[] = "step_counts";

// Commits the checkpoint: adds the checksum, and writes the manifest durably
// and as a whole (Files::WriteAtomically).
absl::Status WriteManifest(ObjectStore* files,
                           const std::string& checkpoint_dir,
                           const Manifest& manifest);
// Errors: NOT_FOUND         there is no manifest.
//         DATA_LOSS         its checksum is wrong, it does not parse, it
//                           contradicts itself, or is another directory's.
//         INVALID_ARGUMENT  another release of Weir wrote it in its format.
absl::StatusOr<Manifest> ReadManifest(ObjectStore* files,
                                      const std::string& checkpoint_dir);

struct CheckpointInfo {
  uint64_t step = 0;
  std::string name;  // CheckpointName
  std::string path;  // of its directory
};
// The checkpoints in `directory` that were not set aside, the newest last.
// Those that were go to `set_aside`, in the same order. A directory that does
// not exist has none.
absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(
    ObjectStore* files, const std::string& directory,
    std::vector<CheckpointInfo>* set_aside = nullptr);

// The directory that a user means by `path`: for "dir/ckpt-<step>" the newest
// committed checkpoint of that step, for any other path `path` itself.
absl::StatusOr<std::string> ResolveCheckpoint(ObjectStore* files,
                                              const std::string& path);

// Whether the job of `spec_text` came to its end in `workdir`, which means that
// DONE names a checkpoint of this job; then it is durable. UNAVAILABLE: the
// place does not answer.
absl::StatusOr<bool> FindDone(ObjectStore* files, const std::string& workdir,
                              const std::string& spec_text);
// The same for those who look again and again: false where it is not known.
inline bool JobIsDone(ObjectStore* files, const std::string& workdir,
                      const std::string& spec_text) {
  return FindDone(files, workdir, spec_text).value_or(false);
}

// Writes into ENDED why a run ended, for those who follow it by its files
// alone. With OK it removes an earlier ENDED.
absl::Status WriteEnding(ObjectStore* files, const std::string& workdir,
                         const absl::Status& why);
// The status that WriteEnding wrote as `text`. OK if `text` is anything else.
absl::Status ParseEnding(const std::string& text);

// Opens a safetensors file that the manifest lists with the size `bytes`;
// `host` wrote it.
absl::StatusOr<std::unique_ptr<SafetensorsReader>> OpenListedFile(
    ObjectStore* files, const std::string& path, const std::string& host,
    uint64_t bytes);
// Compares the checksum of the whole file with that in the manifest.
absl::Status CheckListedCrc32c(const SafetensorsReader& file, uint32_t crc32c);
// DATA_LOSS "'path': reason".
absl::Status DamagedFile(const std::string& path, absl::string_view reason);

class CheckpointReader {
 public:
  // Reads the manifest and the header of every shard file, and checks headers
  // and sizes against the manifest and the layout that it declares. `files` is
  // borrowed.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(
      ObjectStore* files, const std::string& checkpoint_dir);

  const Manifest& manifest() const { return manifest_; }
  // The layout of the job that wrote it.
  const Layout& layout() const { return layout_; }
  const std::string& directory() const { return directory_; }

  // True if every shard file has `array`.
  bool HasArray(const std::string& array) const;

  // Checks the CRC32C of every file. Cost: reads all of them.
  absl::Status Verify();
  // Checks one file. A second call is free.
  absl::Status VerifyFile(int shard);

  // Reads elements [flat_begin, flat_begin + count) of `values` or
  // `state.<name>` into `out`, from whichever files hold them, and verifies
  // each file first. REQUIRES: the range is inside the flat space.
  absl::Status ReadFlat(const std::string& array, int64_t flat_begin,
                        int64_t count, float* out);

  // How many steps the optimizer has taken on a range of a variable: the
  // largest number over the writer's segments in it. Segments differ only where
  // blocks were left out.
  absl::StatusOr<uint64_t> StepCount(int variable, int64_t variable_begin,
                                     int64_t count);

  // `values` of one variable. NOT_FOUND if there is none of that name.
  absl::StatusOr<std::vector<float>> ReadVariable(const std::string& name);

 private:
  CheckpointReader(ObjectStore* files, std::string directory, Manifest manifest,
                   Layout layout);
  absl::Status OpenShard(int shard);
  // Loads the step counts of `shard` once, per block.
  absl::Status LoadStepCounts(int shard);

  ObjectStore* const files_;
  const std::string directory_;
  const Manifest manifest_;
  const Layout layout_;
  std::vector<std::unique_ptr<SafetensorsReader>> shards_;
  std::vector<bool> verified_;
  struct BlockSteps {
    std::vector<Segment> segments;
    std::vector<uint64_t> counts;  // one per segment
  };
  std::vector<std::vector<BlockSteps>> steps_;  // [shard][block], once loaded
};

}  // namespace weir

#endif  // PROTO_CHECKPOINT_CHECKPOINT_FILES_H_
