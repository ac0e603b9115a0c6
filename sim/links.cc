#include "sim/links.h"

#include <deque>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "server/ps/service/answer_flow.h"
#include "server/ps/service/slot_rights.h"

namespace weir::sim {
namespace {

// gRPC's flow control lets about so many messages of a test's size leave before
// the first one is read.
constexpr size_t kWindow = 8;

constexpr char kService[] = "/weir.ParameterServer/";

Payload CopyOf(std::span<const char> bytes) {
  auto copy = std::make_shared<std::vector<char>>(bytes.begin(), bytes.end());
  const std::span<const char> piece(copy->data(), copy->size());
  return piece.empty() ? Payload() : Payload({piece}, std::move(copy));
}

absl::Status Named(const absl::Status& status, const std::string& address) {
  return Annotate(status, absl::StrCat("ps ", address));
}

// The client's end of a stream.
template <typename Header>
struct StreamEnd {
  struct Received {
    Header header;
    Payload payload;
  };
  std::deque<Received> answers;
  std::optional<absl::Status> ended;
  size_t on_the_way = 0;  // requests
  std::deque<std::function<void()>> released;
  WaitQueue changed;

  void Changed() { Wake(&changed, changed.size()); }
  void End(const absl::Status& status) {
    if (!ended.has_value()) {
      ended = status;
    }
    Changed();
  }
  // On a fibre of the client: nothing reads its payloads any more.
  void GiveBackAll() {
    while (!released.empty()) {
      const std::function<void()> one = std::move(released.front());
      released.pop_front();
      if (one) {
        one();
      }
    }
  }
};

// The ps's end of a stream.
template <typename Header>
class SimFlow : public AnswerFlow {
 public:
  SimFlow(Network* network, Store* store,
          std::shared_ptr<Connection> connection,
          std::shared_ptr<StreamEnd<Header>> client)
      : AnswerFlow(store, Arena::Heap(), /*window=*/1),
        network_(network),
        connection_(std::move(connection)),
        client_(std::move(client)) {}

  void Gone() { ClientGone(); }

 private:
  void Write(Answer&& answer, bool /*last*/) override {
    Payload payload;
    if (answer.values) {
      payload = CopyOf(
          {reinterpret_cast<const char*>(answer.values.data()), answer.bytes});
    }
    network_->ToClient(
        connection_,
        [client = client_, payload,
         header = std::get<Header>(std::move(answer.header))] {
          client->answers.push_back({header, payload});
          client->Changed();
        },
        payload.bytes());
    // The wire has taken it a little later.
    network_->Later(
        [self = shared_from_this(), this, question = answer.question] {
          OnWritten(question, true);
        });
  }
  void Finish(const absl::Status& status) override {
    network_->ToClient(connection_,
                       [client = client_, status] { client->End(status); });
  }

  Network* const network_;
  const std::shared_ptr<Connection> connection_;
  const std::shared_ptr<StreamEnd<Header>> client_;
};

template <typename Request, typename Header>
class SimStream : public DataStream<Request, Header> {
 public:
  SimStream(Network* network, std::string address, int process,
            const char* method)
      : network_(network), address_(std::move(address)) {
    const absl::Status admitted =
        network_->Admit(process, absl::StrCat(kService, method));
    if (!admitted.ok()) {
      end_->End(admitted);
      return;
    }
    const Network::Server* const server = network_->Find(address_);
    if (server == nullptr) {
      end_->End(absl::UnavailableError("connection refused"));
      return;
    }
    connection_ = network_->Connect(process, server->process);
    flow_ = std::make_shared<SimFlow<Header>>(network_, server->store,
                                              connection_, end_);
    connection_->at_client = [end = end_](const absl::Status& why) {
      end->End(why);
      end->GiveBackAll();
    };
    connection_->at_server = [flow = flow_] { flow->Gone(); };
  }
  ~SimStream() override {
    Cancel();
    end_->GiveBackAll();
  }

  absl::Status Send(const Request& header, std::span<const char> payload,
                    std::function<void()> released) override {
    const Payload copy = CopyOf(payload);
    end_->released.push_back(std::move(released));
    while (!end_->ended.has_value() && end_->on_the_way >= kWindow) {
      Wait(&end_->changed, nullptr);
    }
    if (end_->ended.has_value()) {
      end_->GiveBackAll();
      return Named(*end_->ended, address_);
    }
    ++end_->on_the_way;
    Watch(header);
    const auto take = [network = network_, flow = flow_,
                       connection = connection_, end = end_, header, copy] {
      if (const absl::Status status = Take(flow.get(), header, copy);
          !status.ok()) {
        flow->Fail(status);
      }
      network->ToClient(connection, [end] {
        --end->on_the_way;
        if (!end->released.empty()) {
          const std::function<void()> one = std::move(end->released.front());
          end->released.pop_front();
          if (one) {
            one();
          }
        }
        end->Changed();
      });
    };
    network_->ToServer(connection_, take, copy.bytes());
    return absl::OkStatus();
  }

  absl::Status Receive(Header* header, Payload* payload) override {
    while (end_->answers.empty() && !end_->ended.has_value()) {
      Wait(&end_->changed, nullptr);
    }
    if (end_->answers.empty() || end_->ended.has_value()) {
      return Named(*end_->ended, address_);
    }
    *header = std::move(end_->answers.front().header);
    *payload = std::move(end_->answers.front().payload);
    end_->answers.pop_front();
    return absl::OkStatus();
  }

  void Cancel() override {
    end_->End(absl::CancelledError("cancelled"));
    if (connection_ != nullptr) {
      network_->Reset(connection_.get(), absl::CancelledError("cancelled"));
    }
  }

 private:
  void Watch(const GradientChunk& chunk) const {
    if (chunk.has_push() && network_->watch().on_push) {
      network_->watch().on_push(connection_->client, chunk.push().sequence());
    }
  }
  void Watch(const PullRowsChunk&) const {}
  static absl::Status Take(AnswerFlow* flow, const GradientChunk& chunk,
                           const Payload& payload) {
    return flow->Take(chunk, payload);
  }
  static absl::Status Take(AnswerFlow* flow, const PullRowsChunk& request,
                           const Payload&) {
    flow->Take(request);
    return absl::OkStatus();
  }

  Network* const network_;
  const std::string address_;
  const std::shared_ptr<StreamEnd<Header>> end_ =
      std::make_shared<StreamEnd<Header>>();
  std::shared_ptr<Connection> connection_;
  std::shared_ptr<SimFlow<Header>> flow_;
};

class SimLink : public ControlLink, public DataLink {
 public:
  using Timeout = LinkTimeout;

  SimLink(Network* network, std::string address, int process)
      : network_(network), address_(std::move(address)), process_(process) {}

  const std::string& address() const override { return address_; }

  std::unique_ptr<PushPullStream> OpenPushPull() override {
    return std::make_unique<SimStream<GradientChunk, ValueChunk>>(
        network_, address_, process_, "PushPull");
  }
  std::unique_ptr<PullRowsStream> OpenPullRows() override {
    return std::make_unique<SimStream<PullRowsChunk, RowChunk>>(
        network_, address_, process_, "PullRows");
  }

  absl::StatusOr<PushRowsReply> PushRows(
      Timeout timeout, const ChunkSource<PushRowsChunk>& next) override {
    std::vector<std::pair<PushRowsChunk, Payload>> chunks;
    PushRowsChunk header;
    std::span<const char> payload;
    size_t bytes = 0;
    while (next(&header, &payload)) {
      chunks.emplace_back(header, CopyOf(payload));
      bytes += payload.size();
      payload = {};
    }
    return Ask<PushRowsReply>(
        "PushRows", timeout,
        [chunks = std::move(chunks)](Store* store, auto done) {
          auto update = std::make_shared<RowPush>(store);
          for (const auto& [one, bytes] : chunks) {
            if (const absl::Status status = update->Add(one, bytes);
                !status.ok()) {
              done(status);
              return;
            }
          }
          update->Apply(
              [update, store, done](absl::StatusOr<PushRowsReply> reply) {
                if (reply.ok()) {
                  reply->set_incarnation(store->incarnation());
                }
                done(std::move(reply));
              });
        },
        bytes);
  }

  void SpeakAsChief() override { is_chief_ = true; }
  absl::StatusOr<HelloReply> Hello(Timeout timeout) override {
    const Network::Server* const server = network_->Find(address_);
    Leaving* const leaving = server == nullptr ? nullptr : server->leaving;
    return Call<HelloReply>(
        "Hello", timeout,
        [leaving, is_chief = is_chief_, rights = Rights()](Store* store) {
          HelloReply reply = store->Hello();
          rights.Limit(&reply);
          if (leaving != nullptr) {
            if (is_chief && rights.Leads()) {
              leaving->OnChief();
            }
            reply.set_leaving(leaving->begun());
          }
          return reply;
        });
  }
  absl::StatusOr<DeclareReply> Declare(const DeclareRequest& request,
                                       Timeout timeout) override {
    return Call<DeclareReply>("Declare", timeout, [request](Store* store) {
      return store->Declare(request);
    });
  }
  absl::StatusOr<DeclareReply> Restore(const RestoreRequest& request,
                                       Timeout timeout) override {
    if (network_->watch().on_restore) {
      network_->watch().on_restore(process_, request.checkpoint());
    }
    return Call<DeclareReply>("Restore", timeout, [request](Store* store) {
      return store->Restore(request);
    });
  }
  absl::StatusOr<AssignReply> Assign(
      Timeout timeout, const ChunkSource<AssignChunk>& next) override {
    std::vector<std::pair<AssignChunk, Payload>> chunks;
    AssignReply reply;
    AssignChunk header;
    std::span<const char> payload;
    while (next(&header, &payload)) {
      chunks.emplace_back(header, CopyOf(payload));
      reply.set_elements(reply.elements() + payload.size() / sizeof(float));
      payload = {};
    }
    return Call<AssignReply>(
        "Assign", timeout,
        [chunks, reply](Store* store) -> absl::StatusOr<AssignReply> {
          for (const auto& [one, bytes] : chunks) {
            WEIR_RETURN_IF_ERROR(store->Assign(one, bytes));
          }
          return reply;
        },
        reply.elements() * sizeof(float));
  }
  absl::Status SetSlots(const SetSlotsRequest& request,
                        Timeout timeout) override {
    return CallStatus("SetSlots", timeout,
                      [request, rights = Rights()](Store* store) {
                        return rights.SetSlots(request, store);
                      });
  }
  absl::StatusOr<PsStatus> GetStatus(const GetStatusRequest& request,
                                     Timeout timeout) override {
    return Call<PsStatus>("GetStatus", timeout,
                          [request, rights = Rights()](Store* store) {
                            PsStatus status = store->GetStatus(request);
                            rights.Limit(status.mutable_hello());
                            return status;
                          });
  }
  absl::StatusOr<ShrinkReply> Shrink(const ShrinkRequest& request,
                                     Timeout timeout) override {
    return Call<ShrinkReply>("Shrink", timeout, [request](Store* store) {
      return store->Shrink(request);
    });
  }
  absl::Status Shutdown(const ShutdownRequest& request,
                        Timeout timeout) override {
    const Network::Server* const server = network_->Find(address_);
    const auto end = server == nullptr ? nullptr : server->on_shutdown;
    return CallStatus("Shutdown", timeout, [request, end](Store* store) {
      const absl::Status status = store->CheckShutdown(request);
      if (status.ok() && end) {
        end(absl::Status(static_cast<absl::StatusCode>(request.code()),
                         request.reason()));
      }
      return status;
    });
  }

  absl::Status Snapshot(
      const SnapshotRequest& request, Timeout timeout,
      const std::function<void(const SnapshotReply&)>& reply) override {
    return AskUntil<SnapshotReply>(
               "Snapshot", timeout,
               [request](Store* store, auto done) {
                 store->Snapshot(request, done, [](std::function<void()> work) {
                   Start(std::move(work));
                 });
               },
               [&reply](const SnapshotReply& answer) {
                 reply(answer);
                 return answer.has_file();
               },
               /*payload=*/0)
        .status();
  }

 private:
  template <typename Reply>
  struct Asked {
    std::deque<absl::StatusOr<Reply>> replies;
    WaitQueue changed;
  };

  SlotRights Rights() const {
    return {network_->IdentityOf(process_), /*has_chief=*/true};
  }

  // Calls `work(store, done)` at the ps, if the process may, with a message of
  // `payload` bytes. Returns what `done` gets there when `is_last` says so of
  // it.
  template <typename Reply, typename Work, typename IsLast>
  absl::StatusOr<Reply> AskUntil(const char* method, Timeout timeout, Work work,
                                 IsLast is_last, size_t payload) {
    WEIR_RETURN_IF_ERROR(
        network_->Admit(process_, absl::StrCat(kService, method)));
    const Network::Server* const server = network_->Find(address_);
    if (server == nullptr) {
      SleepFor(std::chrono::milliseconds(1));
      return Named(absl::UnavailableError("connection refused"), address_);
    }
    const auto connection = network_->Connect(process_, server->process);
    const auto asked = std::make_shared<Asked<Reply>>();
    connection->at_client = [asked](const absl::Status& why) {
      asked->replies.emplace_back(why);
      Wake(&asked->changed, 1);
    };
    const auto take = [network = network_, store = server->store, connection,
                       asked, work] {
      work(store, [network, connection, asked](absl::StatusOr<Reply> reply) {
        network->ToClient(connection, [asked, reply] {
          asked->replies.push_back(reply);
          Wake(&asked->changed, 1);
        });
      });
    };
    network_->ToServer(connection, take, payload);
    const auto end = Now() + timeout;
    absl::StatusOr<Reply> reply;
    do {
      while (asked->replies.empty() && Now() < end) {
        Wait(&asked->changed, nullptr, end - Now());
      }
      if (asked->replies.empty()) {
        reply = absl::DeadlineExceededError("no answer");
        break;
      }
      reply = std::move(asked->replies.front());
      asked->replies.pop_front();
    } while (reply.ok() && !is_last(*reply));
    connection->at_client = nullptr;
    network_->Reset(connection.get(), absl::CancelledError("the call is over"));
    return reply.ok() ? std::move(reply) : Named(reply.status(), address_);
  }

  template <typename Reply, typename Work>
  absl::StatusOr<Reply> Ask(const char* method, Timeout timeout, Work work,
                            size_t payload) {
    return AskUntil<Reply>(
        method, timeout, std::move(work), [](const Reply&) { return true; },
        payload);
  }
  template <typename Reply, typename Work>
  absl::StatusOr<Reply> Call(const char* method, Timeout timeout, Work work,
                             size_t payload = 0) {
    return Ask<Reply>(
        method, timeout, [work](Store* store, auto done) { done(work(store)); },
        payload);
  }
  template <typename Work>
  absl::Status CallStatus(const char* method, Timeout timeout, Work work) {
    return Call<bool>(method, timeout,
                      [work](Store* store) -> absl::StatusOr<bool> {
                        WEIR_RETURN_IF_ERROR(work(store));
                        return true;
                      })
        .status();
  }

  Network* const network_;
  const std::string address_;
  const int process_;
  bool is_chief_ = false;
};

}  // namespace

std::unique_ptr<ControlLink> SimTransport::Connect(const std::string& address) {
  return std::make_unique<SimLink>(network_, address, process_);
}

std::unique_ptr<DataLink> SimTransport::ConnectData(
    const std::string& address) {
  return std::make_unique<SimLink>(network_, address, process_);
}

}  // namespace weir::sim
