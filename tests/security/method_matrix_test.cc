// Every method of the ps and of the chief, called by everybody who should not
// be let in: what the services' descriptors name is what is tried.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <ctime>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/chief.pb.h"
#include "proto/ps.pb.h"
#include "proto/security/access_control.h"
#include "proto/security/authorisation.h"
#include "proto/security/certificates.h"
#include "proto/security/key_files.h"
#include "proto/security/security.h"
#include "proto/wire/grpc_status.h"
#include "proto/wire/health_check.h"
#include "server/chief/chief_service.h"
#include "server/chief/health_service.h"
#include "server/ps/ps_server.h"
#include "server/ps/store/store.h"
#include "tests/common/temp_dir.h"
#include "tests/proto/security/raw_call.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

using absl::StatusCode;

PeerIdentity Id(PeerRole role, int index = 0, const std::string& job = "j") {
  return {.job = job, .role = role, .index = index};
}

// A task's security of certificates in a directory.
std::shared_ptr<const Security> ServerSecurity(
    const CertificateAuthority& authority, PeerRole role) {
  Security::Options options;
  options.tls_dir = MakeTempDir();
  EXPECT_TRUE(
      WriteTaskCertificate(options.tls_dir, authority.Issue(Id(role))).ok());
  return *Security::Create(options, role, 0);
}

// A client that checks nothing of the server but its authority, so that it is
// the server that refuses.
std::shared_ptr<grpc::Channel> Connect(const std::string& address,
                                       const TaskCertificate& task) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = task.authority;
  options.pem_private_key = task.key;
  options.pem_cert_chain = task.certificate;
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("weir");
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::SslCredentials(options),
                                   arguments);
}

// How a call with one message ends.
absl::Status Call(const std::shared_ptr<grpc::Channel>& channel,
                  const std::string& method, const std::string& message = "") {
  return FromGrpcStatus(RawCall(channel, method, message));
}

// Of a ps, of a chief, and the health check of each.
constexpr int kMethods = 14 + 6 + 2;

// A ps that holds nothing, and a chief that has not begun: what is admitted
// changes nothing, and is refused for another reason.
class MethodMatrixTest : public testing::Test {
 protected:
  MethodMatrixTest() {
    PsServer::Options options;
    options.access = &ps_access_;
    options.on_shutdown = [](const absl::Status&) {};
    ps_ = *PsServer::Create(options, store_.get());
    grpc::ServerBuilder builder;
    EXPECT_TRUE(chief_access_.Listen("127.0.0.1:0", &builder).ok());
    builder.RegisterService(&chief_service_);
    builder.RegisterService(&health_service_);
    chief_ = builder.BuildAndStart();
    chief_access_.listener()->Start();
  }
  ~MethodMatrixTest() override {
    chief_access_.listener()->Stop();
    chief_->Shutdown(std::chrono::system_clock::now());
  }

  static AccessControl::Options With(std::shared_ptr<const Security> security) {
    AccessControl::Options options;
    options.security = std::move(security);
    options.has_chief = true;
    options.audit_path = MakeTempDir() + "/audit.jsonl";
    return options;
  }

  // Calls `visit` with every method and the address of its server.
  void ForEachMethod(const std::function<void(const std::string&,
                                              const std::string&)>& visit) {
    int count = 0;
    for (const std::string& method :
         MethodsOf(GradientChunk::descriptor()->file())) {
      visit(method, absl::StrCat("127.0.0.1:", ps_->port()));
      ++count;
    }
    for (const std::string& method :
         MethodsOf(RegisterRequest::descriptor()->file())) {
      visit(method,
            absl::StrCat("127.0.0.1:", chief_access_.listener()->port()));
      ++count;
    }
    for (const int port : {ps_->port(), chief_access_.listener()->port()}) {
      visit(kHealthCheckMethod, absl::StrCat("127.0.0.1:", port));
      ++count;
    }
    EXPECT_EQ(count, kMethods);
  }
  uint64_t Admitted() const {
    uint64_t calls = 0;
    for (const AccessControl* access : {&ps_access_, &chief_access_}) {
      for (const auto& [name, counts] : access->counts()) {
        calls += counts.calls;
      }
    }
    return calls;
  }
  uint64_t Refused() const {
    uint64_t refused = 0;
    for (const AccessControl* access : {&ps_access_, &chief_access_}) {
      for (const auto& [name, counts] : access->counts()) {
        refused += counts.refused;
      }
    }
    return refused;
  }

  const CertificateAuthority authority_ = CertificateAuthority::Draw();
  AccessControl ps_access_{With(ServerSecurity(authority_, PeerRole::kPs))};
  AccessControl chief_access_{
      With(ServerSecurity(authority_, PeerRole::kChief))};
  std::unique_ptr<Store> store_ = *Store::Create({});
  std::unique_ptr<PsServer> ps_;
  ChiefService chief_service_{&chief_access_};
  HealthService health_service_{&chief_access_};
  std::unique_ptr<grpc::Server> chief_;
};

TEST_F(MethodMatrixTest, WhoProvesNothingReachesNoMethod) {
  const CertificateAuthority other = CertificateAuthority::Draw();
  TaskCertificate stranger = other.Issue(Id(PeerRole::kChief));
  stranger.authority = authority_.certificate();  // takes the server for good
  TaskCertificate nobody;
  nobody.authority = authority_.certificate();
  const TaskCertificate expired = authority_.Issue(
      Id(PeerRole::kChief), {.begin_s = 0, .end_s = time(nullptr) - 1});
  ForEachMethod([&](const std::string& method, const std::string& address) {
    for (const TaskCertificate& task : {stranger, nobody, expired}) {
      const absl::Status status = Call(Connect(address, task), method);
      EXPECT_TRUE(absl::IsUnavailable(status) ||
                  absl::IsUnauthenticated(status))
          << method << ": " << status;
    }
    const auto plain =
        grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    EXPECT_EQ(Call(plain, method).code(), StatusCode::kUnavailable) << method;
  });
  // Nothing of it came as far as a call.
  EXPECT_EQ(Admitted(), 0);
  EXPECT_EQ(Refused(), 0);
  EXPECT_EQ(ps_access_.listener()->counts().proven, 0);
  EXPECT_GE(ps_access_.listener()->counts().accepted, 14 * 4);
}

TEST_F(MethodMatrixTest, AnotherJobOfTheSameAuthorityIsRefused) {
  const TaskCertificate other =
      authority_.Issue(Id(PeerRole::kChief, 0, "other"));
  ForEachMethod([&](const std::string& method, const std::string& address) {
    const absl::Status status = Call(Connect(address, other), method);
    EXPECT_EQ(status.code(), StatusCode::kUnauthenticated) << method;
    EXPECT_NE(status.message().find("is of no task of job j: it names "
                                    "weir://other/chief/0"),
              std::string::npos)
        << status;
  });
  EXPECT_EQ(Admitted(), 0);
  EXPECT_EQ(Refused(), kMethods);
}

TEST_F(MethodMatrixTest, EachRoleCallsWhatTheTableAllows) {
  uint64_t denied = 0;
  for (const PeerRole role :
       {PeerRole::kPs, PeerRole::kChief, PeerRole::kWorker, PeerRole::kReader,
        PeerRole::kAdmin}) {
    const PeerIdentity self = Id(role, 1);
    const TaskCertificate task = authority_.Issue(self);
    ForEachMethod([&](const std::string& method, const std::string& address) {
      const bool allowed = Authorise(method, self, /*has_chief=*/true).ok();
      const absl::Status status = Call(Connect(address, task), method);
      EXPECT_EQ(status.code() != StatusCode::kUnauthenticated, allowed)
          << self.ToUri() << " " << method << ": " << status;
      denied += allowed ? 0 : 1;
    });
  }
  EXPECT_EQ(Refused(), denied);
  EXPECT_EQ(Admitted() + Refused(), 5 * kMethods);
}

// How a worker's SetSlots of one slot ends.
absl::Status SetSlot(const std::shared_ptr<grpc::Channel>& channel,
                     const Sender& sender, SetSlotsRequest::Slot slot) {
  SetSlotsRequest request;
  *request.mutable_sender() = sender;
  *request.add_slot() = std::move(slot);
  return Call(channel, "/weir.ParameterServer/SetSlots",
              request.SerializeAsString());
}

TEST_F(MethodMatrixTest, AWorkerRetiresTheSlotThatItHoldsAndSetsNoOther) {
  DeclareRequest declare;
  *declare.mutable_declaration() = ParseDeclaration(
      "variable { name: 'a' shape: 64 }"
      "group { name: 'main' optimizer { sgd {} }"
      "        schedule { learning_rate: 1 } }"
      "update { async {} } slot_count: 2");
  const auto declared = store_->Declare(declare);
  ASSERT_TRUE(declared.ok()) << declared.status();
  Sender chief;
  chief.set_job(declare.declaration().job());
  chief.set_history(declare.declaration().history());
  chief.set_layout_fingerprint(declared->layout_fingerprint());
  SetSlotsRequest::Slot slot;
  slot.set_slot(1);
  slot.set_generation(1);
  slot.set_capability_high(7);
  slot.set_capability_low(8);
  SetSlotsRequest grant;
  *grant.mutable_sender() = chief;
  *grant.add_slot() = slot;
  ASSERT_TRUE(store_->SetSlots(grant).ok());

  const auto channel = Connect(absl::StrCat("127.0.0.1:", ps_->port()),
                               authority_.Issue(Id(PeerRole::kWorker, 1)));
  Sender self = chief;
  self.set_slot(1);
  self.set_generation(1);
  slot.set_retired(true);
  // Without the capability, as the chief would, another slot, another
  // generation, and its own without retiring it.
  EXPECT_EQ(SetSlot(channel, self, slot).code(), StatusCode::kPermissionDenied);
  self.set_capability_high(7);
  self.set_capability_low(8);
  EXPECT_EQ(SetSlot(channel, chief, slot).code(), StatusCode::kUnauthenticated);
  SetSlotsRequest::Slot other = slot;
  other.set_slot(0);
  EXPECT_EQ(SetSlot(channel, self, other).code(), StatusCode::kUnauthenticated);
  other = slot;
  other.set_generation(2);
  EXPECT_EQ(SetSlot(channel, self, other).code(), StatusCode::kUnauthenticated);
  other = slot;
  other.set_retired(false);
  EXPECT_EQ(SetSlot(channel, self, other).code(), StatusCode::kUnauthenticated);
  EXPECT_FALSE(store_->Hello().slot(1).retired());
  const absl::Status retired = SetSlot(channel, self, slot);
  EXPECT_TRUE(retired.ok()) << retired;
  EXPECT_TRUE(store_->Hello().slot(1).retired());
}

}  // namespace
}  // namespace weir
