#include "tests/worker/compute/cuda/emulator/fibers.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define WEIR_EMULATOR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEIR_EMULATOR_ASAN 1
#endif
#endif
#ifdef WEIR_EMULATOR_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace weir_emulator {

Indices current;

namespace {

constexpr size_t kGuardBytes = 4096;
#ifdef WEIR_EMULATOR_ASAN
constexpr size_t kStackBytes = 256 << 10;  // its frames are far larger
#else
constexpr size_t kStackBytes = 64 << 10;
#endif
constexpr unsigned kWarp = 32;
constexpr unsigned kBallot = ~0u;  // in place of a source lane

}  // namespace
}  // namespace weir_emulator

// Where a stack goes on; swapcontext() would make two system calls a switch.
#ifdef __x86_64__
using Context = void*;  // its stack pointer; the registers lie there
extern "C" void weir_emulator_switch(Context* from, const Context* to);
asm(R"(
.pushsection .text
.globl weir_emulator_switch
.type weir_emulator_switch, @function
weir_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq (%rsi), %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size weir_emulator_switch, .-weir_emulator_switch
.popsection
)");
#else
using Context = ucontext_t;
static void weir_emulator_switch(Context* from, const Context* to) {
  swapcontext(from, to);
}
#endif

namespace weir_emulator {
namespace {

void MakeContext(Context* context, char* stack, void (*entry)()) {
#ifdef __x86_64__
  // Six registers, the entry, and a return address that nothing uses: at
  // the entry the stack is aligned as after a call.
  void** top = reinterpret_cast<void**>(stack + kStackBytes);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) {
    *--top = nullptr;
  }
  *context = top;
#else
  getcontext(context);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = kStackBytes;
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
#endif
}

struct Thread;

struct Fiber {
  Context context = {};
  char* stack = nullptr;
  void* fake_stack = nullptr;  // ASan's
  Thread* thread = nullptr;    // that it runs, null where it is idle
};

enum class Wait { kNone, kBarrier, kWarp };

struct Thread {
  uint3 index = {0, 0, 0};
  bool done = false;
  Wait wait = Wait::kNone;
  Site site;
  Fiber* fiber = nullptr;
  unsigned mask = 0;    // the lanes that must come
  unsigned source = 0;  // lane to read from, or kBallot
  uint64_t value = 0;   // given, then received
};

class Runner {
 public:
  void RunBlock(dim3 block, const std::function<void()>& body, Random& random);
  void SyncThreads(Site site) { WaitFor(Wait::kBarrier, site); }
  uint64_t Exchange(unsigned mask, uint64_t value, unsigned source, Site site);
  unsigned Lane() const {
    return static_cast<unsigned>(running_->thread - threads_.data()) % kWarp;
  }

 private:
  static void FiberMain();
  Fiber* NewFiber();
  void Start(Fiber* fiber);
  void Resume(Fiber* fiber);
  void Leave(Fiber* fiber);
  void WaitFor(Wait wait, Site site);
  void LetThrough(Random& random);
  bool LetWarpThrough(size_t begin, size_t end);
  [[noreturn]] void DieOfDivergence() const;

  const std::function<void()>* body_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<uint32_t> order_;  // threads that did not start
  std::vector<Thread*> ready_;   // let through, to go on
  size_t finished_ = 0;
  std::vector<Fiber*> idle_;
  Fiber* running_ = nullptr;
  Context host_ = {};
#ifdef WEIR_EMULATOR_ASAN
  const void* host_stack_ = nullptr;
  size_t host_stack_bytes_ = 0;
#endif
};

// Ranges of shared memory, by their begin.
std::map<char*, char*>& SharedMemory() {
  static auto& ranges = *new std::map<char*, char*>;
  return ranges;
}

Runner& TheRunner() {
  static Runner& runner = *new Runner;  // fibres are reused, never freed
  return runner;
}

void Runner::FiberMain() {
  Runner& runner = TheRunner();
  Fiber* const fiber = runner.running_;
#ifdef WEIR_EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &runner.host_stack_,
                                  &runner.host_stack_bytes_);
#endif
  while (true) {
    // I1: this fibre goes on with the next thread, as long as none waits in it.
    while (!runner.order_.empty()) {
      runner.Start(fiber);
      (*runner.body_)();
      fiber->thread->done = true;
      fiber->thread = nullptr;
      ++runner.finished_;
    }
    runner.Leave(fiber);
  }
}

Fiber* Runner::NewFiber() {
  void* map = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED || mprotect(map, kGuardBytes, PROT_NONE) != 0) {
    Die("no memory for the stack of a kernel's thread");
  }
  auto* fiber = new Fiber;
  fiber->stack = static_cast<char*>(map) + kGuardBytes;
  MakeContext(&fiber->context, fiber->stack, &FiberMain);
  return fiber;
}

void Runner::Start(Fiber* fiber) {
  fiber->thread = &threads_[order_.back()];
  order_.pop_back();
  fiber->thread->fiber = fiber;
  current.thread = fiber->thread->index;
}

// From the host's stack to the fibre's; returns when that waits or is idle.
void Runner::Resume(Fiber* fiber) {
  running_ = fiber;
  if (fiber->thread != nullptr) {
    current.thread = fiber->thread->index;
  }
#ifdef WEIR_EMULATOR_ASAN
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, fiber->stack, kStackBytes);
#endif
  weir_emulator_switch(&host_, &fiber->context);
#ifdef WEIR_EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  if (fiber->thread == nullptr) {
    idle_.push_back(fiber);
  }
}

void Runner::Leave(Fiber* fiber) {
#ifdef WEIR_EMULATOR_ASAN
  __sanitizer_start_switch_fiber(&fiber->fake_stack, host_stack_,
                                 host_stack_bytes_);
#endif
  weir_emulator_switch(&fiber->context, &host_);
#ifdef WEIR_EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(fiber->fake_stack, &host_stack_,
                                  &host_stack_bytes_);
#endif
}

void Runner::WaitFor(Wait wait, Site site) {
  Fiber* const fiber = running_;
  fiber->thread->wait = wait;
  fiber->thread->site = site;
  Leave(fiber);
}

uint64_t Runner::Exchange(unsigned mask, uint64_t value, unsigned source,
                          Site site) {
  Thread& thread = *running_->thread;
  if ((mask >> Lane() & 1u) == 0) {
    Die("%s:%d: lane %u is not in its own mask 0x%08x", site.file, site.line,
        Lane(), mask);
  }
  thread.mask = mask;
  thread.source = source;
  thread.value = value;
  WaitFor(Wait::kWarp, site);
  return thread.value;
}

bool SameSite(const Site& a, const Site& b) {
  return a.line == b.line && std::strcmp(a.file, b.file) == 0;
}

// I2: lets one complete group of lanes of the warp [begin, end) through, if
// there is one. Lanes that ended, or that the block does not have, need not
// come.
bool Runner::LetWarpThrough(size_t begin, size_t end) {
  for (size_t first = begin; first < end; ++first) {
    const Thread& like = threads_[first];
    if (like.wait != Wait::kWarp) {
      continue;
    }
    unsigned group = 0;
    bool complete = true;
    for (size_t i = begin; i < end; ++i) {
      const Thread& thread = threads_[i];
      if ((like.mask >> (i - begin) & 1u) == 0 || thread.done) {
        continue;
      }
      complete = complete && thread.wait == Wait::kWarp &&
                 thread.mask == like.mask && SameSite(thread.site, like.site);
      group |= 1u << (i - begin);
    }
    if (!complete) {
      continue;
    }
    uint64_t given[kWarp];
    uint64_t votes = 0;
    for (size_t i = begin; i < end; ++i) {
      const bool in = (group >> (i - begin) & 1u) != 0;
      given[i - begin] = in ? threads_[i].value : ~uint64_t{0};
      votes |= in && threads_[i].value == 1 ? uint64_t{1} << (i - begin) : 0;
    }
    for (size_t i = begin; i < end; ++i) {
      Thread& thread = threads_[i];
      if ((group >> (i - begin) & 1u) == 0) {
        continue;
      }
      if (thread.source == kBallot) {
        thread.value = votes;
      } else if (thread.source >= (end - begin)) {
        thread.value = ~uint64_t{0};  // a lane that the block does not have
      } else {
        thread.value = given[thread.source];
      }
      thread.wait = Wait::kNone;
      ready_.push_back(&thread);
    }
    return true;
  }
  return false;
}

void Runner::LetThrough(Random& random) {
  for (size_t begin = 0; begin < threads_.size(); begin += kWarp) {
    while (LetWarpThrough(begin, std::min(begin + kWarp, threads_.size()))) {
    }
  }
  if (ready_.empty()) {
    for (const Thread& thread : threads_) {
      if (thread.done || thread.wait != Wait::kBarrier ||
          !SameSite(thread.site, threads_.front().site)) {
        DieOfDivergence();
      }
    }
    for (Thread& thread : threads_) {
      thread.wait = Wait::kNone;
      ready_.push_back(&thread);
    }
  }
  for (size_t i = ready_.size(); i > 1; --i) {
    std::swap(ready_[i - 1], ready_[random.Below(i)]);
  }
}

void Runner::DieOfDivergence() const {
  std::map<std::string, int> waits;
  for (const Thread& thread : threads_) {
    if (!thread.done) {
      ++waits[std::string(thread.wait == Wait::kBarrier ? "__syncthreads()"
                                                        : "a warp primitive") +
              " in " + thread.site.file + ":" +
              std::to_string(thread.site.line)];
    }
  }
  std::string where;
  for (const auto& [wait, count] : waits) {
    where += ", " + std::to_string(count) + " wait at " + wait;
  }
  Die("divergent __syncthreads() or warp primitive: of the %zu threads of "
      "block (%u, %u, %u) %zu ended%s",
      threads_.size(), current.block.x, current.block.y, current.block.z,
      finished_, where.c_str());
}

void Runner::RunBlock(dim3 block, const std::function<void()>& body,
                      Random& random) {
  const size_t count = size_t{block.x} * block.y * block.z;
  body_ = &body;
  finished_ = 0;
  threads_.assign(count, Thread());
  order_.resize(count);
  for (const auto& [begin, end] : SharedMemory()) {
    std::memset(begin, 0xff, static_cast<size_t>(end - begin));
  }
  RandomOrder order(count, random);
  for (size_t i = 0; i < count; ++i) {
    const auto row = static_cast<unsigned>(i / block.x);
    threads_[i].index = {static_cast<unsigned>(i % block.x), row % block.y,
                         row / block.y};
    order_[i] = static_cast<uint32_t>(order.Next());
  }
  while (finished_ < count) {
    if (!order_.empty()) {
      if (idle_.empty()) {
        idle_.push_back(NewFiber());
      }
      Fiber* const fiber = idle_.back();
      idle_.pop_back();
      Resume(fiber);
    } else if (!ready_.empty()) {
      Fiber* const fiber = ready_.back()->fiber;
      ready_.pop_back();
      Resume(fiber);
    } else {
      LetThrough(random);
    }
  }
}

}  // namespace

void Die(const char* format, ...) {
  std::va_list args;
  va_start(args, format);
  std::fputs("weir_emulator: ", stderr);
  std::vfprintf(stderr, format, args);
  std::fputs("\n", stderr);
  va_end(args);
  std::abort();
}

void RunGrid(dim3 grid, dim3 block, const std::function<void()>& thread,
             Random& random) {
  current.grid_dim = grid;
  current.block_dim = block;
  const uint64_t count = uint64_t{grid.x} * grid.y * grid.z;
  RandomOrder order(count, random);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t index = order.Next();
    const uint64_t row = index / grid.x;
    current.block = {static_cast<unsigned>(index % grid.x),
                     static_cast<unsigned>(row % grid.y),
                     static_cast<unsigned>(row / grid.y)};
    TheRunner().RunBlock(block, thread, random);
  }
}

bool PoisonBeforeBlocks(char* begin, char* end) {
  if (begin != end) {
    SharedMemory()[begin] = end;
  }
  return true;
}

void SyncThreads(Site site) { TheRunner().SyncThreads(site); }

uint64_t Shuffle(unsigned mask, uint64_t value, unsigned source, Site site) {
  return TheRunner().Exchange(mask, value, source, site);
}

unsigned Ballot(unsigned mask, bool predicate, Site site) {
  return static_cast<unsigned>(
      TheRunner().Exchange(mask, predicate ? 1 : 0, kBallot, site));
}

unsigned Lane() { return TheRunner().Lane(); }

}  // namespace weir_emulator
