// A library that is preloaded into a program and moves its wall clock.
//
//   LD_PRELOAD=preload_clock.so WEIR_TEST_WALL_OFFSET=<file> weir_ps ...
//
// <file> holds the offset, 8 bytes, nanoseconds; it is read anew at every call,
// so a test moves the clock of a running process by writing into the file. What
// waits until a wall-clock time follows: condition variables that were not made
// for the monotonic clock, and Abseil's futexes (of which gRPC's threads are).
// The monotonic clock is left alone.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
// How often a wait looks whether the clock was moved.
constexpr int64_t kLookEveryNs = 50'000'000;

const std::atomic<int64_t>* MapOffset() {
  const char* path = getenv("WEIR_TEST_WALL_OFFSET");  // NOLINT
  const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  void* const mapped =
      file < 0 ? MAP_FAILED
               : mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (file >= 0) {
    close(file);
  }
  static constexpr std::atomic<int64_t> kNone{0};
  return mapped == MAP_FAILED
             ? &kNone
             : static_cast<const std::atomic<int64_t>*>(mapped);
}

int64_t OffsetNs() {
  static const std::atomic<int64_t>* const offset = MapOffset();
  return offset->load(std::memory_order_relaxed);
}

// The kernel's clock.
int64_t RealNowNs() {
  timespec now = {};
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
  return now.tv_sec * kSecondNs + now.tv_nsec;
}

int64_t Nanoseconds(const timespec& time) {
  return time.tv_sec * kSecondNs + time.tv_nsec;
}

timespec Time(int64_t ns) {
  return {static_cast<time_t>(ns / kSecondNs),
          static_cast<long>(ns % kSecondNs)};
}

// Calls wait(until), with a time of the kernel's clock, until the moved clock
// says `deadline` or the wait ends otherwise.
template <class Wait>
auto WaitUntil(const timespec& deadline, const Wait& wait,
               decltype(wait(nullptr)) timed_out) {
  while (true) {
    const int64_t now = RealNowNs();
    const int64_t left = Nanoseconds(deadline) - (now + OffsetNs());
    const timespec until =
        Time(now + std::clamp<int64_t>(left, 0, kLookEveryNs));
    const auto result = wait(&until);
    if (result != timed_out || left <= kLookEveryNs) {
      return result;
    }
  }
}

template <class Function>
Function* Next(const char* name, const char* version) {
  return reinterpret_cast<Function*>(dlvsym(RTLD_NEXT, name, version));
}

// glibc keeps the clock of a condition variable in bit 1 of its __wrefs.
bool IsMonotonic(const pthread_cond_t* cond) {
  return (cond->__data.__wrefs & 2) != 0;
}

long Syscall(long number, long a, long b, long c, long d, long e, long f) {
  static auto* const next = Next<long(long, ...)>("syscall", "GLIBC_2.2.5");
  return next(number, a, b, c, d, e, f);
}

bool WaitsForWallTime(long number, long operation, long timeout) {
  return number == SYS_futex && timeout != 0 &&
         (operation & FUTEX_CLOCK_REALTIME) != 0 &&
         (operation & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, now);
  if (result == 0 &&
      (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    *now = Time(Nanoseconds(*now) + OffsetNs());
  }
  return static_cast<int>(result);
}

int gettimeofday(timeval* now, void* /*zone*/) noexcept {
  const int64_t ns = RealNowNs() + OffsetNs();
  now->tv_sec = ns / kSecondNs;
  now->tv_usec = ns % kSecondNs / 1000;
  return 0;
}

time_t time(time_t* out) noexcept {
  const time_t now = (RealNowNs() + OffsetNs()) / kSecondNs;
  if (out != nullptr) {
    *out = now;
  }
  return now;
}

int pthread_cond_timedwait(pthread_cond_t* cond, pthread_mutex_t* mutex,
                           const timespec* deadline) {
  static auto* const next =
      Next<int(pthread_cond_t*, pthread_mutex_t*, const timespec*)>(
          "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (IsMonotonic(cond)) {
    return next(cond, mutex, deadline);
  }
  return WaitUntil(
      *deadline,
      [&](const timespec* until) { return next(cond, mutex, until); },
      ETIMEDOUT);
}

// Only absl's futex takes a wall-clock time; other calls are passed on.
long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& one : a) {
    one = va_arg(list, long);
  }
  va_end(list);
  if (!WaitsForWallTime(number, a[1], a[3])) {
    return Syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  }
  return WaitUntil(
      *reinterpret_cast<const timespec*>(a[3]),
      [&](const timespec* until) -> long {
        const long result = Syscall(number, a[0], a[1], a[2],
                                    reinterpret_cast<long>(until), a[4], a[5]);
        return result == -1 ? -errno : result;
      },
      static_cast<long>(-ETIMEDOUT));
}

}  // extern "C"
