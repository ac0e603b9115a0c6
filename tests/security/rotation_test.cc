// Certificates change while a job pushes: nothing is lost, and whoever has no
// good certificate any more is out.
//
// Connections are made to end after a fraction of a second, and so are the
// calls on them, so that tasks keep proving who they are.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cc/transport/grpc_transport.h"
#include "proto/security/access_control.h"
#include "proto/security/certificates.h"
#include "proto/security/key_files.h"
#include "proto/wire/layout_io.h"
#include "server/ps/ps_server.h"
#include "server/ps/store/store.h"
#include "tests/common/temp_dir.h"
#include "tests/server/ps/store/store_tester.h"
#include "tests/support/kind_worker.h"
#include "tests/support/wait_until.h"

namespace weir {
namespace {

constexpr auto kTimeout = std::chrono::seconds(20);
constexpr int kWorkers = 4;
constexpr size_t kValues = 4096;

// A task with a directory of certificates.
struct Task {
  explicit Task(PeerRole role, int index = 0)
      : identity({.job = "j", .role = role, .index = index}) {}

  void Write(const TaskCertificate& certificate) const {
    const absl::Status status = WriteTaskCertificate(dir, certificate);
    EXPECT_TRUE(status.ok()) << status;
  }
  // REQUIRES: Write was called.
  std::shared_ptr<const Security> Start() const {
    Security::Options options;
    options.tls_dir = dir;
    options.refresh_seconds = 1;
    return *Security::Create(options, identity.role, *identity.index);
  }

  const PeerIdentity identity;
  const std::string dir = MakeTempDir();
};

// Good from long ago for some seconds from now, which may be negative.
Validity EndsIn(int seconds) {
  return {.begin_s = 0, .end_s = time(nullptr) + seconds};
}

// A ps that applies gradients with plain SGD and rate 1 to the variable "w" and
// to rows of the table "t". They begin as zeros, and are then minus the sums.
class Ps {
 public:
  explicit Ps(const Task& task) : access_(OptionsOf(task)) {
    PsServer::Options options;
    options.access = &access_;
    options.on_shutdown = [](const absl::Status&) {};
    server_ = *PsServer::Create(options, store_.get());
    DeclareRequest declare;
    *declare.mutable_declaration() = declaration_;
    EXPECT_TRUE(store_->Declare(declare).ok());
    SetSlotsRequest grant;
    *grant.mutable_sender() = SenderOf(0);
    for (int slot = 0; slot < kWorkers; ++slot) {
      SetSlotsRequest::Slot* const one = grant.add_slot();
      one->set_slot(static_cast<uint32_t>(slot));
      one->set_generation(1);
    }
    EXPECT_TRUE(store_->SetSlots(grant).ok());
  }

  std::string address() const {
    return absl::StrCat("127.0.0.1:", server_->port());
  }
  Listener::Counts connections() const { return access_.listener()->counts(); }

  std::unique_ptr<KindWorker> WorkerOf(ParameterKind kind, int slot,
                                       Transport* transport) const {
    KindWorker::Options options;
    options.transport = transport;
    options.addresses = {address()};
    options.sender = SenderOf(slot);
    options.layout = &layout_;
    options.tables = {declaration_.table(0)};
    options.values = kValues;
    return KindWorker::Create(kind, std::move(options));
  }

 private:
  static AccessControl::Options OptionsOf(const Task& task) {
    AccessControl::Options options;
    options.security = task.Start();
    options.connection_age = std::chrono::milliseconds(300);
    options.connection_grace = std::chrono::milliseconds(100);
    return options;
  }
  Sender SenderOf(int slot) const {
    Sender sender;
    sender.set_job(declaration_.job());
    sender.set_history(declaration_.history());
    sender.set_layout_fingerprint(layout_.fingerprint());
    sender.set_slot(static_cast<uint32_t>(slot));
    sender.set_generation(1);
    return sender;
  }

  const Declaration declaration_ = ParseDeclaration(absl::StrCat(
      "variable { name: 'w' shape: ", kValues,
      " } group { optimizer { sgd {} } schedule { learning_rate: 1 } }"
      "table { name: 't' dim: 16 initializer { zeros {} } "
      "        optimizer { sgd {} } schedule { learning_rate: 1 } }"
      "update { async {} } slot_count: ",
      kWorkers));
  const Layout layout_ = *LayoutFromDeclaration(declaration_);
  AccessControl access_;
  std::unique_ptr<Store> store_ = *Store::Create({});
  std::unique_ptr<PsServer> server_;
};

Want Latest() {
  Want want;
  want.set_latest(true);
  return want;
}

ParameterKind KindOf(int slot) {
  return slot % 2 == 0 ? ParameterKind::kBlocks : ParameterKind::kRows;
}

// A worker that pulls and pushes 1 to each value until it is told to stop.
class Pusher {
 public:
  Pusher(const Ps& ps, const Task& task)
      : transport_(MakeGrpcTransport(
            {.own_connections = true, .security = task.Start()})),
        worker_(ps.WorkerOf(KindOf(*task.identity.index), *task.identity.index,
                            transport_.get())),
        thread_([this] { Run(); }) {}
  ~Pusher() { Stop(); }

  void Stop() {
    stop_ = true;
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  uint64_t pushed() const { return pushed_; }
  uint64_t reconnects() const { return worker_->counters().reconnects; }
  // REQUIRES: Stop has returned.
  const absl::Status& status() const { return status_; }

 private:
  void Run() {
    while (!stop_ && status_.ok()) {
      status_ = worker_->Pull(Latest());
      if (status_.ok()) {
        ContributionPush push;
        push.sequence = pushed_;
        status_ = worker_->Push(push, -1.0f).status();
      }
      pushed_ += status_.ok() ? 1 : 0;
    }
  }

  std::unique_ptr<Transport> transport_;
  std::unique_ptr<KindWorker> worker_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> pushed_{0};
  absl::Status status_;
  std::thread thread_;
};

TEST(RotationTest, EveryPushCountsOnceWhileCertificatesRunOut) {
  const CertificateAuthority authority = CertificateAuthority::Draw();
  std::vector<Task> tasks;
  for (int slot = 0; slot < kWorkers; ++slot) {
    tasks.emplace_back(PeerRole::kWorker, slot);
  }
  tasks.emplace_back(PeerRole::kPs);
  constexpr int kLifeSeconds = 6;
  const auto renew = [&] {
    for (const Task& task : tasks) {
      task.Write(authority.Issue(task.identity, EndsIn(kLifeSeconds)));
    }
  };
  renew();
  const Ps ps(tasks.back());
  std::vector<std::unique_ptr<Pusher>> pushers;
  for (int slot = 0; slot < kWorkers; ++slot) {
    pushers.push_back(std::make_unique<Pusher>(ps, tasks[slot]));
  }
  // All go on, over new connections, for longer than a certificate is good.
  const auto a_round = [&] {
    std::vector<uint64_t> before;
    for (const auto& pusher : pushers) {
      before.push_back(pusher->pushed());
    }
    const uint64_t accepted = ps.connections().accepted;
    return WaitUntil([&] {
      bool all = ps.connections().accepted >= accepted + kWorkers;
      for (int slot = 0; slot < kWorkers; ++slot) {
        all = all && pushers[slot]->pushed() > before[slot];
      }
      return all;
    });
  };
  const int64_t end = time(nullptr) + int64_t{2} * kLifeSeconds;
  int rounds = 0;
  for (; rounds < 5 || time(nullptr) <= end; ++rounds) {
    ASSERT_TRUE(a_round());
    renew();
  }
  std::vector<float> pushed(2, 0);
  for (int slot = 0; slot < kWorkers; ++slot) {
    pushers[slot]->Stop();
    EXPECT_TRUE(pushers[slot]->status().ok()) << pushers[slot]->status();
    EXPECT_GT(pushers[slot]->reconnects(), 0);
    pushed[slot % 2] += static_cast<float>(pushers[slot]->pushed());
  }
  const auto transport = MakeGrpcTransport(
      {.own_connections = true, .security = tasks[0].Start()});
  for (int slot = 0; slot < 2; ++slot) {
    const auto reader = ps.WorkerOf(KindOf(slot), slot, transport.get());
    const absl::Status status = reader->Pull(Latest());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(reader->values(), std::vector<float>(kValues, pushed[slot]))
        << NameOf(KindOf(slot));
  }
  std::printf(
      "%d rounds, %.0f pushes of blocks, %.0f of rows, %llu connections\n",
      rounds, pushed[0], pushed[1],
      static_cast<unsigned long long>(ps.connections().accepted));
}

// What takes the place of a good certificate.
struct Bad {
  std::string name;
  PeerRole whose;
  std::function<TaskCertificate(const CertificateAuthority&,
                                const PeerIdentity&)>
      make;
};

TaskCertificate Expired(const CertificateAuthority& authority,
                        const PeerIdentity& identity) {
  return authority.Issue(identity, EndsIn(-1));
}
// It runs out while connections that it has opened are in use.
TaskCertificate Expiring(const CertificateAuthority& authority,
                         const PeerIdentity& identity) {
  return authority.Issue(identity, EndsIn(3));
}
TaskCertificate OfAnother(const CertificateAuthority& authority,
                          const PeerIdentity& identity) {
  TaskCertificate other = CertificateAuthority::Draw().Issue(identity);
  other.authority = authority.certificate();  // it trusts the others for good
  return other;
}

class BadCertificateTest : public testing::TestWithParam<Bad> {};

INSTANTIATE_TEST_SUITE_P(
    All, BadCertificateTest,
    testing::Values(
        Bad{"ExpiredOfAWorker", PeerRole::kWorker, &Expired},
        Bad{"ExpiringOfAWorker", PeerRole::kWorker, &Expiring},
        Bad{"OfAnotherAuthorityOfAWorker", PeerRole::kWorker, &OfAnother},
        Bad{"ExpiredOfThePs", PeerRole::kPs, &Expired},
        Bad{"ExpiringOfThePs", PeerRole::kPs, &Expiring},
        Bad{"OfAnotherAuthorityOfThePs", PeerRole::kPs, &OfAnother}),
    [](const auto& info) { return info.param.name; });

TEST_P(BadCertificateTest, ItsTaskIsOutWhenItsConnectionsEnd) {
  const Bad& bad = GetParam();
  const CertificateAuthority authority = CertificateAuthority::Draw();
  const Task of_ps(PeerRole::kPs);
  const Task of_worker(PeerRole::kWorker, 0);
  const Task of_other(PeerRole::kWorker, 1);
  for (const Task* task : {&of_ps, &of_worker, &of_other}) {
    task->Write(authority.Issue(task->identity));
  }
  const Ps ps(of_ps);
  const auto connect = [&](const Task& task) {
    return MakeGrpcTransport(
               {.own_connections = true, .security = task.Start()})
        ->Connect(ps.address());
  };
  const auto link = connect(of_worker);
  const auto other = connect(of_other);
  // A call that meets the end of a good connection fails as well, so a call
  // that must succeed is repeated, and what is waited for below is refused
  // handshakes with no call between that was let in.
  const auto is_let_in = [&] { return link->Hello(kTimeout).ok(); };
  const auto other_is_let_in = [&] { return other->Hello(kTimeout).ok(); };
  ASSERT_TRUE(WaitUntil(is_let_in));
  const Task& spoilt = bad.whose == PeerRole::kPs ? of_ps : of_worker;
  spoilt.Write(bad.make(authority, spoilt.identity));
  int let_in = 0;
  uint64_t failed = 0;
  const auto is_refused = [&](uint64_t times) {
    return WaitUntil([&] {
      if (is_let_in()) {
        ++let_in;
        failed = ps.connections().failed;
      }
      return ps.connections().failed >= failed + times;
    });
  };
  EXPECT_TRUE(is_refused(3));
  // It tries again and again, and is never let in.
  let_in = 0;
  EXPECT_TRUE(is_refused(6));
  EXPECT_EQ(let_in, 0);
  if (bad.whose == PeerRole::kPs) {
    EXPECT_FALSE(other_is_let_in());
  } else {
    EXPECT_TRUE(WaitUntil(other_is_let_in));
  }
  // A good certificate lets it in again.
  spoilt.Write(authority.Issue(spoilt.identity));
  EXPECT_TRUE(WaitUntil(is_let_in));
}

}  // namespace
}  // namespace weir
