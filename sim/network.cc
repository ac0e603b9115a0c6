#include "sim/network.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/security/authorisation.h"
#include "sim/chief_link.h"
#include "sim/links.h"

namespace weir::sim {
namespace {

// proto/wire/grpc_channel.cc: a ping after 10 s, and 10 s for its answer.
constexpr std::chrono::nanoseconds kKeepalive = std::chrono::seconds(20);
// What a message has beside its payload.
constexpr size_t kHeaderBytes = 64;

}  // namespace

Inbox::Inbox() {
  Start([this] { Loop(); });
}

void Inbox::Put(std::chrono::nanoseconds at, std::function<void()> work) {
  if (!closed_) {
    work_.emplace(std::make_pair(at.count(), count_++), std::move(work));
    Wake(&changed_, 1);
  }
}

void Inbox::Loop() {
  for (;;) {
    if (work_.empty()) {
      Wait(&changed_, nullptr);
      continue;
    }
    const auto first = work_.begin();
    const std::chrono::nanoseconds left =
        std::chrono::nanoseconds(first->first.first) - Now();
    if (left.count() > 0) {
      Wait(&changed_, nullptr, left);
      continue;
    }
    const std::function<void()> work = std::move(first->second);
    work_.erase(first);
    work();
  }
}

void Network::Join(std::optional<PeerIdentity> identity) {
  inboxes_[Process()] = std::make_shared<Inbox>();
  if (identity.has_value()) {
    identities_[Process()] = *std::move(identity);
  }
}

std::optional<PeerIdentity> Network::IdentityOf(int process) const {
  const auto found = identities_.find(process);
  return found == identities_.end() ? std::nullopt
                                    : std::make_optional(found->second);
}

absl::Status Network::Admit(int process, const std::string& method) const {
  const auto caller = IdentityOf(process);
  return caller.has_value() ? Authorise(method, *caller, /*has_chief=*/true)
                            : absl::OkStatus();
}

void Network::Serve(const std::string& address, Store* store,
                    std::function<void(const absl::Status&)> on_shutdown,
                    Leaving* leaving) {
  Serve(address, {Process(), store, leaving, std::move(on_shutdown), nullptr});
}

void Network::Serve(const std::string& address, ChiefRunner* chief) {
  Serve(address, {Process(), nullptr, nullptr, nullptr, chief});
}

void Network::Serve(const std::string& address, Server server) {
  // The name is that of the process that was started last.
  const Server* const there = Find(address);
  if (there == nullptr || there->process <= server.process) {
    servers_[address] = std::move(server);
  }
}

void Network::StopServing(const std::string& address) {
  // Another process may have the address by now.
  const Server* const server = Find(address);
  if (server != nullptr && server->process == Process()) {
    servers_.erase(address);
  }
  ResetAllOf(Process(), /*as_server_only=*/true, "the server ends");
}

std::unique_ptr<Transport> Network::NewTransport() {
  return std::make_unique<SimTransport>(this, Process());
}

std::shared_ptr<ChiefLink> Network::NewChiefLink(const std::string& address) {
  return std::make_shared<SimChiefLink>(this, address, Process());
}

const Network::Server* Network::Find(const std::string& address) const {
  const auto found = servers_.find(address);
  return found == servers_.end() ? nullptr : &found->second;
}

Inbox* Network::InboxOf(int process) {
  const auto found = inboxes_.find(process);
  return found == inboxes_.end() ? nullptr : found->second.get();
}

std::chrono::nanoseconds Network::Delay() const {
  const auto spread = static_cast<uint64_t>(
      (faults_.delay_max - faults_.delay_min).count() + 1);
  return faults_.delay_min +
         std::chrono::nanoseconds(static_cast<int64_t>(RandomBelow(spread)));
}

std::shared_ptr<Connection> Network::Connect(int client, int server) {
  auto connection = std::make_shared<Connection>();
  connection->client = client;
  connection->server = server;
  std::erase_if(connections_, [](const auto& one) { return one.expired(); });
  connections_.push_back(connection);
  return connection;
}

void Network::ToServer(const std::shared_ptr<Connection>& connection,
                       std::function<void()> work, size_t payload) {
  Send(connection, /*there=*/true, std::move(work), payload);
}

void Network::ToClient(const std::shared_ptr<Connection>& connection,
                       std::function<void()> work, size_t payload) {
  Send(connection, /*there=*/false, std::move(work), payload);
}

std::chrono::nanoseconds Network::Left(std::pair<int, int> way, size_t bytes) {
  std::chrono::nanoseconds* const left = &left_[way];
  *left = std::max(*left, Now()) + faults_.TimeOf(bytes);
  return *left;
}

void Network::Send(const std::shared_ptr<Connection>& connection, bool there,
                   std::function<void()> work, size_t payload) {
  if (!connection->broken.ok()) {
    return;
  }
  // The one that breaks the connection may still have arrived.
  const bool reset =
      faults_.reset_one_in > 0 && RandomBelow(faults_.reset_one_in) == 0;
  if (reset && RandomBelow(2) == 0) {
    Reset(connection.get(), absl::UnavailableError("connection reset"));
    return;
  }
  int64_t* const last =
      there ? &connection->last_there_ns : &connection->last_back_ns;
  std::pair<int, int> way(connection->client, connection->server);
  if (!there) {
    std::swap(way.first, way.second);
  }
  int64_t at = (Left(way, kHeaderBytes + payload) + Delay()).count();
  const auto parted = silences_.find(way);
  if (parted != silences_.end()) {
    at = std::max(at, parted->second.end_ns);
  }
  *last = std::max(*last + 1, at);
  Inbox* const inbox = InboxOf(way.second);
  if (inbox == nullptr) {
    return;
  }
  inbox->Put(std::chrono::nanoseconds(*last),
             [this, connection, work = std::move(work)] {
               if (connection->broken.ok()) {  // I2
                 ++arrived_;
                 work();
               }
             });
  if (reset) {
    // After the message, before or after its answer.
    inbox->Put(std::chrono::nanoseconds(*last) + Delay(), [this, connection] {
      Reset(connection.get(), absl::UnavailableError("connection reset"));
    });
  }
}

void Network::Reset(Connection* connection, const absl::Status& why) {
  if (!connection->broken.ok()) {
    return;
  }
  connection->broken = why;
  resets_ += absl::IsUnavailable(why) ? 1 : 0;
  // Each side hears of it in its own fibre, I1.
  if (Inbox* const inbox = InboxOf(connection->client);
      inbox != nullptr && connection->at_client) {
    inbox->Put(Now() + Delay(),
               [tell = connection->at_client, why] { tell(why); });
  }
  if (Inbox* const inbox = InboxOf(connection->server);
      inbox != nullptr && connection->at_server) {
    inbox->Put(Now() + Delay(), connection->at_server);
  }
  // What they hold holds the connection.
  connection->at_client = nullptr;
  connection->at_server = nullptr;
}

void Network::Later(std::function<void()> work) {
  InboxOf(Process())->Put(Now() + Delay(), std::move(work));
}

void Network::Stop(int process) {
  Kill(process);
  if (Inbox* const inbox = InboxOf(process)) {
    inbox->Close();
  }
  std::erase_if(servers_, [process](const auto& server) {
    return server.second.process == process;
  });
}

void Network::KillProcess(int process) {
  Stop(process);
  ResetAllOf(process, /*as_server_only=*/false, "the peer was killed");
}

void Network::EndProcess(int process) {
  Stop(process);
  for (const auto& weak : connections_) {
    const auto connection = weak.lock();
    if (connection == nullptr ||
        (connection->client != process && connection->server != process)) {
      continue;
    }
    const bool is_server = connection->server == process;
    const std::chrono::nanoseconds last(is_server ? connection->last_back_ns
                                                  : connection->last_there_ns);
    Inbox* const peer =
        InboxOf(is_server ? connection->client : connection->server);
    if (peer != nullptr) {
      peer->Put(std::max(last, Now()) + Delay(), [this, connection] {
        Reset(connection.get(), absl::UnavailableError("the peer has ended"));
      });
    }
  }
}

void Network::ResetAllOf(int process, bool as_server_only, const char* why) {
  for (const auto& weak : std::vector(connections_)) {
    if (const auto connection = weak.lock();
        connection != nullptr &&
        (connection->server == process ||
         (connection->client == process && !as_server_only))) {
      Reset(connection.get(), absl::UnavailableError(why));
    }
  }
}

void Network::Part(int a, int b, std::chrono::nanoseconds time, bool one_way) {
  const Silence silence = {Now().count(), (Now() + time).count()};
  silences_[{a, b}] = silence;
  if (!one_way) {
    silences_[{b, a}] = silence;
  }
}

void Network::Halted(int process, std::chrono::nanoseconds time) {
  Part(process, process, time, /*one_way=*/true);
}

void Network::BreakSilent() {
  const int64_t now_ns = Now().count();
  std::erase_if(silences_, [now_ns](const auto& silence) {
    return silence.second.end_ns <= now_ns;
  });
  const auto is_silent = [&](int a, int b) {
    const auto found = silences_.find({a, b});
    return found != silences_.end() &&
           now_ns - found->second.begin_ns > kKeepalive.count();
  };
  for (const auto& weak : std::vector(connections_)) {
    const auto connection = weak.lock();
    if (connection == nullptr) {
      continue;
    }
    const int client = connection->client;
    const int server = connection->server;
    // A ping needs both ways.
    if (is_silent(client, server) || is_silent(server, client) ||
        is_silent(client, client) || is_silent(server, server)) {
      Reset(connection.get(), absl::UnavailableError("keepalive timeout"));
    }
  }
}

}  // namespace weir::sim
