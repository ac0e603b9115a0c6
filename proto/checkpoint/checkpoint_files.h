// Reads and writes checkpoints: manifest.json and the shard files it names.
//
// Place: a ps restores from one, the chief commits one, the evaluator, export
// and the tools read one. docs/formats.md has the bytes.
//
//   <dir>/ckpt-<step>/shard-<i>-of-<S>.safetensors   arrays `values`,
//       `state.<name>` [shard elements] in shard order (blocks end to end) and
//       `step_counts` I64, one per segment in shard order
//   <dir>/ckpt-<step>/manifest.json                  written last: the commit
//
// The second directory that is made for a step is ckpt-<step>-2, and so on: no
// name is used twice, and no directory is renamed. What a user calls
// "ckpt-<step>" is the newest committed one of that step (ResolveCheckpoint).
//
// Terms
//   flat range  elements of the flat space (common/job/layout.h); the same in
//               every layout of the same variables, whatever S and the block
//               size.
//
// Invariants
//   I1. A directory without manifest.json is not a checkpoint, and one with a
//       file `damaged` was set aside and is not taken by itself.
//   I2. No value is handed out before its file's size and CRC32C were checked
//       against the manifest.
// Threads: the functions are safe; a reader is compatible.
// Errors: NOT_FOUND  no such checkpoint.
//         DATA_LOSS  a file is damaged, missing or foreign; names it and why.
#ifndef PROTO_CHECKPOINT_CHECKPOINT_FILES_H_
#define PROTO_CHECKPOINT_CHECKPOINT_FILES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/files.h"
#include "common/io/safetensors.h"
#include "common/job/layout.h"
#include "proto/checkpoint.pb.h"

namespace weir {

inline constexpr uint32_t kManifestFormat = 2;
inline constexpr char kManifestName[] = "manifest.json";
// In the work directory, beside checkpoints/: the name of the last one.
inline constexpr char kDoneName[] = "DONE";
// Likewise, of a run that ended before it was done: why (WriteEnding).
inline constexpr char kEndedName[] = "ENDED";
// In a checkpoint that was set aside: why.
inline constexpr char kDamagedName[] = "damaged";
// Arrays of a shard file.
inline constexpr char kValuesArray[] = "values";
inline constexpr char kStatePrefix[] = "state.";
inline constexpr char kStepCountsArray[] = "step_counts";

// Ordered: of two checkpoints of one step the later attempt is the newer.
struct CheckpointId {
  uint64_t step = 0;
  uint64_t attempt = 1;
  bool operator<(const CheckpointId& other) const {
    return step != other.step ? step < other.step : attempt < other.attempt;
  }
};
// "ckpt-<step>" of the first attempt, "ckpt-<step>-<attempt>" of those after.
std::string CheckpointName(uint64_t step, uint64_t attempt = 1);
// What such a name says; none of any other name.
std::optional<CheckpointId> ParseCheckpointName(const std::string& name);
// "shard-<shard>-of-<shard_count>.safetensors"
std::string ShardFileName(int shard, int shard_count);

// Commits: temporary file, fsync, rename, fsync of the directory. Adds the
// checksum.
absl::Status WriteManifest(Files* files, const std::string& checkpoint_dir,
                           const Manifest& manifest);
// NOT_FOUND without one; DATA_LOSS when its checksum is wrong, it does not
// parse, contradicts itself or is another directory's.
absl::StatusOr<Manifest> ReadManifest(Files* files,
                                      const std::string& checkpoint_dir);

struct CheckpointInfo {
  uint64_t step = 0;
  std::string name;  // CheckpointName
  std::string path;  // of its directory
};
// The checkpoints in `directory`, the newest last: directories that hold a
// manifest and were not set aside; those that were go to `set_aside`. A
// directory that does not exist has none.
absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(
    Files* files, const std::string& directory,
    std::vector<CheckpointInfo>* set_aside = nullptr);

// The directory that a user means by `path`: for "dir/ckpt-<step>" the newest
// committed checkpoint of that step, for all else `path` itself.
absl::StatusOr<std::string> ResolveCheckpoint(Files* files,
                                              const std::string& path);

// True when the job of `spec_text` came to its end in `workdir`: DONE names a
// checkpoint that was written by it.
bool JobIsDone(Files* files, const std::string& workdir,
               const std::string& spec_text);

// Writes why a run ended, for who follows it by its files alone; with OK takes
// an earlier one away.
absl::Status WriteEnding(Files* files, const std::string& workdir,
                         const absl::Status& why);
// OK when `text`, read from ENDED, is not one.
absl::Status ParseEnding(const std::string& text);

class CheckpointReader {
 public:
  // Reads the manifest, every shard file's size and header; checks them against
  // the manifest and the layout of its declaration. `files` is borrowed.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(
      Files* files, const std::string& checkpoint_dir);

  const Manifest& manifest() const { return manifest_; }
  // The writer's.
  const Layout& layout() const { return layout_; }
  const std::string& directory() const { return directory_; }

  // True when every shard file has `array`.
  bool HasArray(const std::string& array) const;

  // Checks the CRC32C of every file. Cost: reads all of them.
  absl::Status Verify();
  // Of one file; a second call is free.
  absl::Status VerifyFile(int shard);

  // Reads elements [flat_begin, flat_begin + count) of `values` or
  // `state.<name>` into `out`, from whichever files hold them; verifies each
  // first. REQUIRES: the range is inside the flat space.
  absl::Status ReadFlat(const std::string& array, int64_t flat_begin,
                        int64_t count, float* out);

  // Optimizer steps of a range of a variable: the largest over the writer's
  // segments that it overlaps (they differ only where blocks were left out).
  absl::StatusOr<uint64_t> StepCount(int variable, int64_t variable_begin,
                                     int64_t count);

  // `values` of one variable. NOT_FOUND when there is none of that name.
  absl::StatusOr<std::vector<float>> ReadVariable(const std::string& name);

 private:
  CheckpointReader(Files* files, std::string directory, Manifest manifest,
                   Layout layout);
  absl::Status OpenShard(int shard);
  // Loads the step counts of `shard` once, per block.
  absl::Status LoadStepCounts(int shard);

  Files* const files_;
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
