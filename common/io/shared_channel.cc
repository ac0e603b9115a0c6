#include "common/io/shared_channel.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <ctime>
#include <utility>

#include "common/base/check.h"

namespace weir {
namespace {

// How often Wait looks before it sleeps: for some tens of microseconds, as long
// as a sleep and a wake take. Measured with 2 cores on 2026-11-21: a push-pull
// of 1 KiB takes 23 us with 200 and 6.5 us with 1000 or 4000, and two workers
// with two ps on the two cores train no slower.
constexpr int kSpins = 1000;

constexpr size_t kBellStride = 64;
constexpr size_t kRingsBegin = 128;
constexpr size_t kRingStride = 192;
constexpr size_t kDataBegin = 512;

uint64_t Padded(size_t bytes) { return (sizeof(uint32_t) + bytes + 7) / 8 * 8; }

// std::copy and not memcpy, since a part may be empty and then has no address.
// I1: `at` is this side's own counter, and the ring's size is a constant.
void CopyIn(char* ring, uint64_t at, std::span<const char> bytes) {
  const size_t begin = at % SharedChannel::kRingBytes;
  const size_t first =
      std::min(bytes.size(), SharedChannel::kRingBytes - begin);
  std::copy_n(bytes.begin(), first, ring + begin);
  std::copy(bytes.begin() + first, bytes.end(), ring);
}

void CopyOut(const char* ring, uint64_t at, std::span<char> bytes) {
  const size_t begin = at % SharedChannel::kRingBytes;
  const size_t first =
      std::min(bytes.size(), SharedChannel::kRingBytes - begin);
  std::copy_n(ring + begin, first, bytes.begin());
  std::copy_n(ring, bytes.size() - first, bytes.begin() + first);
}

}  // namespace

struct SharedChannel::Bell {
  std::atomic<uint32_t> count;
  std::atomic<uint32_t> sleepers;
};

struct SharedChannel::RingState {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) std::atomic<uint32_t> full;
};

SharedChannel::SharedChannel(std::shared_ptr<SharedMemory> memory, Side side)
    : memory_(std::move(memory)),
      own_bell_(reinterpret_cast<Bell*>(memory_->data() + side * kBellStride)),
      other_bell_(
          reinterpret_cast<Bell*>(memory_->data() + (1 - side) * kBellStride)),
      out_(reinterpret_cast<RingState*>(memory_->data() + kRingsBegin +
                                        side * kRingStride)),
      in_(reinterpret_cast<RingState*>(memory_->data() + kRingsBegin +
                                       (1 - side) * kRingStride)),
      out_data_(memory_->data() + kDataBegin + side * kRingBytes),
      in_data_(memory_->data() + kDataBegin + (1 - side) * kRingBytes) {
  static_assert(sizeof(RingState) == kRingStride);
  static_assert(kRingsBegin + 2 * kRingStride <= kDataBegin);
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  WEIR_CHECK(memory_->bytes() == kMemoryBytes);
}

bool SharedChannel::TryWrite(std::span<const char> first,
                             std::span<const char> second) {
  const size_t bytes = first.size() + second.size();
  WEIR_CHECK(bytes <= kMessageBytesMax);
  const uint64_t needed = Padded(bytes);
  // I1: `read` is the other side's. A number that cannot be makes `used` huge,
  // and the ring counts as full.
  const auto room = [&] {
    const uint64_t used = written_ - out_->read.load(std::memory_order_seq_cst);
    return used <= kRingBytes && kRingBytes - used >= needed;
  };
  // The second look closes a race: the reader may have made room after the
  // first one and looked at `full` before it was set. In one order of all
  // (seq_cst), either it sees `full` or this side sees the room.
  if (!room()) {
    out_->full.store(1, std::memory_order_seq_cst);
    if (!room()) {
      return false;
    }
  }
  const uint32_t length = static_cast<uint32_t>(bytes);
  char prefix[sizeof(length)];
  std::memcpy(prefix, &length, sizeof(length));
  CopyIn(out_data_, written_, prefix);
  CopyIn(out_data_, written_ + sizeof(length), first);
  CopyIn(out_data_, written_ + sizeof(length) + first.size(), second);
  // Only now does the reader see the message: it looks at `written` first.
  written_ += needed;
  out_->written.store(written_, std::memory_order_seq_cst);
  RingBell(other_bell_);
  return true;
}

absl::StatusOr<bool> SharedChannel::TryRead(std::string* message) {
  const uint64_t written = in_->written.load(std::memory_order_acquire);
  const uint64_t there = written - read_;
  if (there == 0) {
    return false;
  }
  uint32_t length = 0;
  char prefix[sizeof(length)];
  CopyOut(in_data_, read_, prefix);
  std::memcpy(&length, prefix, sizeof(length));
  // I1: the length was copied out once, and is checked before it is used.
  if (there > kRingBytes || length > kMessageBytesMax ||
      Padded(length) > there) {
    return absl::DataLossError("the shared ring is broken by the other side");
  }
  message->resize(length);
  CopyOut(in_data_, read_ + sizeof(length), {message->data(), length});
  read_ += Padded(length);
  in_->read.store(read_, std::memory_order_seq_cst);
  if (in_->full.load(std::memory_order_seq_cst) != 0) {
    in_->full.store(0, std::memory_order_seq_cst);
    RingBell(other_bell_);
  }
  return true;
}

uint32_t SharedChannel::bell() const {
  return own_bell_->count.load(std::memory_order_acquire);
}

void SharedChannel::Wait(uint32_t seen, std::chrono::nanoseconds timeout) {
  for (int i = 0; i < kSpins; ++i) {
    if (bell() != seen) {
      return;
    }
    __builtin_ia32_pause();
  }
  // First a sleeper, then the last look: whoever rings counts first and then
  // looks for sleepers, so one of the two sees the other. A ring between the
  // look and the sleep changes the count, and FUTEX_WAIT returns at once.
  own_bell_->sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (own_bell_->count.load(std::memory_order_seq_cst) == seen) {
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(timeout);
    const timespec relative = {static_cast<time_t>(seconds.count()),
                               static_cast<long>((timeout - seconds).count())};
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&own_bell_->count),
            FUTEX_WAIT, seen, &relative, nullptr, 0);
  }
  own_bell_->sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void SharedChannel::Ring() { RingBell(own_bell_); }

void SharedChannel::RingBell(Bell* bell) {
  bell->count.fetch_add(1, std::memory_order_seq_cst);
  if (bell->sleepers.load(std::memory_order_seq_cst) != 0) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&bell->count), FUTEX_WAKE,
            INT_MAX, nullptr, nullptr, 0);
  }
}

}  // namespace weir
