#include "proto/security/peer_identity.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/common/expect_error.h"

namespace weir {
namespace {

TEST(PeerIdentityTest, ComesBackFromItsUri) {
  for (const PeerRole role :
       {PeerRole::kPs, PeerRole::kChief, PeerRole::kWorker, PeerRole::kReader,
        PeerRole::kAdmin}) {
    const PeerIdentity identity = {
        .job = "my-job_1.x", .role = role, .index = 12};
    const auto back = PeerIdentity::FromUri(identity.ToUri());
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->job, identity.job);
    EXPECT_EQ(back->role, role);
    EXPECT_EQ(back->index, 12);
  }
}

TEST(PeerIdentityTest, TakesAnEvaluatorForAReader) {
  const auto identity = PeerIdentity::FromUri("weir://j/evaluator/0");
  ASSERT_TRUE(identity.ok());
  EXPECT_EQ(identity->role, PeerRole::kReader);
}

TEST(PeerIdentityTest, RefusesWhatIsNoIdentity) {
  for (const std::string uri :
       {"", "weir://", "spiffe://j/ps/0", "weir://j/ps", "weir://j/ps/0/1",
        "weir:///ps/0", "weir://a b/ps/0", "weir://j,URI:x/ps/0",
        "weir://j/king/0", "weir://j/ps/-1", "weir://j/ps/x", "weir://j/ps/",
        "weir://j/ps/99999999999", "weir://j/ps/*"}) {
    EXPECT_EQ(PeerIdentity::FromUri(uri).status().code(),
              absl::StatusCode::kInvalidArgument)
        << uri;
  }
  EXPECT_FALSE(IsIdentityJob(std::string(129, 'a')));
}

}  // namespace
}  // namespace weir
