#include "server/ps/service/shm_session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/exhausted.h"
#include "common/base/limits.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "common/trace/trace.h"

namespace weir {
namespace {

// A region and the request that names it come by two ways, and the request may
// be first.
constexpr std::chrono::seconds kRegionWait{5};
// The bell wakes the session; this bounds what a lost one could cost.
constexpr std::chrono::milliseconds kBellWait{1000};

template <class Chunk>
absl::StatusOr<Chunk> Parse(std::span<const char> bytes) {
  Chunk chunk;
  if (!chunk.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(
        absl::StrCat("the request is no ", chunk.GetTypeName()));
  }
  return chunk;
}

}  // namespace

ShmSession::ShmSession(Store* store, SharedArena* arena, UnixSocket socket,
                       std::chrono::milliseconds opening_wait,
                       ShmTickets* tickets)
    : AnswerFlow(store, arena, kPinnedMax),
      arena_(arena),
      opening_wait_(opening_wait),
      socket_(std::move(socket)),
      tickets_(tickets) {}

void ShmSession::Run() {
  NameTraceLane("shared memory");
  const absl::Status status = OrExhausted([this] { return OpenAndServe(); });
  if (!status.ok()) {  // I3
    LOG_WARN("shared memory: {}", status.ToString());
  }
  // I2. A push of rows that is coming in is dropped, answers that come later
  // find closed_, and the listener has ended before the mappings go.
  closed_ = true;
  ClientGone();
  socket_.Shutdown();
  if (listener_.joinable()) {
    listener_.join();
  }
  // I1: the client is gone, so nobody will release these any more.
  MutexLock lock(&mutex_);
  pins_.clear();
  pending_.clear();
  regions_.clear();
}

absl::Status ShmSession::OpenAndServe() {
  WEIR_RETURN_IF_ERROR(Open());
  // Before the answer: a client that gets none takes gRPC.
  WEIR_ASSIGN_OR_RETURN(listener_, StartThread([this] { Listen(); }));
  WEIR_RETURN_IF_ERROR(AnswerOpening());
  return Serve();
}

void ShmSession::Stop() {
  // The listener sees the end and closes the session.
  socket_.Shutdown();
}

absl::Status ShmSession::Open() {
  if (!socket_.WaitReadable(opening_wait_)) {
    return absl::DeadlineExceededError("a client that says nothing");
  }
  ShmOpening opening;
  WEIR_ASSIGN_OR_RETURN(FileDescriptor fd,
                        socket_.Receive(RecordBytes(&opening)));
  // The size is the client's word, and the channel reads as far as it says.
  if (opening.magic != kShmMagic ||
      opening.bytes != SharedChannel::kMemoryBytes) {
    return absl::InvalidArgumentError("a client of another version of Weir");
  }
  if (!tickets_->Take({opening.ticket.begin(), opening.ticket.end()})) {
    return absl::UnauthenticatedError(
        "a client without a ticket: only a worker that has said Hello gets "
        "one, for one session within 10 s");
  }
  WEIR_ASSIGN_OR_RETURN(auto memory,
                        SharedMemory::Map(std::move(fd), opening.bytes,
                                          SharedMemory::Access::kReadWrite));
  channel_ = std::make_unique<SharedChannel>(std::move(memory),
                                             SharedChannel::kServer);
  return absl::OkStatus();
}

absl::Status ShmSession::AnswerOpening() {
  // Read-only: a client must not be able to change parameters.
  WEIR_ASSIGN_OR_RETURN(const FileDescriptor arena,
                        arena_->memory().ReadOnlyFd());
  ShmOpening answer;
  answer.bytes = arena_->memory().bytes();
  return socket_.Send(RecordBytes(&answer), arena.get());
}

void ShmSession::Listen() {
  for (;;) {
    ShmRegion region;
    absl::StatusOr<FileDescriptor> fd = socket_.Receive(RecordBytes(&region));
    if (absl::IsUnavailable(fd.status())) {
      break;  // the end of the client, or Stop
    }
    absl::Status status = fd.status();
    if (status.ok()) {
      status = OrExhausted([&] { return AddRegion(region, *std::move(fd)); });
    }
    if (!status.ok()) {  // I3
      LOG_WARN("shared memory: {}", status.ToString());
      Fail(status);
      break;
    }
  }
  // Both of the session's waits must wake: the one for the bell, and the one
  // for a region.
  closed_ = true;
  channel_->Ring();
  MutexLock lock(&mutex_);
  region_added_.NotifyAll();
}

absl::Status ShmSession::AddRegion(const ShmRegion& region, FileDescriptor fd) {
  size_t count = 0;
  {
    MutexLock lock(&mutex_);
    count = regions_.size();
  }
  if (region.id != count + 1) {
    return Invalid("memory with the number ", region.id, " in place of ",
                   count + 1);
  }
  if (count >= kShmRegionsMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "more than ", kShmRegionsMax, " pieces of a client's memory"));
  }
  // The model may have been declared anew, and be smaller, since the last one.
  const uint64_t most = kShmRegionBytesMax + 2 * store_->ModelBytes();
  if (region_bytes_ > most || region.bytes > most - region_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(region.bytes, " bytes more of a client's memory than ",
                     region_bytes_, "; one client hands over at most ", most));
  }
  WEIR_ASSIGN_OR_RETURN(auto memory,
                        SharedMemory::Map(std::move(fd), region.bytes,
                                          SharedMemory::Access::kRead));
  region_bytes_ += region.bytes;
  MutexLock lock(&mutex_);
  regions_.push_back(std::move(memory));
  region_added_.NotifyAll();
  return absl::OkStatus();
}

absl::Status ShmSession::Serve() {
  std::string message;
  while (!closed_) {
    // Read before the ring is looked at: a message that comes afterwards rings,
    // so the wait below returns at once.
    const uint32_t seen = channel_->bell();
    bool worked = Flush();
    while (!closed_) {
      const absl::StatusOr<bool> read = channel_->TryRead(&message);
      WEIR_RETURN_IF_ERROR(read.status());
      if (!*read) {
        break;
      }
      worked = true;
      const absl::Status status =
          OrExhausted([&] { return TakeMessage(message); });
      if (!status.ok()) {
        Fail(status);
      }
    }
    if (!worked) {
      channel_->Wait(seen, kBellWait);
    }
  }
  return absl::OkStatus();
}

absl::Status ShmSession::TakeMessage(const std::string& message) {
  const TraceSpan span("request");
  ShmRequest head;
  std::span<const char> bytes;
  std::span<const char> inline_payload;
  WEIR_RETURN_IF_ERROR(ParseShm(message, &head, &bytes, &inline_payload));
  // Also after the stream has ended: answers that are on their way hold pins.
  if (head.kind == ShmRequest::kRelease) {
    Release(head.pin);
    return absl::OkStatus();
  }
  ++requests_;
  // The end has been said; what the client sent before it read that is void.
  if (ended()) {
    return absl::OkStatus();
  }
  // The client keeps within the bound by itself. One that does not, or reads no
  // answers, would make this process keep any number of them.
  if (requests_ - answered_ > kShmUnansweredMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "more than ", kShmUnansweredMax, " requests without an answer"));
  }
  if (head.chunk.region != 0) {
    if (head.chunk.bytes > kShmLongChunkBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("a request of ", head.chunk.bytes, " bytes, more than ",
                       kShmLongChunkBytes));
    }
    WEIR_ASSIGN_OR_RETURN(const Payload chunk, FindPayload(head.chunk, {}));
    // Copied before anybody looks at it, as what is in the message was.
    long_chunk_.resize(chunk.bytes());
    chunk.CopyTo(long_chunk_.data());
    bytes = long_chunk_;
  }
  WEIR_ASSIGN_OR_RETURN(Payload payload,
                        FindPayload(head.payload, inline_payload));
  return TakeRequest(head.kind, bytes, std::move(payload));
}

absl::Status ShmSession::TakeRequest(uint64_t kind, std::span<const char> bytes,
                                     Payload payload) {
  switch (kind) {
    case ShmRequest::kChunk: {
      WEIR_ASSIGN_OR_RETURN(GradientChunk chunk, Parse<GradientChunk>(bytes));
      return Take(std::move(chunk), std::move(payload));
    }
    case ShmRequest::kPullRows: {
      WEIR_ASSIGN_OR_RETURN(const PullRowsChunk request,
                            Parse<PullRowsChunk>(bytes));
      Take(request);
      return absl::OkStatus();
    }
    case ShmRequest::kPushRows: {
      WEIR_ASSIGN_OR_RETURN(const PushRowsChunk chunk,
                            Parse<PushRowsChunk>(bytes));
      WEIR_ASSIGN_OR_RETURN(const bool last,
                            Take(chunk, payload, /*no_more=*/false));
      // Every request has an answer, so that the client can count them.
      if (!last) {
        Add(Answer());
      }
      return absl::OkStatus();
    }
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("shared memory takes no requests of kind ", kind));
  }
}

absl::StatusOr<Payload> ShmSession::FindPayload(
    const ShmPlace& place, std::span<const char> inline_payload) {
  if (place.bytes == 0) {
    return Payload();
  }
  if (place.region == 0) {
    if (inline_payload.size() != place.bytes) {
      return absl::InvalidArgumentError("a payload that is cut short");
    }
    return Payload::Borrowed(inline_payload);
  }
  const auto deadline = MonotonicClock::now() + kRegionWait;
  MutexLock lock(&mutex_);
  while (place.region > regions_.size() && !closed_ &&
         MonotonicClock::now() < deadline) {
    region_added_.WaitFor(&mutex_, kRegionWait);
  }
  if (place.region > regions_.size()) {
    return Invalid("the client has not handed over its memory ", place.region);
  }
  WEIR_ASSIGN_OR_RETURN(const std::span<const char> bytes,
                        BytesAt(*regions_[place.region - 1], place));
  return Payload::Borrowed(bytes);
}

void ShmSession::Release(uint64_t pin) {
  Pin released;
  {
    MutexLock lock(&mutex_);
    const auto it = pins_.find(pin);
    if (it == pins_.end()) {
      return;  // It was released before, or never given: no harm.
    }
    released = std::move(it->second);
    pins_.erase(it);
  }
  // Before more is pulled: a block that nobody holds need not be copied by the
  // next push.
  released.values = BlockRef();
  OnWritten(released.question, true);
}

// A session has no last answer: the client ends it by leaving.
void ShmSession::Write(Answer&& answer, bool /*last*/) {
  Pending pending;
  if (const auto* message = answer.message()) {
    pending.chunk = message->SerializeAsString();
  } else {
    pending.head.kind = ShmAnswer::kTaken;
  }
  ShmPlace& place = pending.head.payload;
  place.bytes = answer.bytes;
  if (answer.values && place.bytes <= kShmInlineBytes) {
    pending.inline_payload.assign(
        reinterpret_cast<const char*>(answer.values.data()), place.bytes);
  } else if (answer.values) {
    place.region = 1;
    place.offset = arena_->OffsetOf(answer.values.data());
    // Run clears pins_ under this lock after closed_ is set: a pin is either
    // cleared there or not made here (I1).
    MutexLock lock(&mutex_);
    if (closed_) {
      return;
    }
    pending.head.pin = next_pin_++;
    pins_[pending.head.pin] = {std::move(answer.values), answer.question};
  }
  pending.question = std::move(answer.question);
  Enqueue(std::move(pending));
}

void ShmSession::Finish(const absl::Status& status) {
  Pending pending;
  pending.head.kind = ShmAnswer::kEnd;
  pending.head.code = static_cast<uint64_t>(status.code());
  pending.chunk = std::string(status.message()).substr(0, kShmInlineBytes);
  Enqueue(std::move(pending));
}

void ShmSession::Enqueue(Pending pending) {
  {
    MutexLock lock(&mutex_);
    pending_.push_back(std::move(pending));
  }
  Flush();
}

bool ShmSession::Flush() {
  bool wrote = false;
  std::vector<std::shared_ptr<Question>> written;
  {
    MutexLock lock(&mutex_);
    while (!pending_.empty() && !closed_) {
      Pending& next = pending_.front();
      // Set as late as possible: each answer brings the newest counts.
      next.head.taken = taken_;
      next.head.answered = answered_;
      const absl::StatusOr<bool> fits =
          WriteShm(channel_.get(), next.head, next.chunk, next.inline_payload);
      if (!fits.ok()) {
        LOG_ERROR("shared memory: {}", fits.status().ToString());
        closed_ = true;
        break;
      }
      // The ring is full. The client rings when it has read, and Serve goes on.
      if (!*fits) {
        break;
      }
      wrote = true;
      // A pinned answer counts as written when the client releases it, and
      // nobody waits for the end.
      if (next.head.pin == 0 && next.head.kind != ShmAnswer::kEnd) {
        written.push_back(std::move(next.question));
      }
      pending_.pop_front();
    }
  }
  // Not before the ring has them: they would all be asked for, and wait here.
  for (const std::shared_ptr<Question>& question : written) {
    OnWritten(question, true);
  }
  return wrote;
}

}  // namespace weir
