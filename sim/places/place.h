// Where a simulated job keeps its checkpoints: how long calls take, whether
// there is room, and what an observer needs.
//
// Place: under the object store (sim/places/object_store.h) and the disk
// (sim/places/disk.h).
//
// Invariants
//   I1. A call takes effect as a whole at one point of its time. A process that
//       is killed in the middle may have had its effect or not.
//   I2. A call that ends with UNAVAILABLE, as of a store that does not answer
//       or a disk that fails, was carried out, or not.
// Threads: for fibres.
#ifndef SIM_PLACES_PLACE_H_
#define SIM_PLACES_PLACE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/io/files.h"
#include "common/threads/scheduler.h"

namespace weir::sim {

struct PlaceFaults {
  std::chrono::nanoseconds delay_max{5'000'000};
  // One call in so many ends with UNAVAILABLE; 0: none.
  uint64_t unavailable_one_in = 0;
  bool full = false;  // what writes ends with RESOURCE_EXHAUSTED
};

class Place {
 public:
  virtual ~Place() = default;

  void SetFaults(const PlaceFaults& faults) { faults_ = faults; }
  // Looks at the world from outside. `changed` is set when something is written
  // or removed that was looked at.
  struct Observer {
    std::set<std::string> seen;
    bool changed = true;
  };
  // While there is one calls take no time and do not fail, so that no other
  // fibre runs, and make nothing durable. It must live as long as the place.
  // Returns the one before.
  Observer* SetObserver(Observer* observer) {
    if (observer != nullptr) {
      observers_.insert(observer);
    }
    return std::exchange(observer_, observer);
  }
  uint64_t unavailable() const { return unavailable_; }
  // Before the first call. `on_write` hears of each write that was carried out.
  void SetOnWrite(std::function<void()> on_write) {
    on_write_ = std::move(on_write);
  }

  // A process is gone, and with it its locks.
  virtual void OnProcessGone(int /*process*/) {}
  // Every host of the job loses its power; no process is left.
  virtual void LosePower() {}
  // One bit of a file or object changes. False if there is none of that name,
  // or it is empty.
  virtual bool Rot(const std::string& name) = 0;

 protected:
  static void FlipOneBit(std::string* bytes) {
    const auto at = static_cast<size_t>(RandomBelow(bytes->size()));
    (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << RandomBelow(8)));
  }
  // Spends the time of a call, with `effect` in the middle of it.
  template <typename Effect>
  absl::Status Call(const std::string& name, Effect effect) {
    if (observer_ != nullptr) {
      observer_->seen.insert(name);
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
          absl::StrCat(name, ": does not answer, or fails"));
    }
    return status;
  }
  bool full() const { return faults_.full; }
  bool observed() const { return observer_ != nullptr; }
  void Written() {
    if (on_write_) {
      on_write_();
    }
  }
  // Something of this name, or below it, was written or removed.
  void OnChange(const std::string& name) {
    for (Observer* const observer : observers_) {
      observer->changed = observer->changed || observer->seen.count(name) > 0 ||
                          observer->seen.count(DirectoryOf(name)) > 0;
    }
  }
  void OnChangeOfAll() {
    for (Observer* const observer : observers_) {
      observer->changed = true;
    }
  }

 private:
  void SpendSomeTime() const {
    SleepFor(std::chrono::nanoseconds(static_cast<int64_t>(
        RandomBelow(static_cast<uint64_t>(faults_.delay_max.count()) + 1))));
  }

  PlaceFaults faults_;
  std::set<Observer*> observers_;
  Observer* observer_ = nullptr;  // that is at it
  uint64_t unavailable_ = 0;
  std::function<void()> on_write_;
};

}  // namespace weir::sim

#endif  // SIM_PLACES_PLACE_H_
