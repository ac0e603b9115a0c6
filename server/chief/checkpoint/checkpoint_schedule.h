// Decides when the next checkpoint is due, and in sync at which version.
//
// A sync checkpoint is asked for ahead of time, so that every shard still has
// to reach its version. It is ahead by what the workers do in about a second,
// and by twice as much after a shard was past the version, until tries went
// well again.
//
// Threads: compatible.
#ifndef SERVER_CHIEF_CHECKPOINT_CHECKPOINT_SCHEDULE_H_
#define SERVER_CHIEF_CHECKPOINT_CHECKPOINT_SCHEDULE_H_

#include <cstdint>
#include <optional>

namespace weir {

class CheckpointSchedule {
 public:
  struct Options {
    uint64_t every_steps = 0;    // 0: not by steps
    double every_seconds = 0.0;  // 0: not by time
    bool sync = false;
  };

  CheckpointSchedule(Options options, uint64_t step, int64_t now_ns);

  // Measures the speed. Call it about every tick.
  void Observe(uint64_t step, int64_t now_ns);
  // Returns the step at which to begin one now, or nullopt if none is due. In
  // sync it is the version to ask for.
  std::optional<uint64_t> Due(uint64_t step, int64_t now_ns) const;
  // Sync: returns a version that no shard has passed, at most `last`.
  uint64_t VersionAhead(uint64_t step, uint64_t last) const;

  // A checkpoint of `step` was tried, well or not: the next one is due a period
  // later.
  void OnTried(uint64_t step, int64_t now_ns);
  // Sync: a shard was past the version that was asked for.
  void OnPassed();

 private:
  uint64_t Margin() const;

  const Options options_;
  uint64_t tried_step_;
  int64_t tried_ns_;
  uint64_t seen_step_;
  int64_t seen_ns_;
  double steps_per_second_ = -1.0;  // not known
  uint64_t margin_;  // steps, by what was learnt from versions passed
};

}  // namespace weir

#endif  // SERVER_CHIEF_CHECKPOINT_CHECKPOINT_SCHEDULE_H_
