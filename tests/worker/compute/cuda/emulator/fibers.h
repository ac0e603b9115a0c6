// Runs the threads of a kernel on the CPU, one fibre for each that waits.
//
// Place: scheduler.cc runs a launched grid with it; the barriers and warp
//   primitives of weir_cuda_emulator.h come in through its free functions.
//
// Invariants
//   I1. One thread runs at a time, from one wait to the next. A fibre goes on
//       with the next thread when its own has ended, so a kernel without
//       barriers needs one fibre and no switch.
//   I2. When nothing can run, every wait whose threads are all there is let
//       through, in random order. If there is no such wait, the process ends.
// Threads: hostile; the caller serialises (one kernel at a time).
// Cost: a wait is two stack switches, some tens of nanoseconds.
#ifndef TESTS_WORKER_COMPUTE_CUDA_EMULATOR_FIBERS_H_
#define TESTS_WORKER_COMPUTE_CUDA_EMULATOR_FIBERS_H_

#include <cstdint>
#include <functional>
#include <numeric>

#include "tests/worker/compute/cuda/emulator/weir_cuda_emulator.h"

namespace weir_emulator {

// splitmix64: small, and every seed is good.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [0, count). REQUIRES: count > 0.
  uint64_t Below(uint64_t count) { return Next() % count; }

 private:
  uint64_t state_;
};

// Visits 0 .. count-1 in a random order without keeping a list.
class RandomOrder {
 public:
  RandomOrder(uint64_t count, Random& random)
      : count_(count), at_(random.Below(count)) {
    do {
      stride_ = random.Below(count) + 1;
    } while (std::gcd(stride_, count) != 1);
  }
  uint64_t Next() {
    at_ = (at_ + stride_) % count_;
    return at_;
  }

 private:
  uint64_t count_;
  uint64_t at_;
  uint64_t stride_ = 1;
};

// Prints one line and ends the process: what a real device would do is
// undefined.
[[noreturn]] void Die(const char* format, ...)
    __attribute__((format(printf, 1, 2)));

// REQUIRES: the limits of a device hold.
void RunGrid(dim3 grid, dim3 block, const std::function<void()>& thread,
             Random& random);

}  // namespace weir_emulator

#endif  // TESTS_WORKER_COMPUTE_CUDA_EMULATOR_FIBERS_H_
