#include "proto/security/authorisation.h"

#include <set>
#include <string>

#include "gtest/gtest.h"
#include "proto/chief.pb.h"
#include "proto/health.pb.h"
#include "proto/ps.pb.h"
#include "tests/proto/security/raw_call.h"

namespace weir {
namespace {

std::set<std::string> AllMethods() {
  std::set<std::string> all;
  for (const auto* const file :
       {GradientChunk::descriptor()->file(),
        RegisterRequest::descriptor()->file(),
        grpc::health::v1::HealthCheckRequest::descriptor()->file()}) {
    for (const std::string& method : MethodsOf(file)) {
      all.insert(method);
    }
  }
  return all;
}

bool May(const std::string& method, PeerRole role, int index,
         bool has_chief = true) {
  const absl::Status status =
      Authorise(method, {.job = "j", .role = role, .index = index}, has_chief);
  EXPECT_TRUE(status.ok() || absl::IsUnauthenticated(status)) << status;
  return status.ok();
}

TEST(AuthorisationTest, EveryMethodOfEveryServiceHasOneRow) {
  std::set<std::string> rows;
  for (const AccessRow& row : AccessTable()) {
    EXPECT_TRUE(rows.insert(std::string(row.method)).second) << row.method;
  }
  EXPECT_EQ(rows, AllMethods());
  EXPECT_EQ(rows.size(), 21);
}

TEST(AuthorisationTest, AMethodWithoutARowIsForNobody) {
  for (const PeerRole role : {PeerRole::kChief, PeerRole::kAdmin}) {
    EXPECT_FALSE(May("/weir.ParameterServer/Drop", role, 0));
    EXPECT_FALSE(May("", role, 0));
  }
}

TEST(AuthorisationTest, ReadersChangeNothing) {
  const std::set<std::string> allowed = {
      "/weir.ParameterServer/Hello", "/weir.ParameterServer/GetStatus",
      "/weir.ParameterServer/Pull",  "/weir.ParameterServer/PullRows",
      "/weir.Chief/GetStatus",       "/weir.Chief/GetReport",
      "/grpc.health.v1.Health/Check"};
  for (const std::string& method : AllMethods()) {
    EXPECT_EQ(May(method, PeerRole::kReader, 0), allowed.contains(method))
        << method;
    // A ps calls nobody but itself.
    EXPECT_EQ(May(method, PeerRole::kPs, 0),
              method == "/grpc.health.v1.Health/Check")
        << method;
  }
}

TEST(AuthorisationTest, OnlyWorkersPush) {
  for (const std::string method :
       {"/weir.ParameterServer/PushPull", "/weir.ParameterServer/PushRows",
        "/weir.Chief/Register", "/weir.Chief/Heartbeat"}) {
    EXPECT_TRUE(May(method, PeerRole::kWorker, 7)) << method;
    EXPECT_FALSE(May(method, PeerRole::kChief, 0)) << method;
    EXPECT_FALSE(May(method, PeerRole::kAdmin, 0)) << method;
  }
}

TEST(AuthorisationTest, OnlyTheChiefControls) {
  for (const std::string name :
       {"Declare", "Restore", "Snapshot", "Shutdown"}) {
    const std::string method = "/weir.ParameterServer/" + name;
    EXPECT_TRUE(May(method, PeerRole::kChief, 0)) << method;
    EXPECT_FALSE(May(method, PeerRole::kWorker, 0)) << method;
    EXPECT_EQ(May(method, PeerRole::kAdmin, 0), name == "Shutdown") << method;
    // Worker 0 does it where the cluster has no chief.
    EXPECT_TRUE(May(method, PeerRole::kWorker, 0, /*has_chief=*/false));
    EXPECT_FALSE(May(method, PeerRole::kWorker, 1, /*has_chief=*/false));
  }
  // Which slot it may set depends on what it asks for.
  EXPECT_TRUE(May("/weir.ParameterServer/SetSlots", PeerRole::kWorker, 1));
  EXPECT_FALSE(May("/weir.ParameterServer/SetSlots", PeerRole::kReader, 1));
  EXPECT_TRUE(May("/weir.ParameterServer/Assign", PeerRole::kWorker, 0));
  EXPECT_FALSE(May("/weir.ParameterServer/Assign", PeerRole::kWorker, 1));
}

}  // namespace
}  // namespace weir
