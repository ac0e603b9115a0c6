#include "sim/chief_link.h"

#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/threads/scheduler.h"
#include "proto/wire/wire_version.h"

namespace weir::sim {
namespace {

using std::chrono::milliseconds;

// A write of gRPC returns when the transport has taken it, so that some may be
// on their way.
constexpr int kWindow = 2;

// The worker's end of a heartbeat.
struct Line {
  std::deque<Command> commands;
  std::optional<absl::Status> ended;
  int on_the_way = 0;  // messages that the chief has not taken
  WaitQueue changed;

  void Changed() { Wake(&changed, changed.size()); }
  void End(const absl::Status& status) {
    if (!ended.has_value()) {
      ended = status;
    }
    Changed();
  }
};

// The chief's end of a heartbeat.
class SimSink : public HeartbeatSink {
 public:
  SimSink(Network* network, std::shared_ptr<Connection> connection,
          std::shared_ptr<Line> line)
      : network_(network),
        connection_(std::move(connection)),
        line_(std::move(line)) {}

  void Send(const Command& command) override {
    network_->ToClient(connection_, [line = line_, command] {
      line->commands.push_back(command);
      line->Changed();
    });
  }
  void End(const absl::Status& status) override {
    network_->ToClient(connection_,
                       [line = line_, status] { line->End(status); });
  }

 private:
  Network* const network_;
  const std::shared_ptr<Connection> connection_;
  const std::shared_ptr<Line> line_;
};

class SimHeartbeat : public HeartbeatStream {
 public:
  SimHeartbeat(Network* network, std::string address, int process)
      : network_(network), address_(std::move(address)), process_(process) {}
  ~SimHeartbeat() override { Cancel(); }

  void Open() override {
    const absl::Status admitted =
        network_->Admit(process_, "/weir.Chief/Heartbeat");
    if (!admitted.ok()) {
      line_->End(admitted);
      return;
    }
    const Network::Server* const server = network_->Find(address_);
    if (server == nullptr) {
      line_->End(absl::UnavailableError("connection refused"));
      return;
    }
    connection_ = network_->Connect(process_, server->process);
    connection_->at_client = [line = line_](const absl::Status& why) {
      line->End(why);
    };
    chief_ = server->chief;
    network_->ToServer(connection_, [network = network_,
                                     connection = connection_, line = line_,
                                     chief = chief_, stream = stream_] {
      *stream = chief->OpenStream(
          std::make_shared<SimSink>(network, connection, line));
      connection->at_server = [chief, stream] { chief->OnStreamLost(*stream); };
    });
  }

  bool Read(Command* command) override {
    while (line_->commands.empty() && !line_->ended.has_value()) {
      Wait(&line_->changed, nullptr);
    }
    if (line_->commands.empty()) {
      return false;
    }
    *command = std::move(line_->commands.front());
    line_->commands.pop_front();
    if (network_->watch().on_command) {
      network_->watch().on_command(process_, *command);
    }
    return true;
  }

  bool Write(const Progress& progress) override {
    while (!line_->ended.has_value() && line_->on_the_way >= kWindow) {
      Wait(&line_->changed, nullptr);
    }
    if (line_->ended.has_value()) {
      return false;
    }
    ++line_->on_the_way;
    if (network_->watch().on_progress) {
      network_->watch().on_progress(process_, progress);
    }
    network_->ToServer(connection_, [network = network_, chief = chief_,
                                     connection = connection_, line = line_,
                                     stream = stream_, progress] {
      chief->OnProgress(*stream, progress, [network, connection, line] {
        network->ToClient(connection, [line] {
          --line->on_the_way;
          line->Changed();
        });
      });
    });
    return true;
  }

  void WritesDone() override {
    if (connection_ == nullptr) {
      return;
    }
    network_->ToServer(connection_, [network = network_, chief = chief_,
                                     line = line_, connection = connection_,
                                     stream = stream_] {
      chief->OnStreamLost(*stream);
      network->ToClient(connection, [line] { line->End(absl::OkStatus()); });
    });
  }

  absl::Status Finish() override { return *line_->ended; }

  void Cancel() override {
    line_->End(absl::CancelledError("cancelled"));
    if (connection_ != nullptr) {
      network_->Reset(connection_.get(), absl::CancelledError("cancelled"));
    }
  }

 private:
  Network* const network_;
  const std::string address_;
  const int process_;
  const std::shared_ptr<Line> line_ = std::make_shared<Line>();
  const std::shared_ptr<uint64_t> stream_ = std::make_shared<uint64_t>(0);
  std::shared_ptr<Connection> connection_;
  ChiefRunner* chief_ = nullptr;  // of connection_'s server
};

template <typename Reply>
struct Asked {
  std::optional<absl::StatusOr<Reply>> reply;
  WaitQueue changed;
};

// Calls `work(chief, done)` at the chief; returns what `done` gets there.
// Meanwhile `end` may come.
template <typename Reply, typename Work>
absl::StatusOr<Reply> Ask(Network* network, const std::string& address,
                          int process, std::chrono::nanoseconds end,
                          Work work) {
  const Network::Server* server = nullptr;
  while ((server = network->Find(address)) == nullptr) {
    if (Now() >= end) {
      return absl::DeadlineExceededError("no connection");
    }
    SleepFor(milliseconds(20));
  }
  const auto connection = network->Connect(process, server->process);
  const auto asked = std::make_shared<Asked<Reply>>();
  const auto answer = [asked](absl::StatusOr<Reply> reply) {
    if (!asked->reply.has_value()) {
      asked->reply = std::move(reply);
    }
    Wake(&asked->changed, 1);
  };
  connection->at_client = answer;
  network->ToServer(
      connection, [network, connection, answer, work, chief = server->chief] {
        work(chief, [network, connection, answer](absl::StatusOr<Reply> reply) {
          network->ToClient(connection, [answer, reply] { answer(reply); });
        });
      });
  while (!asked->reply.has_value() && Now() < end) {
    Wait(&asked->changed, nullptr, end - Now());
  }
  connection->at_client = nullptr;
  network->Reset(connection.get(), absl::CancelledError("the call is over"));
  return asked->reply.has_value() ? *std::move(asked->reply)
                                  : absl::DeadlineExceededError("no answer");
}

}  // namespace

absl::Status SimChiefLink::Register(const RegisterRequest& request,
                                    milliseconds timeout,
                                    RegisterReply* reply) {
  WEIR_RETURN_IF_ERROR(network_->Admit(process_, "/weir.Chief/Register"));
  const auto answer = Ask<RegisterReply>(
      network_, address_, process_, Now() + timeout,
      [request, caller = network_->IdentityOf(process_)](ChiefRunner* chief,
                                                         auto done) {
        const absl::Status rank = chief->CheckRank(caller, request);
        if (rank.ok()) {
          chief->Register(request, done);
        } else {
          done(rank);
        }
      });
  if (!answer.ok()) {
    return answer.status();
  }
  *reply = *answer;
  if (reply->has_grant() && network_->watch().on_grant) {
    network_->watch().on_grant(process_, reply->grant());
  }
  reply->set_wire_version(kWireVersion);
  return absl::OkStatus();
}

absl::Status SimChiefLink::Probe(milliseconds timeout) {
  WEIR_RETURN_IF_ERROR(network_->Admit(process_, "/weir.Chief/GetStatus"));
  return Ask<ChiefStatus>(
             network_, address_, process_, Now() + timeout,
             [](ChiefRunner* chief, auto done) { chief->GetStatus(done); })
      .status();
}

std::unique_ptr<HeartbeatStream> SimChiefLink::NewHeartbeat() {
  return std::make_unique<SimHeartbeat>(network_, address_, process_);
}

absl::Status SimChiefLink::PutTrace(const PutTraceRequest& /*request*/,
                                    milliseconds /*timeout*/,
                                    PutTraceReply* /*reply*/) {
  return absl::UnimplementedError("no timelines in a simulated world");
}

}  // namespace weir::sim
