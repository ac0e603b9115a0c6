// What a seed draws for a simulated job of whole tasks: its shape, and its
// troubles.
#ifndef SIM_JOB_PLAN_H_
#define SIM_JOB_PLAN_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/network.h"
#include "sim/places/place.h"
#include "sim/plan.h"

namespace weir::sim {

struct Fault {
  enum Kind {
    kKill,  // it is away for `time`
    kTerm,
    kTermAll,  // to whoever starts them, which are away for `time`
    kPart,     // from another task, for `time`
    kPause,    // SIGSTOP, for `time`
    kSecond,   // started once more, while this process is parted from all
    kSlow,     // a host with too much to do, for `time`; each turn up to `wait`
    kFull,     // the store is, for `time`
    kPower,    // all hosts lose it; it is back after `time`
    kHang,     // calls of the store take up to `wait`, for `time`
    kFail,     // every second one fails, for `time`
    kRot,      // a bit of a checkpoint changes
  };
  // What it waits for.
  enum Event {
    kAnything,
    kWrite,    // the next one to the store
    kCommand,  // the next one that a worker reads from the chief
    kEnd,      // the next task that ends by itself
    kQuiet,    // that all are at work, without trouble for a while
    kEvents,
  };
  Kind kind = kKill;
  size_t role = 0;              // a ps, the chief, a worker, the evaluator
  size_t task = 0;              // modulo the number of tasks of that role
  size_t other = 0;             // modulo the number of those it speaks with
  uint64_t after_receipts = 0;  // not before so many contributions had them
  bool on_same_host = false;    // a second chief, where the first has the port
  bool together = false;  // all are started again, when the last has ended
  bool one_way = false;   // the other one hears nothing, but is heard
  Event at = kAnything;
  std::chrono::nanoseconds after{0};  // that, or the fault before it
  std::chrono::nanoseconds time{0};
  // The wall clock is set forward or back by so much, too.
  std::chrono::nanoseconds wall{0};
  std::chrono::nanoseconds wait{0};
};

const char* KindName(Fault::Kind kind);
std::string FaultWords(const Fault& fault);
// Whether those whom it hits may not hear others: not by a full or slow store,
// nor by a kill after which a task is started at once.
bool MayBeDeaf(const Fault& fault);

inline constexpr int kRowDim = 2;  // of its table

struct JobPlan {
  Mode mode = Mode::kAsync;
  int ps = 1;
  int workers = 1;
  uint64_t steps = 0;
  uint64_t in_step = 1;  // sync: contributions of a step
  uint64_t every_steps = 1;
  int block_elements = 64;
  bool disk = false;   // checkpoints are on one, not in an object store
  bool table = false;  // the model, or a script, reads an embedding table
  bool evaluator = false;
  // Its workers are programs of the SDK, without a job file.
  bool script = false;
  // Of a script, of values and of rows, as numbers of their Kinds. Only in
  // sync, where the order is fixed; else sums of whole numbers say the same.
  int optimizer = 0;
  int row_optimizer = 0;
  // Each turn of a worker takes up to so long, as if it had much to compute.
  std::chrono::nanoseconds pace{0};
  // What a contribution's batch takes to read; a script rests so long.
  std::chrono::milliseconds batch_time{0};
  std::chrono::seconds lost_after{10};  // limits.lost_after_seconds
  Faults network;
  PlaceFaults store;
  std::vector<Fault> faults;  // in their order
  bool late = false;          // they begin at the job's end

  // Whether the last contributions before a stop may be in a checkpoint with a
  // part of their blocks: all workers are told to end, or the last one is
  // killed and another task told to end, and no other one comes that could
  // finish them ("One snapshot of all shards" in docs/design_notes.md).
  bool MayTear() const;
  // Whether each checkpoint has the bits of the job alone at its step.
  bool IsExact() const;
  // As the last checkpoint counts them.
  uint64_t last_step() const {
    return script && mode != Mode::kSync ? contributions() : steps;
  }
  uint64_t contributions() const;
  // Contributions of a step in which checkpoints count.
  uint64_t in_unit() const { return mode == Mode::kSync ? in_step : 1; }
  // Of a script.
  uint64_t pushes_of_rank() const;
  // The same job without some of its faults.
  JobPlan Without(LeftOut left_out) const;
  LeftOut CanLeaveOut() const;
  // As --workdir, or as --checkpoints.
  const char* run_place() const { return disk ? "/runs/sim" : "s3://sim/run"; }
  // A message of a contribution takes at most so long.
  std::chrono::nanoseconds message_time() const;
  // What reads or writes one object takes at most so long.
  std::chrono::nanoseconds object_time() const;
  // What the start of a chief reads and writes takes no longer.
  std::chrono::nanoseconds start_time() const;
  std::string SpecText() const;
  std::string Words() const;
  // The same job without troubles, with one ps and one worker; of scripts, each
  // of which is another one, with all of them.
  JobPlan Alone() const;

 private:
  bool HasAny(Fault::Kind kind) const;
};

// Asks the world for random numbers.
JobPlan DrawJobPlan();

}  // namespace weir::sim

#endif  // SIM_JOB_PLAN_H_
