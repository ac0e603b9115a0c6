#include "common/threads/scheduler.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "common/threads/fiber_context.h"
#include "common/threads/fiber_stacks.h"
#include "common/threads/host_clocks.h"

namespace weir::sim {
namespace {

constexpr uint64_t kStepNsMax = 2000;
// Of waits without a reason; pthread_cond_wait may end so as well.
constexpr uint64_t kNoReasonOneIn = 256;
// A world that moves on so often without any time to wait for runs in a circle.
constexpr uint64_t kSwitchesMax = uint64_t{1} << 32;

uint64_t Mix(uint64_t x) {  // SplitMix64, Steele, Lea and Flood, 2014
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

void Die(const char* what) {
  std::fprintf(stderr, "simulator: %s\n", what);
  std::abort();
}

// What the C++ runtime keeps for each thread: the exceptions that are caught
// and the number of those on their way.
struct Exceptions {
  void* caught = nullptr;
  unsigned int uncaught = 0;
};

Exceptions& ExceptionsOfThread() {
  return *reinterpret_cast<Exceptions*>(abi::__cxa_get_globals());
}

}  // namespace

class Fiber {
 public:
  int number = 0;
  int process = 0;
  std::function<void()> body;
  bool ended = false;
  bool killed = false;
  WaitQueue* queue = nullptr;  // that it waits in
  std::optional<int64_t> deadline_ns;
  bool timed_out = false;
  bool late = false;  // its deadline is the end of a slow process's delay
  WaitQueue joiners;
  char* stack = nullptr;
  FiberContext context;
  Exceptions exceptions;
};

namespace {

class World {
 public:
  World(uint64_t seed, const std::function<void()>& main)
      : state_(seed),
        trace_(std::getenv("WEIR_SIM_TRACE") != nullptr) {  // NOLINT
    // Some worlds change fibres at nearly every point, others seldom.
    yield_one_in_ = uint64_t{1} << (1 + Below(5));
    main_ = New(main);
  }

  Outcome Go();

  Fiber* New(std::function<void()> body) {
    auto fiber = std::make_unique<Fiber>();
    fiber->number = static_cast<int>(fibers_.size());
    fiber->process = start_as_;
    fiber->body = std::move(body);
    Fiber* const raw = fiber.get();
    fibers_.push_back(std::move(fiber));
    MakeRunnable(raw);
    return raw;
  }

  // I1: all that a world draws comes from here.
  uint64_t Next() { return Mix(state_ += 0x9e3779b97f4a7c15); }
  uint64_t Below(uint64_t bound) { return Next() % bound; }

  void MayYield() {
    ++outcome_.points;
    if (Below(yield_one_in_) == 0) {
      runnable_.push_back(running_);
      Leave();
    }
  }

  bool Wait(WaitQueue* queue, std::optional<std::chrono::nanoseconds> timeout) {
    ++outcome_.points;
    Fiber* const fiber = running_;
    fiber->timed_out = false;
    if (Below(kNoReasonOneIn) == 0 && queue != nullptr) {
      runnable_.push_back(fiber);
      Leave();
      return true;
    }
    if (queue != nullptr) {
      queue->push_back(fiber);
      fiber->queue = queue;
    }
    if (timeout.has_value()) {
      constexpr int64_t kForeverNs = int64_t{1} << 61;
      fiber->deadline_ns =
          now_ns_ + std::clamp<int64_t>(timeout->count(), 0, kForeverNs);
      timers_.emplace(*fiber->deadline_ns, fiber->number);
    }
    Leave();
    return !fiber->timed_out;
  }

  // As Wait, but only Wake ends it.
  void WaitFirmly(WaitQueue* queue) {
    Fiber* const fiber = running_;
    queue->push_back(fiber);
    fiber->queue = queue;
    Leave();
  }

  void Wake(WaitQueue* queue, size_t count) {
    ++outcome_.points;
    for (; count > 0 && !queue->empty(); --count) {
      Fiber* const fiber = queue->front();
      queue->pop_front();
      fiber->queue = nullptr;
      MakeRunnable(fiber);
    }
  }

  void Kill(int process) {
    if (running_->process == process) {
      Die("a process cannot kill itself");
    }
    for (const auto& fiber : fibers_) {
      if (fiber->process != process || fiber->ended || fiber->killed) {
        continue;
      }
      fiber->killed = true;
      std::erase(runnable_, fiber.get());
      std::erase(halted_, fiber.get());
      ForgetTimer(fiber.get());
      if (fiber->queue != nullptr) {
        fiber->queue->remove(fiber.get());
        fiber->queue = nullptr;
      }
      Wake(&fiber->joiners, fiber->joiners.size());
    }
  }

  void Pause(int process) {
    if (paused_.insert(process).second) {
      Move(process, &runnable_, &halted_);
    }
  }
  void Continue(int process) {
    if (paused_.erase(process) > 0) {
      Move(process, &halted_, &runnable_);
    }
  }
  void SetSlow(int process, std::chrono::nanoseconds delay_max) {
    slow_[process] = delay_max;
  }
  void MoveWaits(std::chrono::nanoseconds by) {
    for (const auto& fiber : fibers_) {
      if (fiber->queue != nullptr && fiber->deadline_ns.has_value()) {
        timers_.erase({*fiber->deadline_ns, fiber->number});
        *fiber->deadline_ns -= by.count();
        timers_.emplace(*fiber->deadline_ns, fiber->number);
      }
    }
  }

  void Hash(uint64_t value) { outcome_.hash = Mix(outcome_.hash * 31 + value); }
  void Note(const std::string& text) {
    for (const char c : text) {
      Hash(static_cast<unsigned char>(c));
    }
    if (trace_) {
      std::fprintf(stderr, "%.6f %d.%d %s\n",
                   static_cast<double>(now_ns_) * 1e-9, running_->process,
                   running_->number, text.c_str());
    }
  }

  Fiber* running() const { return running_; }
  int64_t now_ns() const { return now_ns_; }
  int start_as() const { return start_as_; }
  void SetStartAs(int process) { start_as_ = process; }

 private:
  static void Main();

  // In their order.
  static void Move(int process, std::vector<Fiber*>* from,
                   std::vector<Fiber*>* to) {
    const auto moved = std::stable_partition(
        from->begin(), from->end(),
        [process](const Fiber* fiber) { return fiber->process != process; });
    to->insert(to->end(), moved, from->end());
    from->erase(moved, from->end());
  }
  void MakeRunnable(Fiber* fiber) {
    ForgetTimer(fiber);
    const auto slow = slow_.find(fiber->process);
    if (slow != slow_.end() && slow->second.count() > 0 &&
        !std::exchange(fiber->late, true)) {
      fiber->deadline_ns =
          now_ns_ + static_cast<int64_t>(
                        Below(static_cast<uint64_t>(slow->second.count())));
      timers_.emplace(*fiber->deadline_ns, fiber->number);
      return;
    }
    fiber->late = false;
    (paused_.contains(fiber->process) ? halted_ : runnable_).push_back(fiber);
  }
  void ForgetTimer(Fiber* fiber) {
    if (fiber->deadline_ns.has_value()) {
      timers_.erase({*fiber->deadline_ns, fiber->number});
      fiber->deadline_ns.reset();
    }
  }
  void FireTimers() {
    while (!timers_.empty() && timers_.begin()->first <= now_ns_) {
      Fiber* const fiber =
          fibers_[static_cast<size_t>(timers_.begin()->second)].get();
      fiber->timed_out = fiber->timed_out || !fiber->late;
      if (fiber->queue != nullptr) {
        fiber->queue->remove(fiber);
        fiber->queue = nullptr;
      }
      MakeRunnable(fiber);
    }
  }
  void Leave() {
    ++outcome_.switches;
    Fiber* const fiber = running_;
    fiber->exceptions = ExceptionsOfThread();
    FiberContext::Switch(&fiber->context, &host_);
  }
  void Resume(Fiber* fiber);
  std::string Stuck() const;

  uint64_t state_;
  const bool trace_;
  uint64_t yield_one_in_ = 1;
  int start_as_ = 0;
  int64_t now_ns_ = 1'000'000'000;
  Outcome outcome_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> runnable_;
  std::vector<Fiber*> halted_;  // could run, but for their processes
  std::set<int> paused_;        // processes
  std::map<int, std::chrono::nanoseconds> slow_;  // processes
  std::set<std::pair<int64_t, int>> timers_;  // deadline, number of the fibre
  FiberStacks stacks_;
  Fiber* main_ = nullptr;
  Fiber* running_ = nullptr;
  FiberContext host_;  // the loop that changes them
};

World* world = nullptr;

void World::Main() {
  Fiber* const fiber = world->running_;
  fiber->body();
  fiber->body = nullptr;
  fiber->ended = true;
  world->Wake(&fiber->joiners, fiber->joiners.size());
  world->Leave();
  Die("a fibre went on after its end");
}

void Free(Lock* lock) {
  lock->owner = nullptr;
  world->Wake(&lock->waiting, 1);
}

void World::Resume(Fiber* fiber) {
  running_ = fiber;
  start_as_ = fiber->process;
  if (fiber->stack == nullptr) {
    fiber->stack = stacks_.Take();
    if (fiber->stack == nullptr) {
      Die("no memory for the stack of a fibre");
    }
    fiber->context.Begin(fiber->stack, FiberStacks::kBytes, &World::Main);
  }
  ExceptionsOfThread() = fiber->exceptions;  // none where it begins
  FiberContext::Switch(&host_, &fiber->context);
  running_ = nullptr;
  if (fiber->ended) {
    stacks_.GiveBack(fiber->stack);
    fiber->stack = nullptr;
  }
}

std::string World::Stuck() const {
  std::map<int, int> waiting;  // by process
  for (const auto& fiber : fibers_) {
    if (!fiber->ended && !fiber->killed) {
      ++waiting[fiber->process];
    }
  }
  std::string text = "no fibre can go on, and none waits for a time:";
  for (const auto& [process, count] : waiting) {
    text +=
        " " + std::to_string(count) + " of process " + std::to_string(process);
  }
  return text;
}

Outcome World::Go() {
  while (!main_->ended) {
    if (runnable_.empty()) {
      if (timers_.empty()) {
        outcome_.stuck = Stuck();
        break;
      }
      now_ns_ = std::max(now_ns_, timers_.begin()->first);  // I2
    }
    if (outcome_.switches > kSwitchesMax) {
      outcome_.stuck = "the world runs in a circle";
      break;
    }
    now_ns_ += 1 + static_cast<int64_t>(Below(kStepNsMax));
    FireTimers();
    if (runnable_.empty()) {
      continue;  // those whose time has come are halted
    }
    const size_t at = Below(runnable_.size());
    Fiber* const next = runnable_[at];
    runnable_[at] = runnable_.back();
    runnable_.pop_back();
    Hash(static_cast<uint64_t>(next->number));
    Hash(static_cast<uint64_t>(now_ns_));
    Resume(next);
  }
  for (auto& fiber : fibers_) {
    if (fiber->stack != nullptr) {
      stacks_.GiveBack(fiber->stack);
    }
    if (!fiber->ended) {
      (void)fiber.release();  // what it owns is not unwound
    }
  }
  outcome_.time = std::chrono::nanoseconds(now_ns_ - 1'000'000'000);
  return outcome_;
}

}  // namespace

Outcome RunWorld(uint64_t seed, const std::function<void()>& main) {
  if (world != nullptr) {
    Die("one world at a time");
  }
  World here(seed, main);
  world = &here;
  ResetHostClocks();
  const Outcome outcome = here.Go();
  world = nullptr;
  return outcome;
}

Fiber* Start(std::function<void()> body) {
  if (world == nullptr) {
    Die("a thread outside of a world");
  }
  Fiber* const fiber = world->New(std::move(body));
  world->MayYield();
  return fiber;
}

bool Join(Fiber* fiber) {
  while (!fiber->ended && !fiber->killed) {
    world->WaitFirmly(&fiber->joiners);
  }
  return fiber->ended;
}

void MayYield() {
  if (world != nullptr) {
    world->MayYield();
  }
}

bool Wait(WaitQueue* queue, Lock* lock,
          std::optional<std::chrono::nanoseconds> timeout) {
  if (world == nullptr) {
    Die("a wait outside of a world never ends");
  }
  if (lock != nullptr) {
    Free(lock);
  }
  const bool woken = world->Wait(queue, timeout);
  if (lock != nullptr) {
    Acquire(lock);
  }
  return woken;
}

void Wake(WaitQueue* queue, size_t count) {
  if (world != nullptr) {
    world->Wake(queue, count);
    world->MayYield();
  }
}

void SleepFor(std::chrono::nanoseconds time) { Wait(nullptr, nullptr, time); }

std::chrono::nanoseconds Now() {
  return std::chrono::nanoseconds(world == nullptr ? 0 : world->now_ns());
}

uint64_t Random() {
  static uint64_t outside = 0;
  return world == nullptr ? Mix(++outside) : world->Next();
}

uint64_t RandomBelow(uint64_t bound) { return Random() % bound; }

int Process() { return world == nullptr ? 0 : world->running()->process; }

void StartAs(int process, const std::function<void()>& start) {
  const int before = world->start_as();
  world->SetStartAs(process);
  world->New(start);
  world->SetStartAs(before);
}

void Kill(int process) { world->Kill(process); }

void Pause(int process) { world->Pause(process); }

void Continue(int process) { world->Continue(process); }

void SetSlow(int process, std::chrono::nanoseconds delay_max) {
  world->SetSlow(process, delay_max);
}

void MoveWaits(std::chrono::nanoseconds by) { world->MoveWaits(by); }

void Note(const std::string& text) {
  if (world != nullptr) {
    world->Note(text);
  }
}

void Acquire(Lock* lock) {
  if (world == nullptr) {
    return;
  }
  world->MayYield();
  while (lock->owner != nullptr) {
    if (lock->owner == world->running()) {
      Die("a fibre locks what it holds");
    }
    world->WaitFirmly(&lock->waiting);
  }
  lock->owner = world->running();
}

void Release(Lock* lock) {
  if (world == nullptr) {
    return;
  }
  Free(lock);
  world->MayYield();
}

}  // namespace weir::sim
