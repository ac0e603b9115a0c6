// Threads as fibres of one thread of the system, in an order that a seed draws,
// in a time that only they move on.
//
// Place: under common/threads/thread.h, common/base/mutex.h and
// common/base/clock.h in a build with --config=sim, so that everything above
// runs with unchanged sources. No product binary has it.
//
// Terms
//   fibre    stands for a thread.
//   point    where another fibre may go on: a lock, an unlock, a notification,
//            a wait, a sleep.
//   world    what one RunWorld simulates. Its time begins at one second, moves
//            on a little at every change of fibres, and jumps to the next
//            deadline when no fibre can run.
//   process  a number that fibres take from the fibre that starts them, so that
//            they can be killed together.
//
// Invariants
//   I1. The same seed gives the same order, as long as the fibres ask nothing
//       of the system that differs: real time, addresses, other threads.
//   I2. A world ends by itself when no fibre can ever run again.
// Threads: compatible; one world at a time in a process.
#ifndef COMMON_THREADS_SCHEDULER_H_
#define COMMON_THREADS_SCHEDULER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>

namespace weir::sim {

class Fiber;

// Fibres that wait for one thing, in the order in which they came.
using WaitQueue = std::list<Fiber*>;

struct Outcome {
  // Why the world could not go on; empty: its main fibre returned.
  std::string stuck;
  uint64_t points = 0;
  uint64_t switches = 0;
  std::chrono::nanoseconds time{0};  // that passed in the world
  uint64_t hash = 0;  // of which fibre went on when, and of what Note got
};

// Runs `main` as the first fibre of a new world, of process 0, until it
// returns. Fibres that are left then never run again, nor are they unwound.
Outcome RunWorld(uint64_t seed, const std::function<void()>& main);

// The others are for fibres. Outside a world locks are free, Now is 0 and
// Random begins anew with the program.

Fiber* Start(std::function<void()> body);
// Waits until `fiber` has ended; false: it belongs to a process that was
// killed. Afterwards `fiber` must not be used.
bool Join(Fiber* fiber);

// A lock that one fibre holds.
struct Lock {
  Fiber* owner = nullptr;
  WaitQueue waiting;
};
void Acquire(Lock* lock);
void Release(Lock* lock);

// A point.
void MayYield();
// Waits in `queue` until Wake takes this fibre out of it, or until `timeout`
// has passed: false. May also return true without a reason. `lock`, if there is
// one, is free meanwhile.
bool Wait(WaitQueue* queue, Lock* lock,
          std::optional<std::chrono::nanoseconds> timeout = std::nullopt);
// Lets the first `count` fibres of `queue` go on.
void Wake(WaitQueue* queue, size_t count);
void SleepFor(std::chrono::nanoseconds time);
std::chrono::nanoseconds Now();

// Numbers of the seed. Each call gives another one.
uint64_t Random();
// A number below `bound`.
uint64_t RandomBelow(uint64_t bound);

// The process of the fibre that calls.
int Process();
// Starts a fibre of `process`, and with it those that it starts itself.
void StartAs(int process, const std::function<void()>& start);
// The fibres of `process` never run again; they are not unwound, so what they
// own stays as it is. REQUIRES: the caller is of another process.
void Kill(int process);

// The fibres of `process` do not run until Continue, as after SIGSTOP.
void Pause(int process);
void Continue(int process);

// From now on a fibre of `process` goes on up to so much later than it could,
// as on a host that has too much to do; 0 ends it.
void SetSlow(int process, std::chrono::nanoseconds delay_max);

// Moves the deadlines of all waits nearer by so much; for a planted defect.
void MoveWaits(std::chrono::nanoseconds by);

// Makes `text` a part of the outcome's hash, and of the trace that
// WEIR_SIM_TRACE=1 writes to stderr.
void Note(const std::string& text);

}  // namespace weir::sim

#endif  // COMMON_THREADS_SCHEDULER_H_
