// One shard file of a checkpoint: collects frozen blocks, then writes them.
//
// Place: Shard starts one for each Snapshot call and hands it the blocks, at
// once or (sync) as each reaches the version. The file is written on whatever
// thread `run` provides, from references alone: the shard may be gone by then.
//
// Invariants
//   I1. `done` gets FROZEN then WRITTEN, or an error once; nothing after it.
//   I2. References are dropped block by block as they are written, and all of
//       them when the job ends in any way.
//   I3. The file appears whole under its name, or not at all.
// Threads: safe.
// Errors: ABORTED  a newer snapshot took its place; what Cancel was given; and
//                  those of Files.
#ifndef SERVER_PS_BLOCK_SNAPSHOT_JOB_H_
#define SERVER_PS_BLOCK_SNAPSHOT_JOB_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/io/files.h"
#include "common/io/safetensors.h"
#include "proto/ps.pb.h"
#include "server/ps/block/block.h"
#include "server/ps/block/continuations.h"
#include "server/ps/plan/shard_plan.h"

namespace weir {

// Widens what `slots`, by slot, say of the next sequence numbers by the marks
// of one more unit.
void AddMarks(const std::vector<uint64_t>& marks,
              std::vector<SlotStatus>* slots);

class SnapshotJob {
 public:
  struct Options {
    std::shared_ptr<const ShardPlan> plan;
    ObjectStore* files = nullptr;
    std::string directory;
    // Sync: the version to freeze at.
    std::optional<uint64_t> version;
    std::vector<SlotStatus> slots;  // marks are filled in
    bool has_tables = false;        // AddTables will be called
    SnapshotDone done;
    std::function<void(std::function<void()>)> run;
  };

  explicit SnapshotJob(Options options);

  // REQUIRES: it has one.
  uint64_t version() const { return *options_.version; }

  // Takes one block. The last one makes FROZEN due.
  static void Add(const std::shared_ptr<SnapshotJob>& job, int block,
                  FrozenBlock frozen, DueList& due);
  // Takes the tables as they were frozen: their marks, and their file, which
  // has been written already. An error ends the job.
  static void AddTables(const std::shared_ptr<SnapshotJob>& job,
                        std::vector<uint64_t> marks,
                        absl::StatusOr<TableFile> file);
  // Runs `work` where files are written.
  void RunLater(std::function<void()> work) { options_.run(std::move(work)); }
  const std::string& directory() const { return options_.directory; }
  // OK when files may be written to the directory: INVALID_ARGUMENT when it has
  // a manifest, since nobody changes a checkpoint.
  absl::Status CheckDirectory() const;

  // For a shard without blocks and tables: FROZEN is due at once.
  static void AddNothing(std::shared_ptr<SnapshotJob> job, DueList& due);

  // Ends the job with `status` unless it has ended.
  void Cancel(const absl::Status& status);
  bool ended() const;

 private:
  using Blocks = std::vector<FrozenBlock>;

  static void ReportFrozen(const std::shared_ptr<SnapshotJob>& job);
  SnapshotReply FrozenReply() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Write(Blocks blocks);
  absl::StatusOr<FileDigest> WriteFile(Blocks& blocks,
                                       const std::string& path) const;
  absl::Status AppendArrays(Blocks& blocks, SafetensorsWriter& writer) const;

  const Options options_;
  mutable Mutex mutex_;
  Blocks blocks_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> table_marks_ ABSL_GUARDED_BY(mutex_);
  TableFile table_file_ ABSL_GUARDED_BY(mutex_);
  size_t missing_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace weir

#endif  // SERVER_PS_BLOCK_SNAPSHOT_JOB_H_
