// A network in a simulated world: it is late, it breaks, and it parts hosts.
//
// Place: beside gRPC and shared memory, under the product's clients and over
// its stores. Calls begin at AnswerFlow, as gRPC's do, so windows and budgets
// of a ps are the product's own.
//
// Terms
//   task        one simulated process with a place in this network. One fibre
//               of it runs what arrives, as a ps's completion queue does.
//   way         from one task to another. What is sent on a connection arrives
//               in order; connections overtake each other, and share what the
//               way carries in a second.
//   reset       a connection ends on both sides; what was on its way is lost.
//   parted      nothing arrives between two tasks, or of one at the other, and
//               nothing says so.
//
// Invariants
//   I1. Nothing of one task runs in a fibre of another, so a task that is
//       killed holds no lock of the others.
//   I2. A message arrives once or never.
// Threads: for fibres. Code here has no locks, because no other fibre runs
//   until it calls something that waits (common/threads/scheduler.h).
#ifndef SIM_NETWORK_H_
#define SIM_NETWORK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/cc/job/chief_link.h"
#include "client/cc/transport/transport.h"
#include "common/threads/scheduler.h"
#include "proto/security/peer_identity.h"
#include "server/chief/chief_runner.h"
#include "server/ps/service/leaving.h"
#include "server/ps/store/store.h"

namespace weir::sim {

struct Faults {
  std::chrono::nanoseconds delay_min{10'000};
  std::chrono::nanoseconds delay_max{200'000};
  // Of each way; 0: what is sent takes no time but its delay.
  uint64_t bytes_per_second = 0;
  // One message in so many resets its connection; 0: none does.
  uint64_t reset_one_in = 0;

  std::chrono::nanoseconds TimeOf(uint64_t bytes) const {
    return std::chrono::nanoseconds(
        bytes_per_second == 0
            ? 0
            : static_cast<int64_t>(bytes * 1'000'000'000 / bytes_per_second));
  }
};

// Runs what it is given, in order of time, in a fibre of the process that made
// it.
class Inbox {
 public:
  // Starts the fibre.
  Inbox();

  void Put(std::chrono::nanoseconds at, std::function<void()> work);
  // Drops everything that comes from now on. For the process's end.
  void Close() {
    work_.clear();
    closed_ = true;
  }

 private:
  void Loop();

  // By time, then in the order in which they came.
  std::map<std::pair<int64_t, uint64_t>, std::function<void()>> work_;
  WaitQueue changed_;
  uint64_t count_ = 0;
  bool closed_ = false;
};

// One connection of a client to a ps.
struct Connection {
  int client = 0;  // processes
  int server = 0;
  absl::Status broken;
  int64_t last_there_ns = 0;  // when the newest message arrives
  int64_t last_back_ns = 0;
  std::function<void(const absl::Status&)> at_client;  // runs at a reset
  std::function<void()> at_server;
};

// Who hears of what tasks ask of each other, on their fibres.
struct NetworkWatch {
  // A process has asked a ps to restore this checkpoint.
  std::function<void(int process, const std::string& checkpoint)> on_restore;
  // A worker's process tells its chief.
  std::function<void(int process, const Progress& progress)> on_progress;
  // It reads what its chief tells it.
  std::function<void(int process, const Command& command)> on_command;
  // Its chief has granted it a slot.
  std::function<void(int process, const Grant& grant)> on_grant;
  // It sends a part of a push.
  std::function<void(int process, uint64_t sequence)> on_push;
};

class Network {
 public:
  // Before the first task starts.
  void SetWatch(NetworkWatch watch) { watch_ = std::move(watch); }
  const NetworkWatch& watch() const { return watch_; }
  void SetFaults(const Faults& faults) { faults_ = faults; }

  // A fibre of a process calls these for it. Calls of a process without an
  // identity are not looked at, as in insecure mode.
  void Join(std::optional<PeerIdentity> identity = std::nullopt);
  // From now on a ps or a chief, of the calling process, answers at `address`.
  // `on_shutdown` gets the reason of a Shutdown that the store has allowed, and
  // Hello tells a chief of `leaving`.
  void Serve(const std::string& address, Store* store,
             std::function<void(const absl::Status&)> on_shutdown = nullptr,
             Leaving* leaving = nullptr);
  void Serve(const std::string& address, ChiefRunner* chief);
  // Nobody answers there any more, and its connections break.
  void StopServing(const std::string& address);
  std::unique_ptr<Transport> NewTransport();
  std::shared_ptr<ChiefLink> NewChiefLink(const std::string& address);

  // Kills a process. Its connections are reset, and what is on its way is lost.
  void KillProcess(int process);
  // Ends a process that has returned from its main function: what it has sent
  // arrives before its connections break.
  void EndProcess(int process);
  // Parts two tasks for `time`; `one_way`: `b` does not hear `a`.
  void Part(int a, int b, std::chrono::nanoseconds time, bool one_way);
  // A process was halted for `time`, and answers nobody.
  void Halted(int process, std::chrono::nanoseconds time);
  // Breaks connections over which nothing was heard for so long that gRPC's
  // keepalive would. To be called often.
  void BreakSilent();

  // Messages that arrived, connections that were reset.
  uint64_t arrived() const { return arrived_; }
  uint64_t resets() const { return resets_; }

  // For links and streams.

  // Whether a process may call "/weir.<service>/<method>", in a cluster with a
  // chief.
  absl::Status Admit(int process, const std::string& method) const;
  std::optional<PeerIdentity> IdentityOf(int process) const;
  struct Server {
    int process = 0;
    Store* store = nullptr;      // of a ps
    Leaving* leaving = nullptr;  // of a ps
    std::function<void(const absl::Status&)> on_shutdown = nullptr;
    ChiefRunner* chief = nullptr;  // of a chief
  };
  // Null: nobody serves there.
  const Server* Find(const std::string& address) const;
  std::shared_ptr<Connection> Connect(int client, int server);
  // Runs `work` there once, or never. With a fault it resets `connection`. It
  // comes with `payload` bytes.
  void ToServer(const std::shared_ptr<Connection>& connection,
                std::function<void()> work, size_t payload = 0);
  void ToClient(const std::shared_ptr<Connection>& connection,
                std::function<void()> work, size_t payload = 0);
  void Reset(Connection* connection, const absl::Status& why);
  // Runs `work` in the calling task a little later.
  void Later(std::function<void()> work);

 private:
  void Serve(const std::string& address, Server server);
  void Send(const std::shared_ptr<Connection>& connection, bool there,
            std::function<void()> work, size_t payload);
  std::chrono::nanoseconds Delay() const;
  // When so many bytes that are sent now have left.
  std::chrono::nanoseconds Left(std::pair<int, int> way, size_t bytes);
  Inbox* InboxOf(int process);
  // Nothing runs any more in a process, and it serves nobody.
  void Stop(int process);
  // Of a process, whichever side it is.
  void ResetAllOf(int process, bool as_server_only, const char* why);

  Faults faults_;
  NetworkWatch watch_;
  std::map<int, std::shared_ptr<Inbox>> inboxes_;
  std::map<int, PeerIdentity> identities_;
  std::map<std::string, Server> servers_;
  std::vector<std::weak_ptr<Connection>> connections_;
  struct Silence {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
  };
  // Of ways; of a task that is halted, to itself.
  std::map<std::pair<int, int>, Silence> silences_;
  // When what was sent on a way has left.
  std::map<std::pair<int, int>, std::chrono::nanoseconds> left_;
  uint64_t arrived_ = 0;
  uint64_t resets_ = 0;
};

}  // namespace weir::sim

#endif  // SIM_NETWORK_H_
