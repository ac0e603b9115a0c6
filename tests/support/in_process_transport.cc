#include "tests/support/in_process_transport.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "common/base/status.h"
#include "proto/wire/value_encoding.h"

namespace weir {
namespace in_process_internal {

constexpr auto kTick = std::chrono::milliseconds(2);

template <class Header>
struct AnswerWith {
  Header header;
  Payload payload;
};
using Answer = AnswerWith<ValueChunk>;
using RowAnswer = AnswerWith<RowChunk>;

class StreamEnd {
 public:
  virtual ~StreamEnd() = default;
  virtual void End(const absl::Status& status) = 0;
};

// The state that a stream shares with its continuations in the store.
template <class Answer>
class StreamState : public StreamEnd {
 public:
  void Add(Answer answer, bool delayed) {
    MutexLock lock(&mutex_);
    (delayed ? late_ : ready_).push_back(std::move(answer));
    changed_.NotifyAll();
  }

  void End(const absl::Status& status) override {
    MutexLock lock(&mutex_);
    if (!end_.has_value()) {
      end_ = status;
    }
    changed_.NotifyAll();
  }

  absl::Status end() {
    MutexLock lock(&mutex_);
    return end_.value_or(absl::OkStatus());
  }

  // Returns false when a tick passed without an answer.
  absl::StatusOr<bool> Take(Answer* answer) {
    MutexLock lock(&mutex_);
    if (ready_.empty() && late_.empty() && !end_.has_value()) {
      changed_.WaitFor(&mutex_, kTick);
    }
    if (end_.has_value()) {
      return *end_;
    }
    std::deque<Answer>& from = ready_.empty() ? late_ : ready_;
    if (from.empty()) {
      return false;
    }
    *answer = std::move(from.front());
    from.pop_front();
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<Answer> ready_ ABSL_GUARDED_BY(mutex_);
  std::deque<Answer> late_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace in_process_internal

namespace {

using Fate = InProcessTransport::Fate;
using in_process_internal::Answer;
using in_process_internal::RowAnswer;
using in_process_internal::StreamState;

Payload CopyOf(std::span<const char> bytes) {
  auto copy = std::make_shared<std::vector<char>>(bytes.begin(), bytes.end());
  const std::span<const char> piece(copy->data(), copy->size());
  return piece.empty() ? Payload() : Payload({piece}, std::move(copy));
}

Payload Encoded(const BlockRef& values, Encoding encoding) {
  if (!values) {
    return Payload();
  }
  const auto count = static_cast<size_t>(values.elements());
  std::vector<char> bytes(EncodedBytes(encoding, count));
  EncodeFloats(values.data(), count, encoding, bytes.data());
  return CopyOf(bytes);
}

Answer AnswerOf(const Store& store, const Want& want,
                const std::optional<Receipt>& receipt, uint32_t block_count,
                const PulledBlock& pulled) {
  Answer answer;
  answer.header.set_incarnation(store.incarnation());
  answer.header.set_block(static_cast<uint32_t>(pulled.block));
  answer.header.set_block_count(block_count);
  answer.header.set_version(pulled.version);
  answer.header.set_not_yet(pulled.not_yet);
  answer.header.set_encoding(want.encoding());
  if (receipt.has_value()) {
    *answer.header.mutable_receipt() = *receipt;
  }
  answer.payload = Encoded(pulled.values, want.encoding());
  return answer;
}

class InProcessStream : public PushPullStream {
 public:
  InProcessStream(InProcessTransport* transport, std::string address)
      : transport_(transport),
        address_(std::move(address)),
        state_(std::make_shared<StreamState<Answer>>()) {
    const absl::StatusOr<Store*> store = transport_->Find(address_);
    if (!store.ok()) {
      state_->End(store.status());
      return;
    }
    store_ = *store;
    transport_->AddStream(address_, state_);
  }
  ~InProcessStream() override { Cancel(); }

  absl::Status Send(const GradientChunk& header, std::span<const char> payload,
                    std::function<void()> released) override {
    Payload copy = CopyOf(payload);
    if (released) {
      released();
    }
    WEIR_RETURN_IF_ERROR(state_->end());
    const InProcessTransport::Draw draw = transport_->DrawFault(address_);
    if (draw.fate == Fate::kLostBefore) {
      state_->End(draw.lost);
      return state_->end();
    }
    const absl::Status status = Take(header, copy, draw);
    if (!status.ok()) {
      state_->End(Annotate(status, absl::StrCat("ps ", address_)));
    } else if (draw.fate == Fate::kLostAfter) {
      state_->End(draw.lost);
    }
    return absl::OkStatus();
  }

  absl::Status Receive(ValueChunk* header, Payload* payload) override {
    for (;;) {
      Answer answer;
      WEIR_ASSIGN_OR_RETURN(const bool taken, state_->Take(&answer));
      if (taken) {
        *header = std::move(answer.header);
        *payload = std::move(answer.payload);
        return absl::OkStatus();
      }
      if (const auto store = transport_->Find(address_); store.ok()) {
        (*store)->ExpireWaits();
      }
    }
  }

  void Cancel() override {
    state_->End(absl::CancelledError(absl::StrCat("ps ", address_)));
  }

 private:
  absl::Status Take(const GradientChunk& chunk, const Payload& payload,
                    const InProcessTransport::Draw& draw) {
    std::optional<Receipt> receipt;
    if (chunk.has_push()) {
      WEIR_ASSIGN_OR_RETURN(receipt, store_->Push(chunk, payload));
      if (draw.duplicated) {
        WEIR_RETURN_IF_ERROR(store_->Push(chunk, payload).status());
      }
    } else if (!chunk.has_want()) {
      return absl::InvalidArgumentError(
          "a request of PushPull needs `push` or `want`");
    }
    if (draw.fate == Fate::kNoAnswer) {
      return absl::OkStatus();
    }
    if (!chunk.has_want()) {
      PulledBlock nothing;
      nothing.block = static_cast<int>(chunk.block());
      state_->Add(
          AnswerOf(*store_, Want(), receipt, chunk.block_count(), nothing),
          draw.delayed);
      return absl::OkStatus();
    }
    for (uint32_t i = 0; i < std::max(chunk.block_count(), 1u); ++i) {
      store_->Pull(
          chunk.sender(), static_cast<int>(chunk.block() + i), chunk.want(),
          [state = state_, store = store_, want = chunk.want(), receipt,
           count = chunk.block_count(), delayed = draw.delayed,
           address = address_](absl::StatusOr<PulledBlock> pulled) {
            if (pulled.ok()) {
              state->Add(AnswerOf(*store, want, receipt, count, *pulled),
                         delayed);
            } else {
              state->End(
                  Annotate(pulled.status(), absl::StrCat("ps ", address)));
            }
          });
    }
    return absl::OkStatus();
  }

  InProcessTransport* const transport_;
  const std::string address_;
  const std::shared_ptr<StreamState<Answer>> state_;
  Store* store_ = nullptr;
};

class InProcessPullRows : public PullRowsStream {
 public:
  InProcessPullRows(InProcessTransport* transport, std::string address)
      : transport_(transport),
        address_(std::move(address)),
        state_(std::make_shared<StreamState<RowAnswer>>()) {
    if (!transport_->Find(address_).ok()) {
      state_->End(transport_->Find(address_).status());
      return;
    }
    transport_->AddStream(address_, state_);
  }
  ~InProcessPullRows() override { Cancel(); }

  absl::Status Send(const PullRowsChunk& request, std::span<const char>,
                    std::function<void()>) override {
    WEIR_RETURN_IF_ERROR(state_->end());
    const InProcessTransport::Draw draw = transport_->DrawFault(address_);
    if (draw.fate == Fate::kLostBefore) {
      state_->End(draw.lost);
      return state_->end();
    }
    WEIR_ASSIGN_OR_RETURN(Store * store, transport_->Find(address_));
    store->PullRows(request, [state = state_, address = address_,
                              incarnation = store->incarnation(),
                              delayed = draw.delayed](
                                 absl::StatusOr<PulledRows> looked_up) {
      if (!looked_up.ok()) {
        state->End(Annotate(looked_up.status(), absl::StrCat("ps ", address)));
        return;
      }
      RowAnswer answer;
      answer.header = std::move(looked_up->header);
      answer.header.set_incarnation(incarnation);
      if (looked_up->rows) {
        answer.payload =
            CopyOf({reinterpret_cast<const char*>(looked_up->rows.data()),
                    looked_up->bytes});
      }
      state->Add(std::move(answer), delayed);
    });
    if (draw.fate == Fate::kLostAfter) {
      state_->End(draw.lost);
    }
    return absl::OkStatus();
  }

  absl::Status Receive(RowChunk* header, Payload* payload) override {
    for (;;) {
      RowAnswer answer;
      WEIR_ASSIGN_OR_RETURN(const bool taken, state_->Take(&answer));
      if (taken) {
        *header = std::move(answer.header);
        *payload = std::move(answer.payload);
        return absl::OkStatus();
      }
      if (const auto store = transport_->Find(address_); store.ok()) {
        (*store)->ExpireWaits();
      }
    }
  }

  void Cancel() override {
    state_->End(absl::CancelledError(absl::StrCat("ps ", address_)));
  }

 private:
  InProcessTransport* const transport_;
  const std::string address_;
  const std::shared_ptr<StreamState<RowAnswer>> state_;
};

class InProcessLink : public ControlLink, public DataLink {
 public:
  using Timeout = LinkTimeout;

  InProcessLink(InProcessTransport* transport, std::string address)
      : transport_(transport), address_(std::move(address)) {}

  const std::string& address() const override { return address_; }

  std::unique_ptr<PushPullStream> OpenPushPull() override {
    return std::make_unique<InProcessStream>(transport_, address_);
  }

  std::unique_ptr<PullRowsStream> OpenPullRows() override {
    return std::make_unique<InProcessPullRows>(transport_, address_);
  }

  absl::StatusOr<PushRowsReply> PushRows(
      Timeout, const ChunkSource<PushRowsChunk>& next) override {
    return Call<PushRowsReply>(
        [&](Store* store) -> absl::StatusOr<PushRowsReply> {
          RowPush update(store);
          PushRowsChunk header;
          std::span<const char> payload;
          while (next(&header, &payload)) {
            // On a real wire the bytes arrive by themselves, one after another.
            WEIR_RETURN_IF_ERROR(update.Add(header, CopyOf(payload)));
            payload = {};
          }
          absl::StatusOr<PushRowsReply> result = absl::UnknownError("held");
          update.Apply([&](absl::StatusOr<PushRowsReply> reply) {
            result = std::move(reply);
          });
          if (result.ok()) {
            result->set_incarnation(store->incarnation());
          }
          return result;
        });
  }

  absl::StatusOr<ShrinkReply> Shrink(const ShrinkRequest& request,
                                     Timeout) override {
    return Call<ShrinkReply>(
        [&](Store* store) { return store->Shrink(request); });
  }

  absl::StatusOr<AssignReply> Assign(
      Timeout, const ChunkSource<AssignChunk>& next) override {
    AssignReply reply;
    AssignChunk header;
    std::span<const char> payload;
    while (next(&header, &payload)) {
      WEIR_RETURN_IF_ERROR(CallStatus([&](Store* store) {
        return store->Assign(header, CopyOf(payload));
      }));
      reply.set_elements(reply.elements() + payload.size() / sizeof(float));
      payload = {};
    }
    return reply;
  }

  absl::StatusOr<HelloReply> Hello(Timeout) override {
    return Call<HelloReply>([](Store* store) { return store->Hello(); });
  }
  absl::StatusOr<DeclareReply> Declare(const DeclareRequest& request,
                                       Timeout) override {
    return Call<DeclareReply>(
        [&](Store* store) { return store->Declare(request); });
  }
  absl::StatusOr<DeclareReply> Restore(const RestoreRequest& request,
                                       Timeout) override {
    return Call<DeclareReply>(
        [&](Store* store) { return store->Restore(request); });
  }
  absl::Status SetSlots(const SetSlotsRequest& request, Timeout) override {
    return CallStatus([&](Store* store) { return store->SetSlots(request); });
  }
  absl::StatusOr<PsStatus> GetStatus(Timeout, int hot_ids) override {
    return Call<PsStatus>(
        [hot_ids](Store* store) { return store->GetStatus(hot_ids); });
  }
  absl::Status Shutdown(const ShutdownRequest& request, Timeout) override {
    WEIR_RETURN_IF_ERROR(CallStatus(
        [&](Store* store) { return store->CheckShutdown(request); }));
    transport_->MarkShutDown(address_);
    return absl::OkStatus();
  }

  // The caller's thread writes the file and gets the replies.
  absl::Status Snapshot(
      const SnapshotRequest& request, Timeout timeout,
      const std::function<void(const SnapshotReply&)>& reply) override {
    struct Shared {
      Mutex mutex;
      CondVar changed;
      std::deque<absl::StatusOr<SnapshotReply>> replies ABSL_GUARDED_BY(mutex);
      std::deque<std::function<void()>> work ABSL_GUARDED_BY(mutex);
    };
    auto shared = std::make_shared<Shared>();
    WEIR_ASSIGN_OR_RETURN(Store * store, transport_->Find(address_));
    store->Snapshot(
        request,
        [shared](absl::StatusOr<SnapshotReply> answer) {
          MutexLock lock(&shared->mutex);
          shared->replies.push_back(std::move(answer));
          shared->changed.NotifyAll();
        },
        [shared](std::function<void()> work) {
          MutexLock lock(&shared->mutex);
          shared->work.push_back(std::move(work));
          shared->changed.NotifyAll();
        });
    const auto end = std::chrono::steady_clock::now() + timeout;
    while (std::chrono::steady_clock::now() < end) {
      std::optional<absl::StatusOr<SnapshotReply>> answer;
      std::function<void()> work;
      {
        MutexLock lock(&shared->mutex);
        if (!shared->replies.empty()) {
          answer = std::move(shared->replies.front());
          shared->replies.pop_front();
        } else if (!shared->work.empty()) {
          work = std::move(shared->work.front());
          shared->work.pop_front();
        } else {
          shared->changed.WaitFor(&shared->mutex, in_process_internal::kTick);
        }
      }
      if (work) {
        work();
      }
      if (!answer.has_value()) {
        continue;
      }
      WEIR_RETURN_IF_ERROR(
          Annotate(answer->status(), absl::StrCat("ps ", address_)));
      reply(**answer);
      if ((*answer)->has_file()) {
        return absl::OkStatus();
      }
    }
    return absl::DeadlineExceededError(absl::StrCat("ps ", address_));
  }

 private:
  // Calls `work` with the store, unless a fault comes before or after.
  template <typename Reply, typename Work>
  absl::StatusOr<Reply> Call(const Work& work) {
    WEIR_ASSIGN_OR_RETURN(Store * store, transport_->Find(address_));
    const InProcessTransport::Draw draw = transport_->DrawFault(address_);
    if (draw.fate == Fate::kLostBefore) {
      return draw.lost;
    }
    absl::StatusOr<Reply> reply = work(store);
    if (!reply.ok()) {
      return Annotate(reply.status(), absl::StrCat("ps ", address_));
    }
    if (draw.fate == Fate::kLostAfter) {
      return draw.lost;
    }
    return reply;
  }

  template <typename Work>
  absl::Status CallStatus(const Work& work) {
    return Call<bool>([&](Store* store) -> absl::StatusOr<bool> {
             WEIR_RETURN_IF_ERROR(work(store));
             return true;
           })
        .status();
  }

  InProcessTransport* const transport_;
  const std::string address_;
};

}  // namespace

void InProcessTransport::Serve(const std::string& address, Store* store) {
  MutexLock lock(&mutex_);
  stores_[address] = store;
  shut_down_[address] = false;
}

void InProcessTransport::Stop(const std::string& address) {
  MutexLock lock(&mutex_);
  stores_.erase(address);
  for (const auto& weak : streams_[address]) {
    if (const auto stream = weak.lock()) {
      stream->End(absl::UnavailableError(
          absl::StrCat("ps ", address, ": socket closed")));
    }
  }
  streams_.erase(address);
}

void InProcessTransport::SetFaults(const WireFaults& faults) {
  MutexLock lock(&mutex_);
  faults_ = faults;
}

bool InProcessTransport::was_shut_down(const std::string& address) const {
  MutexLock lock(&mutex_);
  const auto found = shut_down_.find(address);
  return found != shut_down_.end() && found->second;
}

void InProcessTransport::MarkShutDown(const std::string& address) {
  MutexLock lock(&mutex_);
  shut_down_[address] = true;
}

void InProcessTransport::FailNext(const std::string& address, int requests,
                                  const absl::Status& status) {
  MutexLock lock(&mutex_);
  failing_[address] = {requests, status};
}

InProcessTransport::Draw InProcessTransport::DrawFault(
    const std::string& address) {
  MutexLock lock(&mutex_);
  Draw draw;
  if (Failing& failing = failing_[address]; failing.requests > 0) {
    --failing.requests;
    draw.fate = Fate::kLostBefore;
    draw.lost = absl::Status(
        failing.status.code(),
        absl::StrCat("ps ", address, ": ", failing.status.message()));
    return draw;
  }
  draw.lost = absl::UnavailableError(
      absl::StrCat("ps ", address, ": connection reset (fault)"));
  double at = random_.NextFloat();
  for (const auto& [chance, fate] :
       {std::pair(faults_.lost_before, Fate::kLostBefore),
        std::pair(faults_.lost_after, Fate::kLostAfter),
        std::pair(faults_.no_answer, Fate::kNoAnswer)}) {
    if (at >= 0 && at < chance) {
      draw.fate = fate;
    }
    at -= chance;
  }
  draw.duplicated = random_.NextFloat() < faults_.duplicated;
  draw.delayed = random_.NextFloat() < faults_.delayed;
  return draw;
}

absl::StatusOr<Store*> InProcessTransport::Find(
    const std::string& address) const {
  MutexLock lock(&mutex_);
  const auto found = stores_.find(address);
  if (found == stores_.end()) {
    return absl::UnavailableError(
        absl::StrCat("ps ", address, ": connection refused"));
  }
  return found->second;
}

void InProcessTransport::AddStream(
    const std::string& address,
    std::weak_ptr<in_process_internal::StreamEnd> stream) {
  MutexLock lock(&mutex_);
  streams_[address].push_back(std::move(stream));
}

std::unique_ptr<ControlLink> InProcessTransport::Connect(
    const std::string& address) {
  return std::make_unique<InProcessLink>(this, address);
}

std::unique_ptr<DataLink> InProcessTransport::ConnectData(
    const std::string& address) {
  return std::make_unique<InProcessLink>(this, address);
}

}  // namespace weir
