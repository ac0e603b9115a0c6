// Connections that cost a ps more than they bring, peers whose address another
// one has for a while, and certificates that are renewed while a job pushes.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cc/transport/grpc_transport.h"
#include "common/base/limits.h"
#include "gtest/gtest.h"
#include "proto/security/access_control.h"
#include "proto/security/certificates.h"
#include "proto/security/key_files.h"
#include "server/ps/ps_server.h"
#include "server/ps/store/store.h"
#include "tests/common/temp_dir.h"
#include "tests/security/dropped_call.h"
#include "tests/support/wait_until.h"

namespace weir {
namespace {

constexpr auto kTimeout = std::chrono::seconds(20);

// A ps that holds nothing.
struct Ps {
  explicit Ps(AccessControl::Options access_options, int port = 0)
      : access(std::move(access_options)) {
    PsServer::Options options;
    options.address = absl::StrCat("127.0.0.1:", port);
    options.access = &access;
    options.on_shutdown = [](const absl::Status&) {};
    server = *PsServer::Create(options, store.get());
  }
  std::string address() const {
    return absl::StrCat("127.0.0.1:", server->port());
  }

  AccessControl access;
  std::unique_ptr<Store> store = *Store::Create({});
  std::unique_ptr<PsServer> server;
};

TEST(ConnectionsTest, AClientThatBeginsAndDropsCallsIsCutOff) {
  Ps ps{AccessControl::Options()};
  grpc::GenericStub stub(
      grpc::CreateChannel(ps.address(), grpc::InsecureChannelCredentials()));
  grpc::CompletionQueue queue;
  const auto closed = [&] { return ps.access.listener()->counts().closed > 0; };
  // More than a connection may drop within two seconds, as fast as they go.
  for (int i = 0; i < 50 * kEmptyCallsPerSecond && !closed(); ++i) {
    BeginAndDropCall(&stub, "/weir.ParameterServer/PushPull", &queue);
  }
  EXPECT_TRUE(WaitUntil(closed));
  // Another client is served.
  const auto link =
      MakeGrpcTransport({.own_connections = true})->Connect(ps.address());
  EXPECT_TRUE(WaitUntil([&] { return link->Hello(kTimeout).ok(); }));
}

std::shared_ptr<const Security> WithSecret(char secret, PeerRole role) {
  Security::Options options;
  options.secret = std::string(32, secret);
  return *Security::Create(options, role, 0);
}

AccessControl::Options PsWithSecret(char secret) {
  AccessControl::Options options;
  options.security = WithSecret(secret, PeerRole::kPs);
  return options;
}

// As where the address of a pod that has died is given to another job.
TEST(ConnectionsTest, AnotherJobInThePlaceOfAPsPasses) {
  auto ps = std::make_unique<Ps>(PsWithSecret('a'));
  const int port = ps->server->port();
  const auto transport =
      MakeGrpcTransport({.own_connections = true,
                         .security = WithSecret('a', PeerRole::kWorker)});
  const auto link = transport->Connect(ps->address());
  ASSERT_TRUE(WaitUntil([&] { return link->Hello(kTimeout).ok(); }));
  ps.reset();
  ps = std::make_unique<Ps>(PsWithSecret('b'), port);
  // It is refused, and who asks goes on to ask.
  const auto is_refused = [&] {
    const absl::Status status = link->Hello(kTimeout).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    return absl::StrContains(status.message(), "another secret");
  };
  EXPECT_TRUE(WaitUntil(is_refused));
  // Who begins with the wrong one has the wrong secret or the wrong address.
  const auto first = transport->Connect(ps->address());
  EXPECT_TRUE(absl::IsUnauthenticated(first->Hello(kTimeout).status()));
  ps.reset();
  ps = std::make_unique<Ps>(PsWithSecret('a'), port);
  EXPECT_TRUE(WaitUntil([&] { return link->Hello(kTimeout).ok(); }));
}

TEST(ConnectionsTest, RenewedCertificatesAreTakenUpAndOldConnectionsEnd) {
  const CertificateAuthority authority = CertificateAuthority::Draw();
  const PeerIdentity self = {.job = "j", .role = PeerRole::kPs, .index = 0};
  const PeerIdentity worker = {
      .job = "j", .role = PeerRole::kWorker, .index = 0};
  Security::Options files;
  files.refresh_seconds = 1;
  files.tls_dir = MakeTempDir();
  ASSERT_TRUE(WriteTaskCertificate(files.tls_dir, authority.Issue(self)).ok());
  AccessControl::Options options;
  options.security = *Security::Create(files, PeerRole::kPs, 0);
  options.connection_age = std::chrono::milliseconds(300);
  options.connection_grace =
      kTimeout;  // a call that is under way ends by itself
  Ps ps(options);
  files.tls_dir = MakeTempDir();
  ASSERT_TRUE(
      WriteTaskCertificate(files.tls_dir, authority.Issue(worker)).ok());
  const auto transport = MakeGrpcTransport(
      {.security = *Security::Create(files, PeerRole::kWorker, 0)});
  const auto link = transport->Connect(ps.address());
  const auto is_let_in = [&] { return link->Hello(kTimeout).ok(); };
  ASSERT_TRUE(WaitUntil(is_let_in));
  ASSERT_TRUE(
      WriteTaskCertificate(files.tls_dir, authority.Issue(worker)).ok());
  // Connections end by their age, and each call finds or makes a new one. A
  // call that meets the end of a connection fails and is its caller's to
  // repeat, so each connection may cost one call at most.
  const auto accepted = [&] { return ps.access.listener()->counts().accepted; };
  uint64_t failed = 0;
  EXPECT_TRUE(WaitUntil([&] {
    failed += is_let_in() ? 0 : 1;
    return accepted() >= 4;
  }));
  EXPECT_LE(failed, accepted());
}

}  // namespace
}  // namespace weir
