// The emulated machine: streams that run as late and as oddly as CUDA allows,
// and the memory that copies and kernels may touch.
//
// Place: runtime.cc and cublas_lt.cc are CUDA's functions over it.
//
// Terms
//   ready    the first operation of its stream, and all that it waits for ran.
//   goals    the operations that a waiting host needs.
//   frontier the recorded operations that a captured stream's next one follows.
//
// Invariants
//   I1. Operations of a stream run in order; one with `after` runs later than
//       those. Nothing else orders them, but for the default stream of a
//       device, which every stream without cudaStreamNonBlocking waits for and
//       which waits for all of those.
//   I2. An operation runs only inside a call of the host that waits or polls.
//       A wait runs, by a coin, either only what its goals need, or first all
//       that they do not need.
//   I3. A captured operation never runs but through a graph, whose nodes run in
//       a random order that their dependencies allow.
// Threads: a Machine is touched inside Call() only, one thread at a time. Host
//   functions run without the lock, as they may wait for other threads.
#ifndef TESTS_WORKER_COMPUTE_CUDA_EMULATOR_SCHEDULER_H_
#define TESTS_WORKER_COMPUTE_CUDA_EMULATOR_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/worker/compute/cuda/emulator/fibers.h"
#include "tests/worker/compute/cuda/emulator/weir_cuda_emulator.h"

namespace weir_emulator {

using Work = std::function<void()>;

struct Operation {
  enum class State { kQueued, kRunning, kDone };
  Work run;
  std::vector<std::shared_ptr<Operation>> after;
  CUstream_st* stream = nullptr;  // valid until done
  uint64_t sequence = 0;          // in its stream, from 1
  State state = State::kQueued;
  int64_t done_ns = 0;
};
using OperationPtr = std::shared_ptr<Operation>;

struct Node {
  Work run;
  std::set<size_t> after;  // indices of earlier nodes
};

struct Capture {
  CUstream_st* origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool valid = true;
  bool ended = false;
  std::vector<Node> nodes;
};
using CapturePtr = std::shared_ptr<Capture>;

}  // namespace weir_emulator

// CUDA's handles point to these; the real headers leave them incomplete.
// NOLINTBEGIN(readability-identifier-naming)
struct CUstream_st {
  int device = 0;
  bool is_default = false;
  bool blocking = true;  // ordered with the default stream
  bool destroyed = false;
  uint64_t sequence = 0;  // of the last operation
  std::deque<weir_emulator::OperationPtr> queue;
  weir_emulator::OperationPtr last;  // may have run
  weir_emulator::CapturePtr capture;
  std::set<size_t> frontier;
};

struct CUevent_st {
  int device = 0;
  bool timing = true;
  weir_emulator::OperationPtr record;  // the most recent, if not captured
  weir_emulator::CapturePtr capture;   // of the most recent record
  std::set<size_t> nodes;
};

struct CUgraph_st {
  std::vector<weir_emulator::Node> nodes;
};

struct CUgraphExec_st {
  std::shared_ptr<const std::vector<weir_emulator::Node>> nodes;
};
// NOLINTEND(readability-identifier-naming)

namespace weir_emulator {

enum class Place { kPageable, kPinned, kDevice, kInvalid };

struct Block {
  int64_t bytes = 0;
  int device = -1;    // -1: host memory
  bool owned = true;  // else registered
};

class Machine {
 public:
  explicit Machine(const Config& config);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // ------------------------------------------------------------- streams

  // Maps null to the device's default stream; null for an unknown handle.
  CUstream_st* Find(cudaStream_t handle, int device);
  CUstream_st* OpenStream(int device, bool blocking);
  void CloseStream(CUstream_st* stream);
  // Queues, or records where the stream is captured. `queued` may be null; it
  // is set to null where the operation was recorded.
  cudaError_t Enqueue(CUstream_st* stream, Work run,
                      OperationPtr* queued = nullptr);
  cudaError_t Record(CUstream_st* stream, CUevent_st* event);
  cudaError_t WaitEvent(CUstream_st* stream, CUevent_st* event);

  // Runs `goals` and, by a coin, as little or as much else as can be.
  void RunUntil(const std::vector<OperationPtr>& goals);
  void RunStream(CUstream_st* stream) { RunUntil(Tail(stream)); }
  void RunDevice(int device);
  // Runs up to three ready operations, for a poll.
  void RunSome();
  // All that must have run for the stream to be idle.
  std::vector<OperationPtr> Tail(CUstream_st* stream);
  static bool Done(const std::vector<OperationPtr>& goals);

  // ------------------------------------------------------------- capture

  cudaError_t BeginCapture(CUstream_st* stream, cudaStreamCaptureMode mode);
  cudaError_t EndCapture(CUstream_st* stream, cudaGraph_t* graph);
  // Whether this thread may make a call that CUDA calls unsafe; else the
  // captures that forbid it are invalid now.
  cudaError_t CheckUnsafeCall();
  bool Capturing(int device) const;
  void RunNodes(const std::vector<Node>& nodes);

  // -------------------------------------------------------------- memory

  // Null where the device is full.
  void* Allocate(int64_t bytes, int device);
  bool Register(void* memory, int64_t bytes);
  // False where `memory` is no start of such a block.
  bool Free(void* memory, bool on_device, bool owned);
  Place PlaceOf(const void* memory, int64_t bytes) const;
  // Ends the process unless [memory, memory + bytes) is within one block that
  // `device` can reach.
  void CheckReach(const char* what, const volatile void* memory, int64_t bytes,
                  int device) const;
  int64_t BytesUsed(int device) const;

  // ---------------------------------------------------------------- rest

  Counters Count() const;

  const Config config;
  Random random;
  int64_t malloc_calls = 0;
  int64_t launches = 0;
  std::set<std::pair<int, int>> peers;  // (device, peer) that are enabled
  std::set<CUevent_st*> events;
  std::set<CUgraph_st*> graphs;
  std::set<CUgraphExec_st*> graph_execs;
  cudaError_t sticky = cudaSuccess;
  std::vector<std::pair<std::string, cudaError_t>> injected;

 private:
  std::map<CUstream_st*, uint64_t> Needed(
      const std::vector<OperationPtr>& goals) const;
  std::vector<CUstream_st*> Ready() const;
  void Run(CUstream_st* stream);

  std::vector<std::unique_ptr<CUstream_st>> streams_;  // the defaults first
  std::vector<CapturePtr> captures_;                   // that did not end
  std::map<uintptr_t, Block> blocks_;                  // by their start
  int64_t clock_ns_ = 0;
};

// What the variables WEIR_EMULATOR_* say; ends the process over one that is no
// number.
Config ConfigFromEnvironment();

// The device that this thread has selected.
int& CurrentDevice();
cudaError_t& LastError();

// Runs `body` on the one machine, unless the call `function` has to fail, and
// keeps the error for cudaGetLastError(). Every function of CUDA is one.
cudaError_t Call(const char* function,
                 const std::function<cudaError_t(Machine&)>& body);
// REQUIRES: inside Call(). Lets other threads in meanwhile.
void RunUnlocked(const Work& host_function);

}  // namespace weir_emulator

#endif  // TESTS_WORKER_COMPUTE_CUDA_EMULATOR_SCHEDULER_H_
