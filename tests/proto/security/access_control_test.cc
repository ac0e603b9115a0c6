#include "proto/security/access_control.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/common/expect_error.h"
#include "tests/proto/security/echo_server.h"

namespace weir {
namespace {

std::shared_ptr<const Security> WithSecret(PeerRole role, int index = 0) {
  Security::Options options;
  options.secret = std::string(32, 'a');
  return *Security::Create(options, role, index);
}

TEST(AccessControlTest, AdmitsWhomTheTableAllowsAndCountsTheOthers) {
  AccessControl::Options options;
  options.security = WithSecret(PeerRole::kPs);
  options.has_chief = true;
  AccessControl access(options);
  EchoServer ps(WithSecret(PeerRole::kPs), {}, &access);
  const auto call = [&](PeerRole role, int index, const std::string& method) {
    return ps.Call(WithSecret(role, index)->ToPs(),
                   "/weir.ParameterServer/" + method);
  };
  const auto pushed = call(PeerRole::kWorker, 1, "PushPull");
  ASSERT_TRUE(pushed.ok()) << pushed.status();
  const auto refused = call(PeerRole::kReader, 0, "PushPull");
  ExpectError(refused.status(), absl::StatusCode::kUnauthenticated,
              "/reader/0 may not call /weir.ParameterServer/PushPull: this "
              "role may not");
  ExpectError(call(PeerRole::kWorker, 1, "Declare").status(),
              absl::StatusCode::kUnauthenticated,
              "in a cluster that has a chief only the chief may");
  const auto counts = access.counts();
  const std::string worker = WithSecret(PeerRole::kWorker, 1)->self().ToUri();
  const std::string reader = WithSecret(PeerRole::kReader)->self().ToUri();
  EXPECT_EQ(counts.at(worker).calls, 1);
  EXPECT_EQ(counts.at(worker).refused, 1);
  EXPECT_EQ(counts.at(reader).calls, 0);
  EXPECT_EQ(counts.at(reader).refused, 1);
}

TEST(AccessControlTest, InsecureAdmitsAnybody) {
  AccessControl access({});
  EchoServer ps(Security::Insecure(), {}, &access);
  EXPECT_TRUE(ps.Call(grpc::InsecureChannelCredentials(),
                      "/weir.ParameterServer/Declare")
                  .ok());
  EXPECT_EQ(access.counts().at("").calls, 1);
}

TEST(AccessControlTest, NamesOnlySoManyCallers) {
  AccessControl access({});
  for (size_t i = 0; i < 2 * kCallerNamesMax; ++i) {
    access.RecordRefusal(
        {.identity = PeerIdentity{.job = "j",
                                  .role = PeerRole::kWorker,
                                  .index = static_cast<int>(i)},
         .address = "ipv4:127.0.0.1:1"},
        "/weir.ParameterServer/Hello", absl::UnauthenticatedError("no"));
  }
  const auto counts = access.counts();
  EXPECT_LE(counts.size(), kCallerNamesMax + 1);
  EXPECT_EQ(counts.at("others").refused, kCallerNamesMax);
}

}  // namespace
}  // namespace weir
