// Carries messages both ways between two processes, through memory that both
// map.
//
// Place: the shared-memory transport sends its short messages here. The bulk
// bytes that they refer to are elsewhere in shared memory.
//
// The memory, offsets in bytes:
//      0  client bell    u32 count, u32 sleepers
//     64  server bell    the same
//    128  ring to server u64 written, at +64 u64 read, at +128 u32 full
//    320  ring to client the same
//    512  to server      kRingBytes
//         to client      kRingBytes
//   A message is a u32 length, the bytes, and padding up to a multiple of 8; it
//   wraps at the ring's end. `written` and `read` count bytes and never go
//   back.
//
// Terms
//   bell  counts how often a side should look. It is a futex for those who
//         sleep. It is rung after a message was written, and after one was read
//         if the writer had found its ring full.
//
// Invariants
//   I1. Nothing that the other side writes can make this side read or write
//       outside the memory: counters are checked against this side's own copy,
//       and a message is copied out before anybody looks at it.
// Threads: one writer and one reader at a time on each side; any thread may
//   call Wait and Ring.
// Errors: DATA_LOSS  the other side's counters or lengths are impossible.
#ifndef COMMON_IO_SHARED_CHANNEL_H_
#define COMMON_IO_SHARED_CHANNEL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "common/io/shared_memory.h"

namespace weir {

class SharedChannel {
 public:
  enum Side { kClient, kServer };
  static constexpr size_t kRingBytes = 256 << 10;
  static constexpr size_t kMemoryBytes = 512 + 2 * kRingBytes;
  static constexpr size_t kMessageBytesMax = 64 << 10;

  // REQUIRES: `memory` has kMemoryBytes.
  SharedChannel(std::shared_ptr<SharedMemory> memory, Side side);

  // Writes the parts as one message and rings the other side. Returns false if
  // there is no room; this side's bell rings once there may be.
  // REQUIRES: the parts have at most kMessageBytesMax together.
  bool TryWrite(std::span<const char> first, std::span<const char> second);
  // Takes the next message; false if there is none.
  absl::StatusOr<bool> TryRead(std::string* message);

  // How often this side's bell has rung.
  uint32_t bell() const;
  // Blocks until bell() is not `seen`, or `timeout` has passed.
  void Wait(uint32_t seen, std::chrono::nanoseconds timeout);
  // Rings this side's own bell.
  void Ring();

 private:
  struct Bell;
  struct RingState;

  static void RingBell(Bell* bell);

  const std::shared_ptr<SharedMemory> memory_;
  Bell* const own_bell_;
  Bell* const other_bell_;
  RingState* const out_;
  RingState* const in_;
  char* const out_data_;
  const char* const in_data_;
  uint64_t written_ = 0;  // own copies of what this side counts
  uint64_t read_ = 0;
};

}  // namespace weir

#endif  // COMMON_IO_SHARED_CHANNEL_H_
