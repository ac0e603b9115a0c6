// A file system in a simulated world, which all tasks of a job see, as on one
// host or on a share.
//
// Place: where the checkpoints of every second simulated job are, as on a disk
// (common/io/files.h).
//
// Invariants
//   I1. A call takes effect as a whole at one point of its time; but a write
//       that finds no room may leave a part.
//   I2. What LosePower leaves: the synced bytes of each file and, as it
//       happens, some of those behind them or zeros in their place; of the
//       changes to a directory's names those that were synced and, in their
//       order, some of the others. Nothing else is promised by POSIX.
//   I3. The death of a process loses nothing but its locks.
//   I4. What a sync that failed was to make durable no later one makes durable:
//       Linux takes those pages for clean.
// Threads: for fibres.
#ifndef SIM_PLACES_DISK_H_
#define SIM_PLACES_DISK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/io/files.h"
#include "sim/places/place.h"

namespace weir::sim {

class SimDisk : public Files, public Place {
 public:
  SimDisk() { now_["/"] = durable_["/"] = nullptr; }

  void OnProcessGone(int process) override;
  void LosePower() override;
  bool Rot(const std::string& path) override;

  absl::StatusOr<std::unique_ptr<FileReader>> Open(
      const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileWriter>> Create(
      const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileWriter>> CreateNew(
      const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileWriter>> OpenAppend(
      const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status RenameNew(const std::string& from,
                         const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override;
  absl::Status MakeDirectories(const std::string& path) override;
  absl::Status MakeDirectory(const std::string& path) override;
  absl::StatusOr<FileInfo> Stat(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<HeldLock>> TryLock(
      const std::string& path, const std::string& who) override;

  // For readers, writers and locks.
  struct File {
    std::string bytes;
    size_t synced = 0;       // of these, the first ones, as the last sync says
    size_t kept = SIZE_MAX;  // and of those the first ones, see I4
  };
  absl::Status Read(const std::string& path, const File& file, int64_t offset,
                    void* data, size_t bytes);
  absl::Status Append(const std::string& path, File* file, const void* data,
                      size_t bytes);
  absl::Status Sync(const std::string& path, File* file);
  void Unlock(const std::string& path, uint64_t lock);
  using Files::Append;

 private:
  using FilePointer = std::shared_ptr<File>;  // null: a directory
  using Names = std::map<std::string, FilePointer>;
  // Names that change at once. Those without a value go.
  struct Change {
    std::vector<std::string> removed;
    Names added;
  };

  bool IsDirectory(const std::string& path) const;
  // An error if `path` cannot be made: no directory for it, or no room.
  absl::Status CheckCanMake(const std::string& path, const char* what) const;
  void Apply(const std::string& directory, Change change);
  static void Carry(const Change& change, Names* names);
  absl::StatusOr<std::unique_ptr<FileWriter>> OpenWriter(
      const std::string& path, bool is_new, bool empty);

  Names now_;
  Names durable_;
  // By directory, what is not durable yet, in its order.
  std::map<std::string, std::vector<Change>> not_synced_;
  struct Holder {
    int process = 0;
    uint64_t lock = 0;
    std::string who;
  };
  std::map<std::string, Holder> locks_;
  uint64_t locks_taken_ = 0;
};

}  // namespace weir::sim

#endif  // SIM_PLACES_DISK_H_
