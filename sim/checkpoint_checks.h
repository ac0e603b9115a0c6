// What has to hold of a simulated job's checkpoints, seen from outside.
//
// Invariants
//   I1. The newest committed checkpoint is never older than it was.
//       A loss of power may take it back, as it may just have got its name, but
//       none before it.
//   I2. It is whole at every moment, with all that it extends.
//   I3. Where a file of it has rotted neither holds; but the job goes back no
//       further than to the newest one that is whole.
//   I4. Where KeepValues was called, each of a step has the same values and
//       rows.
// Threads: for fibres. No other fibre runs while it looks.
// Errors: the words of what does not hold; every code means the same.
#ifndef SIM_CHECKPOINT_CHECKS_H_
#define SIM_CHECKPOINT_CHECKS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/object_store.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/ps.pb.h"
#include "sim/places/place.h"

namespace weir::sim {

class CheckpointChecks {
 public:
  // Of the job in the directory `run` of a place with this canonical JobSpec.
  CheckpointChecks(Place* place, ObjectStore* objects, std::string run,
                   std::string spec_text)
      : place_(place),
        objects_(objects),
        run_(std::move(run)),
        spec_text_(std::move(spec_text)) {}

  // I4. From now on, and they are kept.
  void KeepValues() { keeps_values_ = true; }
  // CRC32C of values and rows of each one that was the newest, by its step.
  const std::map<uint64_t, uint32_t>& values() const { return values_; }

  // I1, I2, I4. It costs little where nothing has changed.
  absl::Status Look();
  // I1. The place has just lost its power.
  void OnPowerLost() {
    newest_ = rotten() > 0 ? 0 : before_;
    look_.changed = true;
  }
  // I3. A bit of a checkpoint changes, of any that is listed. Returns the file,
  // "" if there is none.
  std::string Rot();
  uint64_t rotten() const { return rots_; }  // bits that changed
  bool newest_is_rotten() const { return newest_is_rotten_; }
  // Whether an error is of what has rotted.
  bool IsOfRot(const absl::Status& status) const;
  // An error if one is left that is whole, though it was not taken.
  absl::Status CheckNoneIsWhole();
  // Whether DONE is there.
  bool Done();
  // Whether the evaluator has a line on the newest one.
  bool NewestIsEvaluated();
  // What the last checkpoint of the job holds: values, then the rows of each
  // table by id. It holds each contribution up to `last_step`, or is an error.
  absl::StatusOr<std::vector<float>> ReadLast(uint64_t last_step);

  uint64_t newest() const { return newest_; }                // its step
  uint64_t contributions() const { return contributions_; }  // of the newest
  uint64_t seen() const { return seen_; }

 private:
  absl::Status CheckNewest();
  absl::Status CheckWhole(const std::string& path);
  absl::Status ReadWhole(const std::string& path);
  // Values, then the rows of each table by id. Where values are kept without
  // those that are still 0: they may only have been read.
  absl::StatusOr<std::vector<float>> ReadValues(const std::string& path,
                                                CheckpointReader* reader);

  Place* const place_;
  ObjectStore* const objects_;  // the same
  const std::string run_;
  const std::string spec_text_;
  std::set<std::string> rotten_;  // files
  uint64_t rots_ = 0;
  uint64_t newest_ = 0;
  std::string newest_name_;
  bool newest_is_rotten_ = false;
  uint64_t before_ = 0;  // the newest one before that
  uint64_t contributions_ = 0;
  uint64_t seen_ = 0;
  Place::Observer look_;   // at DONE and the list of checkpoints
  Place::Observer whole_;  // at the newest of them
  std::string whole_path_;
  absl::Status whole_status_;
  Place::Observer other_;  // where nobody asks whether it changes
  bool done_ = false;
  bool keeps_values_ = false;
  std::map<uint64_t, uint32_t> values_;
};

}  // namespace weir::sim

#endif  // SIM_CHECKPOINT_CHECKS_H_
