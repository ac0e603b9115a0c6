// One client's stream of PushPull, PullRows or PushRows through shared memory.
//
// Place: beside parameter_service.cc's calls; proto/wire/shm_message.h is the
// specification. Gradients of blocks are applied from the client's memory,
// values are read by the client from the arena: nothing is copied here.
//
// Invariants
//   I1. A pinned block is released when the client says so or is gone.
//   I2. Nothing of the client's memory is touched after Run returns.
//   I3. What a client does wrong, and what the system has no room for, ends
//       this session, with one line of the log.
// Threads: Run is called on the session's own thread. It starts a second one,
//   which hears of new regions and of the client's end. Answers come from any
//   thread.
#ifndef SERVER_PS_SERVICE_SHM_SESSION_H_
#define SERVER_PS_SERVICE_SHM_SESSION_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/io/shared_channel.h"
#include "common/io/shared_memory.h"
#include "common/io/unix_socket.h"
#include "common/threads/thread.h"
#include "proto/wire/shm_message.h"
#include "server/ps/memory/shared_arena.h"
#include "server/ps/service/answer_flow.h"
#include "server/ps/service/shm_tickets.h"

namespace weir {

class ShmSession : public AnswerFlow {
 public:
  // Answers that a client may hold pinned, or leave without room in the ring:
  // as many as gRPC would have on its way, so that as few pushes have to copy a
  // block.
  static constexpr size_t kPinnedMax = 8;

  // `opening_wait` is how long the client may take to say who it is, by one of
  // `tickets`, which are borrowed.
  ShmSession(Store* store, SharedArena* arena, UnixSocket socket,
             std::chrono::milliseconds opening_wait, ShmTickets* tickets);

  // Serves until the client is gone or Stop is called.
  void Run();
  // Makes Run return soon, from any thread.
  void Stop();

 private:
  struct Pin {
    BlockRef values;
    std::shared_ptr<Question> question;
  };
  struct Pending {
    ShmAnswer head;
    std::string chunk;
    std::string inline_payload;
    std::shared_ptr<Question> question;
  };

  absl::Status OpenAndServe();
  absl::Status Open();
  absl::Status AnswerOpening();
  void Listen();
  absl::Status AddRegion(const ShmRegion& region, FileDescriptor fd);
  absl::Status Serve();
  absl::Status TakeMessage(const std::string& message);
  absl::Status TakeRequest(uint64_t kind, std::span<const char> bytes,
                           Payload payload);
  absl::StatusOr<Payload> FindPayload(const ShmPlace& place,
                                      std::span<const char> inline_payload);
  void Release(uint64_t pin);
  void Write(Answer&& answer, bool last) override;
  void Finish(const absl::Status& status) override;
  // The store has read this request's payload. What it needs later it has
  // copied (Payload::Keep), so the client may use the memory again.
  void OnTaken() override { taken_ = requests_; }
  void OnAnswered() override { ++answered_; }
  void Enqueue(Pending pending);
  // Writes as many answers as the ring has room for, and reports those that are
  // not pinned as written; false when none was written. The client's bell makes
  // Serve call it again.
  bool Flush();

  SharedArena* const arena_;
  const std::chrono::milliseconds opening_wait_;
  UnixSocket socket_;
  ShmTickets* const tickets_;
  std::unique_ptr<SharedChannel> channel_;  // after Open
  std::atomic<bool> closed_{false};
  // Used by the session's thread alone.
  Thread listener_;
  uint64_t requests_ = 0;  // that have come, without releases
  std::string long_chunk_;
  // Used by the listener alone.
  uint64_t region_bytes_ = 0;

  std::atomic<uint64_t> taken_{0};     // requests whose payloads have been read
  std::atomic<uint64_t> answered_{0};  // requests that had their last answer

  Mutex mutex_;
  CondVar region_added_;
  // Region n is at n - 1; it stays until the session's end, since somebody may
  // be reading it.
  std::vector<std::shared_ptr<SharedMemory>> regions_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Pin> pins_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_pin_ ABSL_GUARDED_BY(mutex_) = 1;
  std::deque<Pending> pending_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // SERVER_PS_SERVICE_SHM_SESSION_H_
