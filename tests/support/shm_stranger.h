// A client of a ps's shared memory that says what a test wants it to say.
#ifndef TESTS_SUPPORT_SHM_STRANGER_H_
#define TESTS_SUPPORT_SHM_STRANGER_H_

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "common/io/shared_channel.h"
#include "common/io/shared_memory.h"
#include "common/io/unix_socket.h"
#include "proto/wire/shm_message.h"

namespace weir {

template <typename Record>
std::span<const char> RecordOf(const Record& record) {
  return {reinterpret_cast<const char*>(&record), sizeof(record)};
}

// Connects when it is made. Open must follow before anything else is sent.
struct ShmStranger {
  explicit ShmStranger(const std::string& name)
      : socket(*UnixSocket::Connect(name)) {}

  // Opens a session with a ticket of the ps; OK when that has answered with its
  // arena.
  absl::Status Open(const std::string& ticket) {
    ShmOpening opening;
    std::copy_n(ticket.begin(), std::min(ticket.size(), opening.ticket.size()),
                opening.ticket.begin());
    opening.bytes = memory->bytes();
    absl::Status status = socket.Send(RecordOf(opening), memory->fd());
    if (status.ok()) {
      ShmOpening answer;
      status = socket.Receive(RecordBytes(&answer)).status();
    }
    return status;
  }

  // Hands over `bytes` of new memory, or what the ps is to take for that.
  absl::Status SendRegion(uint64_t id, uint64_t bytes, int fd) {
    ShmRegion region;
    region.id = id;
    region.bytes = bytes;
    return socket.Send(RecordOf(region), fd);
  }

  // The code with which the ps ends the session; UNAVAILABLE without a word.
  absl::StatusCode End() {
    std::string message;
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < end) {
      const uint32_t seen = channel.bell();
      // Before the ring is looked at: all answers are in it when the ps closes.
      const bool closed = socket.WaitReadable(std::chrono::milliseconds(0));
      if (*channel.TryRead(&message)) {
        ShmAnswer head;
        std::span<const char> chunk;
        std::span<const char> rest;
        if (!ParseShm(message, &head, &chunk, &rest).ok()) {
          return absl::StatusCode::kDataLoss;
        }
        if (head.kind == ShmAnswer::kEnd) {
          return static_cast<absl::StatusCode>(head.code);
        }
      } else if (closed) {
        return absl::StatusCode::kUnavailable;
      } else {
        channel.Wait(seen, std::chrono::milliseconds(10));
      }
    }
    return absl::StatusCode::kDeadlineExceeded;
  }

  std::shared_ptr<SharedMemory> memory =
      *SharedMemory::Create(SharedChannel::kMemoryBytes);
  SharedChannel channel{memory, SharedChannel::kClient};
  UnixSocket socket;
};

}  // namespace weir

#endif  // TESTS_SUPPORT_SHM_STRANGER_H_
