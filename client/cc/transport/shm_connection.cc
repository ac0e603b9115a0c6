#include "client/cc/transport/shm_connection.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/exhausted.h"
#include "common/base/limits.h"
#include "common/base/logging.h"
#include "common/base/mutex.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "common/io/shared_channel.h"
#include "common/io/unix_socket.h"

namespace weir {
namespace {

constexpr std::chrono::seconds kOpeningWait{2};
// How long the destructor waits for the ps, which lets go of our memory at once
// unless the process is stopped.
constexpr std::chrono::seconds kLetGoWait{2};
// A waiting thread is woken by the bell; this bounds what a lost one could
// cost.
constexpr std::chrono::milliseconds kBellWait{1000};

absl::Status TurnedAway(const std::string& shm_name) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "@", shm_name, " turned this client away; perhaps it has too many"));
}

}  // namespace

// The part that the connection shares with the payloads that it gave out: they
// may outlive it, and then still read the arena and release their pins.
class ShmConnection::State {
 public:
  State(UnixSocket socket, std::shared_ptr<SharedMemory> channel,
        std::shared_ptr<SharedMemory> arena,
        std::shared_ptr<SharedBuffers> buffers)
      : socket_(std::move(socket)),
        channel_(std::move(channel), SharedChannel::kClient),
        arena_(std::move(arena)),
        buffers_(std::move(buffers)) {}

  SharedChannel* channel() { return &channel_; }
  const SharedMemory& arena() const { return *arena_; }

  // Writes a request; false when there is no room, or too many are open.
  // `taken` runs when the ps has read the payload.
  absl::StatusOr<bool> TrySend(const ShmRequest& head, const std::string& chunk,
                               std::span<const char> inline_payload,
                               const std::function<void()>& taken) {
    MutexLock lock(&mutex_);
    // Releases go first: the ps cannot reuse values that a client still pins,
    // and may need that room for the answer.
    FlushReleases();
    if (requests_ - answered_ >= kShmUnansweredMax) {
      return false;  // one more, and the ps would end the session
    }
    WEIR_ASSIGN_OR_RETURN(const bool written,
                          WriteShm(&channel_, head, chunk, inline_payload));
    if (written) {
      // The number of the request, which the ps counts in the same order.
      ++requests_;
      if (taken) {
        loans_.emplace_back(requests_, taken);
      }
    }
    return written;
  }

  // Where `payload` is in memory that the ps maps; a copy of it when it is not
  // in a buffer of NewBuffer's, and then `*copy` owns that.
  absl::StatusOr<ShmPlace> Place(std::span<const char> payload,
                                 std::shared_ptr<float>* copy) {
    std::shared_ptr<SharedMemory> memory = buffers_->Find(payload);
    if (memory == nullptr) {
      *copy = Staging(payload.size());
      if (*copy == nullptr) {
        return absl::ResourceExhaustedError("no shared memory for a payload");
      }
      char* const begin = reinterpret_cast<char*>(copy->get());
      std::memcpy(begin, payload.data(), payload.size());
      payload = {begin, payload.size()};
      memory = buffers_->Find(payload);
    }
    ShmPlace place;
    WEIR_ASSIGN_OR_RETURN(place.region, RegionId(memory));
    place.offset = static_cast<uint64_t>(payload.data() - memory->data());
    place.bytes = payload.size();
    return place;
  }

  void GiveBack(std::shared_ptr<float> staging, size_t bytes) {
    MutexLock lock(&mutex_);
    staging_[StagingBytes(bytes)].push_back(std::move(staging));
  }

  void Release(uint64_t pin) {
    MutexLock lock(&mutex_);
    releases_.push_back(pin);
    FlushReleases();
  }
  // Writes the releases that found no room.
  void Flush() {
    MutexLock lock(&mutex_);
    FlushReleases();
  }

  // Takes what an answer says about the requests before it, and wakes a Send
  // that waits for room. DATA_LOSS when it speaks of more than were sent: Send
  // would then count a negative number of open requests, and wait for ever.
  absl::Status Note(const ShmAnswer& head) {
    {
      MutexLock lock(&mutex_);
      if (head.answered > requests_ || head.taken > requests_) {
        return absl::DataLossError(
            absl::StrCat("it took ", head.taken, " and answered ",
                         head.answered, " of ", requests_, " requests"));
      }
      answered_ = head.answered;
    }
    channel_.Ring();
    RunLoans(head.taken);
    return absl::OkStatus();
  }

  // Runs what waits until the ps has read the first `taken` requests; without
  // an argument, everything.
  void RunLoans(uint64_t taken = ~uint64_t{0}) {
    std::vector<std::function<void()>> due;
    {
      MutexLock lock(&mutex_);
      while (!loans_.empty() && loans_.front().first <= taken) {
        due.push_back(std::move(loans_.front().second));
        loans_.pop_front();
      }
    }
    for (const auto& released : due) {
      released();  // the caller's code: with no lock held
    }
  }

  // Blocks until the ps has closed its end.
  void Listen() {
    ShmOpening nothing;
    socket_.Receive(RecordBytes(&nothing)).status().IgnoreError();
    closed_ = true;
    channel_.Ring();
    MutexLock lock(&mutex_);
    let_go_.NotifyAll();
  }
  bool closed() const { return closed_; }

  void Cancel() {
    cancelled_ = true;
    channel_.Ring();
    socket_.ShutdownSend();
  }
  bool cancelled() const { return cancelled_; }

  // Waits until the ps has let go of our memory. If that takes too long, the ps
  // keeps the bytes that it sees now, and our memory becomes our own.
  void WaitUntilClosed() {
    const auto deadline = MonotonicClock::now() + kLetGoWait;
    MutexLock lock(&mutex_);
    while (!closed_ && MonotonicClock::now() < deadline) {
      let_go_.WaitFor(&mutex_, kLetGoWait);
    }
    if (!closed_) {
      LOG_WARN("a ps does not let go of shared memory; is it stopped?");
      // It may be stopped in the middle of a gradient, and go on one day. Then
      // it must not read what we have written there since.
      for (const auto& [memory, kept] : regions_) {
        if (const absl::Status status = buffers_->MakePrivate(*memory);
            !status.ok()) {
          LOG_ERROR("{}", std::string(status.message()));
        }
      }
      socket_.Shutdown();
    }
  }

 private:
  void FlushReleases() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (!releases_.empty()) {
      ShmRequest head;
      head.kind = ShmRequest::kRelease;
      head.pin = releases_.front();
      const absl::StatusOr<bool> written = WriteShm(&channel_, head, "", {});
      if (!written.ok() || !*written) {
        return;  // no room now; the next Send, Release or Receive tries again
      }
      releases_.pop_front();
    }
  }

  // The number under which the ps knows `memory`. The first time, sends the
  // memory's descriptor with it.
  absl::StatusOr<uint64_t> RegionId(
      const std::shared_ptr<SharedMemory>& memory) {
    MutexLock lock(&mutex_);
    if (const auto it = regions_.find(memory.get()); it != regions_.end()) {
      return it->second.first;
    }
    ShmRegion region;
    region.id = regions_.size() + 1;
    region.bytes = memory->bytes();
    // Only what the ps was told of has a number, so none is given twice.
    WEIR_RETURN_IF_ERROR(socket_.Send(RecordBytes(&region), memory->fd()));
    regions_[memory.get()] = {region.id, memory};
    return region.id;
  }

  // Staging memory has few sizes, powers of two, so that it is used again
  // although rows come in any number.
  static size_t StagingBytes(size_t bytes) { return std::bit_ceil(bytes); }

  std::shared_ptr<float> Staging(size_t payload_bytes) {
    const size_t bytes = StagingBytes(payload_bytes);
    {
      MutexLock lock(&mutex_);
      std::vector<std::shared_ptr<float>>& free = staging_[bytes];
      if (!free.empty()) {
        std::shared_ptr<float> memory = std::move(free.back());
        free.pop_back();
        return memory;
      }
    }
    return SharedBuffers::New(buffers_, bytes);
  }

  UnixSocket socket_;
  SharedChannel channel_;
  const std::shared_ptr<SharedMemory> arena_;
  const std::shared_ptr<SharedBuffers> buffers_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> cancelled_{false};

  Mutex mutex_;
  CondVar let_go_;
  // By address; the entry keeps the memory, so that no other gets the address.
  std::map<const SharedMemory*,
           std::pair<uint64_t, std::shared_ptr<SharedMemory>>>
      regions_ ABSL_GUARDED_BY(mutex_);
  std::map<size_t, std::vector<std::shared_ptr<float>>> staging_
      ABSL_GUARDED_BY(mutex_);  // free ones, by bytes
  uint64_t requests_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t answered_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::pair<uint64_t, std::function<void()>>> loans_
      ABSL_GUARDED_BY(mutex_);
  std::deque<uint64_t> releases_ ABSL_GUARDED_BY(mutex_);  // not yet written
};

absl::StatusOr<std::unique_ptr<ShmConnection>> ShmConnection::Open(
    const std::string& shm_name, const std::string& ticket,
    const std::string& address, std::shared_ptr<SharedBuffers> buffers) {
  ShmOpening opening;
  if (ticket.size() != opening.ticket.size()) {
    return absl::UnavailableError("the ps gave no ticket for shared memory");
  }
  std::copy(ticket.begin(), ticket.end(), opening.ticket.begin());
  WEIR_ASSIGN_OR_RETURN(UnixSocket socket, UnixSocket::Connect(shm_name));
  WEIR_ASSIGN_OR_RETURN(auto channel,
                        SharedMemory::Create(SharedChannel::kMemoryBytes));
  opening.bytes = channel->bytes();
  // Somebody listens, so an end that comes in place of an answer may pass.
  if (!socket.Send(RecordBytes(&opening), channel->fd()).ok()) {
    return TurnedAway(shm_name);
  }
  // A ps that is stopped, or hangs, must not hold up the fall-back to gRPC.
  if (!socket.WaitReadable(kOpeningWait)) {
    return absl::DeadlineExceededError(
        absl::StrCat("@", shm_name, " says nothing"));
  }
  ShmOpening answer;
  absl::StatusOr<FileDescriptor> fd = socket.Receive(RecordBytes(&answer));
  if (absl::IsUnavailable(fd.status())) {
    return TurnedAway(shm_name);
  }
  WEIR_RETURN_IF_ERROR(fd.status());
  if (answer.magic != kShmMagic) {
    return absl::UnavailableError("a ps of another version of Weir");
  }
  WEIR_ASSIGN_OR_RETURN(auto arena,
                        SharedMemory::Map(*std::move(fd), answer.bytes,
                                          SharedMemory::Access::kRead));
  auto state = std::make_shared<State>(std::move(socket), std::move(channel),
                                       std::move(arena), std::move(buffers));
  WEIR_ASSIGN_OR_RETURN(Thread listener,
                        StartThread([raw = state.get()] { raw->Listen(); }));
  return std::unique_ptr<ShmConnection>(
      new ShmConnection(address, std::move(state), std::move(listener)));
}

ShmConnection::ShmConnection(std::string address, std::shared_ptr<State> state,
                             Thread listener)
    : address_(std::move(address)),
      state_(std::move(state)),
      listener_(std::move(listener)) {}

ShmConnection::~ShmConnection() {
  state_->Cancel();
  state_->WaitUntilClosed();
  listener_.join();
  // Last: until here the ps could still read the payloads.
  state_->RunLoans();
}

void ShmConnection::Cancel() { state_->Cancel(); }

absl::Status ShmConnection::Send(ShmRequest::Kind kind,
                                 const std::string& chunk,
                                 std::span<const char> payload,
                                 std::function<void()> released) {
  ShmRequest head;
  head.kind = kind;
  std::vector<std::function<void()>> loans;  // end when the ps has read them
  // Puts `bytes` where the ps can read them. True if they were copied: then the
  // copy is lent in their place, and the caller's memory is free at once.
  const auto place = [&](std::span<const char> bytes,
                         ShmPlace* at) -> absl::StatusOr<bool> {
    std::shared_ptr<float> copy;
    WEIR_ASSIGN_OR_RETURN(*at, state_->Place(bytes, &copy));
    if (copy == nullptr) {
      return false;
    }
    loans.emplace_back([state = state_.get(), copy, size = bytes.size()] {
      state->GiveBack(copy, size);
    });
    return true;
  };
  const bool is_inline = payload.size() <= kShmInlineBytes;
  const bool is_long = chunk.size() > kShmChunkBytes;
  absl::StatusOr<bool> copied = true;
  if (is_inline) {
    head.payload.bytes = payload.size();
  } else {
    copied = place(payload, &head.payload);
  }
  if (copied.ok() && !*copied) {
    loans.push_back(std::exchange(released, nullptr));
  }
  if (copied.ok() && is_long) {
    copied = place({chunk.data(), chunk.size()}, &head.chunk);
  }
  const auto taken = [loans = std::move(loans)] {
    for (const std::function<void()>& loan : loans) {
      if (loan) {
        loan();
      }
    }
  };
  absl::Status status;
  if (!copied.ok()) {
    status = Named(copied.status());
  } else {
    status = SendMessage(head, is_long ? std::string() : chunk,
                         is_inline ? payload : std::span<const char>(), taken);
  }
  if (!status.ok()) {
    taken();  // the ps will never read them
  }
  // Still here if the payload was copied or went inline: then it has left.
  if (released) {
    released();
  }
  return status;
}

absl::Status ShmConnection::Receive(Answer* answer, Deadline deadline) {
  for (;;) {
    // Both are read before the ring is looked at: what comes after rings the
    // bell anew, and of a ps that has closed, all answers are in the ring by
    // then.
    const uint32_t seen = state_->channel()->bell();
    WEIR_RETURN_IF_ERROR(Ended());
    const bool closed = state_->closed();
    const absl::StatusOr<bool> read =
        state_->channel()->TryRead(&answer->message);
    if (!read.ok()) {
      return End(read.status());
    }
    if (*read) {
      const absl::Status status = Decode(answer);
      if (!status.ok()) {
        return End(status);
      }
      return status;
    }
    if (closed) {
      state_->RunLoans();  // the ps reads nothing any more
      return End(absl::UnavailableError("it is gone"));
    }
    const auto now = MonotonicClock::now();
    if (now >= deadline) {
      return Named(absl::DeadlineExceededError("no answer in time"));
    }
    state_->Flush();  // a ps that waits for pins would never answer
    state_->channel()->Wait(
        seen, std::min<std::chrono::nanoseconds>(kBellWait, deadline - now));
  }
}

absl::Status ShmConnection::Named(const absl::Status& status) const {
  return Annotate(status, absl::StrCat("ps ", address_));
}

// Why the connection has ended; the first reason stays.
absl::Status ShmConnection::End(const absl::Status& status) {
  MutexLock lock(&mutex_);
  if (ended_.ok()) {
    ended_ = Named(status);
  }
  return ended_;
}

absl::Status ShmConnection::Ended() {
  if (state_->cancelled()) {
    return End(absl::CancelledError("cancelled"));
  }
  MutexLock lock(&mutex_);
  return ended_;
}

absl::Status ShmConnection::SendMessage(const ShmRequest& head,
                                        const std::string& chunk,
                                        std::span<const char> inline_payload,
                                        const std::function<void()>& taken) {
  for (;;) {
    const uint32_t seen = state_->channel()->bell();
    WEIR_RETURN_IF_ERROR(Ended());
    if (state_->closed()) {
      return Named(absl::UnavailableError("it is gone"));
    }
    const absl::StatusOr<bool> sent =
        state_->TrySend(head, chunk, inline_payload, taken);
    if (!sent.ok()) {
      return End(sent.status());
    }
    if (*sent) {
      return absl::OkStatus();
    }
    state_->channel()->Wait(seen, kBellWait);
  }
}

absl::Status ShmConnection::Decode(Answer* answer) {
  std::span<const char> inline_payload;
  ShmAnswer& head = answer->head;
  WEIR_RETURN_IF_ERROR(
      ParseShm(answer->message, &head, &answer->chunk, &inline_payload));
  WEIR_RETURN_IF_ERROR(state_->Note(head));
  if (head.kind == ShmAnswer::kEnd) {
    auto code = static_cast<absl::StatusCode>(head.code);
    if (code == absl::StatusCode::kOk) {
      code = absl::StatusCode::kUnavailable;  // an end is an error for us
    }
    return absl::Status(code,
                        Printable({answer->chunk.data(), answer->chunk.size()},
                                  kPeerMessageBytesMax));
  }
  answer->payload = Payload();
  if (head.payload.region == 0 && head.payload.bytes > 0) {
    if (inline_payload.size() != head.payload.bytes) {
      return absl::DataLossError(
          absl::StrCat("an answer with ", inline_payload.size(), " of ",
                       head.payload.bytes, " bytes of its payload"));
    }
    // The message's memory is used again for the next answer.
    const auto copy = std::make_shared<std::vector<char>>(
        inline_payload.begin(), inline_payload.end());
    answer->payload = Payload({std::span<const char>(*copy)}, copy);
  } else if (head.payload.region != 0) {
    // The ps keeps the values in place until the pin is released, so the
    // payload can point to them. Made first, so that an error below releases it
    // too.
    const std::shared_ptr<void> pin(
        nullptr,
        [state = state_, number = head.pin](void*) { state->Release(number); });
    WEIR_ASSIGN_OR_RETURN(const std::span<const char> values,
                          BytesAt(state_->arena(), head.payload));
    answer->payload = Payload({values}, pin);
  }
  return absl::OkStatus();
}

}  // namespace weir
