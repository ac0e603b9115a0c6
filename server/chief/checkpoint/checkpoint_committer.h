// The directory of a job's checkpoints: finds, commits and deletes them.
//
// Place: chief_runner.cc calls it on its files thread. The shard files come
// from the ps; this writes manifest.json last
// (proto/checkpoint/checkpoint_files.h).
//
//   <dir>/ckpt-<step>/            a checkpoint, or one that is being written
//   <dir>/ckpt-<step>-<attempt>/  the same, from the second attempt on
//   <dir>/ckpt-.../damaged        says why allow_older set it aside
//   <dir>/numbers/<n>             who made the n-th commit, and its name (I4)
//   <dir>/checkpoint              TensorFlow's text file that names the newest
//                                 checkpoint and all kept ones
//
// Invariants
//   I1. At every instant, also after a crash or a failing call, the newest
//       committed checkpoint is whole, and so are the `keep` - 1 before it.
//   I2. A deletion removes the manifest first, then the files, then the
//       directory.
//   I3. A directory's name is given once, so that what a ps writes late for an
//       attempt that was given up never lands in a newer checkpoint. The
//       directory of an attempt that failed is emptied, and stays until no
//       later attempt can get its name (ClearTraces).
//   I4. In an object store, where no lock keeps another chief away, each commit
//       takes the next number of the job, which the store gives once. Whoever
//       commits after another chief has committed is refused: both would need
//       the number after the one that they found.
// See "Checkpoint names" in docs/design_notes.md.
// Threads: compatible; one owner.
// Errors: PERMISSION_DENIED another chief has committed since Find (I4).
//         DATA_LOSS         a damaged checkpoint, by name.
//         INVALID_ARGUMENT  a shard file is not visible here; names its host.
//         and those of Files.
#ifndef SERVER_CHIEF_CHECKPOINT_CHECKPOINT_COMMITTER_H_
#define SERVER_CHIEF_CHECKPOINT_CHECKPOINT_COMMITTER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/io/files.h"
#include "common/objects/any_store.h"
#include "proto/checkpoint.pb.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "server/chief/state/actions.h"

namespace weir {

// Returns the name of the next attempt to write `step`: one more than the last
// attempt in `names`, which are all that the directory holds.
std::string NextCheckpointName(const std::vector<std::string>& names,
                               uint64_t step);

class CheckpointCommitter {
 public:
  struct Options {
    ObjectStore* files = Files::Real();
    Clock* clock = Clock::Real();
    std::string directory;  // absolute, or a URL of `files`
    uint32_t keep = 5;      // newest kept; 0 = 5
  };

  explicit CheckpointCommitter(Options options);

  // Makes the directory, durably: a loss of power would take all checkpoints
  // with the name of any directory above them.
  absl::Status MakeDirectory();
  // Removes what earlier chiefs left unfinished. What cannot be removed stays
  // for the next time, and `note` says so: a ps may still be writing for the
  // chief that died. REQUIRES: the directory is there, and no other chief is.
  absl::Status Sweep(std::string* note);

  // Finds the last number that was taken (I4). To be called once, before the
  // chief looks what there is.
  absl::Status ReadNumber();

  // Finds the newest committed checkpoint, if there is one. With `verify` every
  // file is read and compared with its checksum. If the newest one is damaged,
  // that is an error; with `allow_older` the one before is taken, a file
  // `damaged` in the newest says why it is set aside, and `note` says what is
  // lost.
  absl::StatusOr<std::optional<FoundCheckpoint>> Find(bool verify,
                                                      bool allow_older,
                                                      std::string* note);

  // Writes kFinishedName into a committed checkpoint.
  absl::Status MarkFinished(const std::string& name);
  absl::StatusOr<bool> IsMarkedFinished(const std::string& name);

  // Whether any checkpoint was ever committed here: the list of them is there,
  // and nothing removes it.
  absl::StatusOr<bool> HasCommitted();
  // Makes a directory for a checkpoint of `step` and returns its name. Changes
  // no other directory.
  absl::StatusOr<std::string> Prepare(uint64_t step);
  // Checks that every file is here with its size, and a table file with its
  // arrays, writes the manifest and deletes what is beyond `keep`. Returns OK
  // once the manifest is durable; `note` says what failed after that.
  absl::Status Commit(Manifest manifest, std::string* note);
  // Empties the directory of a checkpoint that was not committed.
  absl::Status Discard(const std::string& name);

 private:
  struct Entry {
    CheckpointId id;
    std::string name;
    bool committed = false;
  };
  std::string Path(const std::string& name) const;
  absl::StatusOr<std::vector<Entry>> ReadEntries();
  absl::Status CheckFiles(const Manifest& manifest);
  absl::Status RemoveFiles(const std::string& name);
  // I2. A file that is gone already is no error.
  absl::Status RemoveCheckpoint(const std::string& name);
  absl::Status DeleteOld();
  // Removes the directories that were not committed and whose names cannot be
  // given again (I3), because the oldest checkpoint or another attempt at their
  // step comes after them. With `all` it empties the others. Goes on after a
  // failure and returns the first one.
  absl::Status ClearTraces(bool all);
  absl::Status WriteList();
  // Does what comes after a commit: the list, and all deletions.
  absl::Status TidyUp();

  bool numbered() const { return IsObjectUrl(options_.directory); }
  absl::Status TakeNumber(const std::string& name);

  const Options options_;
  const std::string chief_;  // begins the numbers that are ours
  uint64_t number_ = 0;      // of the last commit, here or by the chief before
};

}  // namespace weir

#endif  // SERVER_CHIEF_CHECKPOINT_CHECKPOINT_COMMITTER_H_
