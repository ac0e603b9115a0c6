// Where a simulated job keeps its checkpoints: how long calls take, whether
// there is room, and what an observer needs.
//
// Place: under the object store (sim/places/object_store.h) and the disk
// (sim/places/disk.h).
//
// Invariants
//   I1. A call takes effect as a whole at one point of its time. A process that
//       is killed in the middle may have had its effect or not.
//   I2. A call that ends with UNAVAILABLE was carried out, or not.
// Threads: for fibres.
#ifndef SIM_PLACES_PLACE_H_
#define SIM_PLACES_PLACE_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/threads/scheduler.h"

namespace weir::sim {

struct PlaceFaults {
  std::chrono::nanoseconds delay_max{5'000'000};
  // Of an object store: one call in so many ends with UNAVAILABLE; 0: none.
  uint64_t unavailable_one_in = 0;
  bool full = false;  // what writes ends with RESOURCE_EXHAUSTED
};

class Place {
 public:
  virtual ~Place() = default;

  void SetFaults(const PlaceFaults& faults) { faults_ = faults; }
  // While it is set calls take no time and do not fail, so that no other fibre
  // runs: for whoever looks at the world from outside.
  void SetAtOnce(bool at_once) { at_once_ = at_once; }
  uint64_t unavailable() const { return unavailable_; }
  uint64_t writes() const { return writes_; }
  // Waits for the next one, but not longer than `most`.
  void WaitForWrite(std::chrono::nanoseconds most) {
    Wait(&written_, nullptr, most);
  }
  // Another number whenever an object was written or removed.
  uint64_t changes() const { return changes_; }

  // A process is gone, and with it its locks.
  virtual void OnProcessGone(int /*process*/) {}
  // Every host of the job loses its power; no process is left.
  virtual void LosePower() {}

 protected:
  // Spends the time of a call, with `effect` in the middle of it.
  template <typename Effect>
  absl::Status Call(const std::string& name, Effect effect) {
    if (at_once_) {
      return effect();
    }
    const bool fails = faults_.unavailable_one_in > 0 &&
                       RandomBelow(faults_.unavailable_one_in) == 0;
    SpendSomeTime();
    absl::Status status;
    if (!fails || RandomBelow(2) == 0) {
      status = effect();  // I1
    }
    SpendSomeTime();
    if (fails) {  // I2
      ++unavailable_;
      return absl::UnavailableError(
          absl::StrCat(name, ": the store does not answer"));
    }
    return status;
  }
  bool full() const { return faults_.full; }
  void CountWrite() {
    ++writes_;
    ++changes_;
    Wake(&written_, written_.size());
  }
  void CountChange() { ++changes_; }

 private:
  void SpendSomeTime() const {
    SleepFor(std::chrono::nanoseconds(static_cast<int64_t>(
        RandomBelow(static_cast<uint64_t>(faults_.delay_max.count()) + 1))));
  }

  PlaceFaults faults_;
  bool at_once_ = false;
  uint64_t unavailable_ = 0;
  uint64_t writes_ = 0;  // that were carried out
  WaitQueue written_;
  uint64_t changes_ = 0;
};

}  // namespace weir::sim

#endif  // SIM_PLACES_PLACE_H_
