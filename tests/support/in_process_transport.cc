#include "tests/support/in_process_transport.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"
#include "server/ps/service/answer_flow.h"

namespace weir {
namespace in_process_internal {

constexpr auto kTick = std::chrono::milliseconds(2);

template <class Header>
struct ReceivedAnswer {
  Header header;
  Payload payload;
};

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
using in_process_internal::ReceivedAnswer;
using in_process_internal::StreamState;

Payload CopyOf(std::span<const char> bytes) {
  auto copy = std::make_shared<std::vector<char>>(bytes.begin(), bytes.end());
  const std::span<const char> piece(copy->data(), copy->size());
  return piece.empty() ? Payload() : Payload({piece}, std::move(copy));
}

// The same in two pieces, cut inside a float as a network may cut them.
Payload CutCopyOf(std::span<const char> bytes) {
  auto copy = std::make_shared<std::vector<char>>(bytes.begin(), bytes.end());
  const std::span<const char> all(copy->data(), copy->size());
  const size_t cut = (all.size() / 2) | 1;
  return all.empty() ? Payload()
                     : Payload({all.first(cut), all.subspan(cut)}, copy);
}

absl::Status SocketClosed(const std::string& address) {
  return absl::UnavailableError(
      absl::StrCat("ps ", address, ": socket closed"));
}

// Answers one request.
template <class Header>
class InProcessFlow : public AnswerFlow {
 public:
  using State = StreamState<ReceivedAnswer<Header>>;

  InProcessFlow(Store* store, std::string address, std::shared_ptr<State> state,
                const InProcessTransport::Draw& draw)
      : AnswerFlow(store, Arena::Heap(), kParkedMax),
        address_(std::move(address)),
        state_(std::move(state)),
        draw_(draw) {}

 private:
  void Write(Answer&& answer, bool /*last*/) override {
    if (draw_.fate != Fate::kNoAnswer) {
      Payload payload;
      if (answer.values) {
        payload =
            CutCopyOf({reinterpret_cast<const char*>(answer.values.data()),
                       answer.bytes});
      }
      state_->Add({std::get<Header>(std::move(answer.header)), payload},
                  draw_.delayed);
    }
    OnWritten(answer.question, true);
  }
  void Finish(const absl::Status& status) override {
    state_->End(Annotate(status, absl::StrCat("ps ", address_)));
  }

  const std::string address_;
  const std::shared_ptr<State> state_;
  const InProcessTransport::Draw draw_;
};

template <class Request, class Header>
class InProcessStream : public DataStream<Request, Header> {
 public:
  InProcessStream(InProcessTransport* transport, std::string address)
      : transport_(transport), address_(std::move(address)) {
    const absl::StatusOr<std::shared_ptr<Store>> store =
        transport_->Find(address_);
    if (!store.ok()) {
      state_->End(store.status());
      return;
    }
    store_ = *store;
    transport_->AddStream(address_, state_);
  }
  ~InProcessStream() override {
    Cancel();
    GiveBack();
  }

  absl::Status Send(const Request& header, std::span<const char> payload,
                    std::function<void()> released) override {
    const Payload copy = CopyOf(payload);
    if (released) {
      MutexLock lock(&lent_mutex_);
      lent_.push_back({payload, copy, std::move(released)});
    }
    WEIR_RETURN_IF_ERROR(state_->end());
    const InProcessTransport::Draw draw = DrawFault(header);
    if (draw.fate == Fate::kLostBefore) {
      state_->End(draw.lost);
      return state_->end();
    }
    const std::shared_ptr<Store> store = store_.lock();
    if (store == nullptr) {
      Break();
      return state_->end();
    }
    const auto flow = std::make_shared<InProcessFlow<Header>>(
        store.get(), address_, state_, draw);
    if (const absl::Status status =
            Take(header, copy, store.get(), flow.get(), draw);
        !status.ok()) {
      flow->Fail(status);
    } else if (draw.fate == Fate::kLostAfter) {
      state_->End(draw.lost);
    }
    return absl::OkStatus();
  }

  absl::Status Receive(Header* header, Payload* payload) override {
    for (;;) {
      ReceivedAnswer<Header> answer;
      WEIR_ASSIGN_OR_RETURN(const bool taken, state_->Take(&answer));
      if (taken) {
        *header = std::move(answer.header);
        *payload = std::move(answer.payload);
        GiveBack();
        return absl::OkStatus();
      }
      if (const std::shared_ptr<Store> store = store_.lock()) {
        store->ExpireWaits();
      } else {
        Break();  // stopped before AddStream
      }
    }
  }

  void Cancel() override {
    state_->End(absl::CancelledError(absl::StrCat("ps ", address_)));
  }

 private:
  struct Lent {
    std::span<const char> bytes;  // the caller's
    Payload sent;                 // what they were
    std::function<void()> released;
  };

  InProcessTransport::Draw DrawFault(const GradientChunk& request) {
    return transport_->DrawFault(address_, request);
  }
  InProcessTransport::Draw DrawFault(const PullRowsChunk&) {
    return transport_->DrawFault(address_);
  }

  // The store was stopped.
  void Break() { state_->End(SocketClosed(address_)); }

  // With an answer or at the end, and not in Send: a slow transport is late.
  void GiveBack() {
    std::vector<Lent> lent;
    {
      MutexLock lock(&lent_mutex_);
      lent.swap(lent_);
    }
    for (const Lent& one : lent) {
      WEIR_CHECK(one.bytes.empty() ||
                 std::ranges::equal(one.bytes, one.sent.pieces().front()));
      one.released();
    }
  }

  absl::Status Take(const GradientChunk& chunk, const Payload& payload,
                    Store* store, AnswerFlow* flow,
                    const InProcessTransport::Draw& draw) {
    WEIR_RETURN_IF_ERROR(flow->Take(chunk, payload));
    if (draw.duplicated && chunk.has_push()) {
      return store->Push(chunk, payload).status();
    }
    return absl::OkStatus();
  }
  absl::Status Take(const PullRowsChunk& request, const Payload&, Store*,
                    AnswerFlow* flow, const InProcessTransport::Draw&) {
    flow->Take(request);
    return absl::OkStatus();
  }

  InProcessTransport* const transport_;
  const std::string address_;
  const std::shared_ptr<StreamState<ReceivedAnswer<Header>>> state_ =
      std::make_shared<StreamState<ReceivedAnswer<Header>>>();
  std::weak_ptr<Store> store_;
  Mutex lent_mutex_;
  std::vector<Lent> lent_ ABSL_GUARDED_BY(lent_mutex_);
};

class InProcessLink : public ControlLink, public DataLink {
 public:
  using Timeout = LinkTimeout;

  InProcessLink(InProcessTransport* transport, std::string address)
      : transport_(transport), address_(std::move(address)) {}

  const std::string& address() const override { return address_; }

  std::unique_ptr<PushPullStream> OpenPushPull() override {
    return std::make_unique<InProcessStream<GradientChunk, ValueChunk>>(
        transport_, address_);
  }

  std::unique_ptr<PullRowsStream> OpenPullRows() override {
    return std::make_unique<InProcessStream<PullRowsChunk, RowChunk>>(
        transport_, address_);
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
  absl::StatusOr<PsStatus> GetStatus(const GetStatusRequest& request,
                                     Timeout) override {
    return Call<PsStatus>(
        [&](Store* store) { return store->GetStatus(request); });
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
    WEIR_ASSIGN_OR_RETURN(std::shared_ptr<Store> store,
                          transport_->Find(address_));
    const std::weak_ptr<Store> served = store;
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
      store.reset();
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
      store = served.lock();
      if (store == nullptr) {
        return SocketClosed(address_);
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
    WEIR_ASSIGN_OR_RETURN(const std::shared_ptr<Store> store,
                          transport_->Find(address_));
    const InProcessTransport::Draw draw = transport_->DrawFault(address_);
    if (draw.fate == Fate::kLostBefore) {
      return draw.lost;
    }
    absl::StatusOr<Reply> reply = work(store.get());
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
  Served served;
  served.left = std::make_shared<absl::Notification>();
  served.store = std::shared_ptr<Store>(
      store, [left = served.left](Store*) { left->Notify(); });
  MutexLock lock(&mutex_);
  stores_[address] = std::move(served);
  shut_down_[address] = false;
}

void InProcessTransport::Stop(const std::string& address) {
  std::shared_ptr<absl::Notification> left;
  {
    MutexLock lock(&mutex_);
    const auto found = stores_.find(address);
    if (found == stores_.end()) {
      return;
    }
    left = found->second.left;
    stores_.erase(found);
    for (const auto& weak : streams_[address]) {
      if (const auto stream = weak.lock()) {
        stream->End(SocketClosed(address));
      }
    }
    streams_.erase(address);
  }
  left->WaitForNotification();
}

void InProcessTransport::SetFate(DecideFate decide) {
  MutexLock lock(&mutex_);
  decide_fate_ = std::move(decide);
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

InProcessTransport::Draw InProcessTransport::DrawFault(
    const std::string& address, const GradientChunk& request) {
  Draw draw = DrawFault(address);
  DecideFate decide;
  {
    MutexLock lock(&mutex_);
    decide = decide_fate_;
  }
  if (decide && draw.fate == Fate::kNormal) {
    draw.fate = decide(address, request);
  }
  return draw;
}

absl::StatusOr<std::shared_ptr<Store>> InProcessTransport::Find(
    const std::string& address) const {
  MutexLock lock(&mutex_);
  const auto found = stores_.find(address);
  if (found == stores_.end()) {
    return absl::UnavailableError(
        absl::StrCat("ps ", address, ": connection refused"));
  }
  return found->second.store;
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
