// Lines that grow at their end, in any store: train.jsonl, eval.jsonl.
//
// Where objects can grow they are one file. An object store keeps them in parts
// beside it, "train.jsonl.part-00000001" and so on, one behind the other. Each
// writer has a part of its own: it writes it anew every kPartEvery, with what
// came since, and begins another one once it has kPartBytes. A process that
// dies loses what came after its last write.
//
// Threads: compatible. Several processes may append, each whole lines.
// Errors: those of ObjectStore.
// Cost: memory for a part, or for a piece of a file, however long all lines
//   are. Append: of a part at most.
#ifndef COMMON_IO_GROWING_FILE_H_
#define COMMON_IO_GROWING_FILE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/io/object_store.h"

namespace weir {

class GrowingFile {
 public:
  static constexpr std::chrono::seconds kPartEvery{10};
  // The larger, the fewer parts there are to be read, and the more is written
  // for each line.
  static constexpr size_t kPartBytes = size_t{4} << 20;
  // What is beyond in a line is not read: no writer makes such a line.
  static constexpr size_t kLineBytesMax = size_t{1} << 20;

  // A line without its end.
  using Take = std::function<void(absl::string_view line)>;
  using Keep = std::function<bool(absl::string_view line)>;

  // `store` and `clock` are borrowed.
  GrowingFile(ObjectStore* store, std::string name,
              Clock* clock = Clock::Real())
      : store_(store), name_(std::move(name)), clock_(clock) {}

  // Calls `take` with each line; with none if nothing was ever written. What a
  // process that was killed has written of its last one is a line, too.
  absl::Status ReadLines(const Take& take);
  // Appends whole lines. After an error they are not taken, though a piece of
  // them may be in the file: if the next call brings them again, it goes on
  // behind that piece. Else the piece stays a line of its own. In an object
  // store an error is returned again, without another try, for kPartEvery.
  absl::Status Append(absl::string_view lines);
  // The same, and whoever reads next sees the lines.
  absl::Status AppendNow(absl::string_view lines);
  // Writes what Append has kept for the next write of the part.
  absl::Status Flush();
  // Drops the lines for which `keep` is false, and what Append has kept. Parts
  // before one that keeps all its lines are not looked at. After an error some
  // lines at the end may be gone.
  absl::Status Cut(const Keep& keep);

 private:
  // The names of what there is, in order: the file, and parts.
  absl::StatusOr<std::vector<std::string>> Objects();
  std::string PartName(uint64_t number) const;
  // Returns how many bytes the object has.
  absl::StatusOr<int64_t> ReadObject(const std::string& object,
                                     const Take& take);
  // Returns whether the object keeps all its lines.
  absl::StatusOr<bool> CutObject(const std::string& object, const Keep& keep);

  // Finds `end_`, and takes from `lines` what is in the file already.
  absl::Status FindEnd(absl::string_view* lines);
  absl::Status AppendToFile(absl::string_view lines);
  absl::Status AppendToPart(absl::string_view lines, bool now);
  // Writes `part_`.
  absl::Status WritePart();
  // Sets `number_` to the one behind those that there are.
  absl::Status FindNumber(const std::vector<std::string>& objects);

  ObjectStore* const store_;
  const std::string name_;
  Clock* const clock_;

  // Of a file.
  std::optional<int64_t> end_;  // where the lines of the last call begin
  bool failed_ = false;         // a piece of them may be there

  // Of parts.
  bool in_parts_ = false;
  uint64_t number_ = 0;     // of the part; 0: not known yet
  bool is_ours_ = false;    // and nobody else writes it
  std::string part_;        // what is in it, and what is to be
  bool unwritten_ = false;  // something is not in it yet
  std::optional<int64_t> tried_ns_;
  absl::Status tried_;  // what came of it
};

}  // namespace weir

#endif  // COMMON_IO_GROWING_FILE_H_
