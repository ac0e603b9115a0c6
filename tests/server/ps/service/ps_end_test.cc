#include "server/ps/service/ps_end.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <memory>

#include "common/base/clock.h"
#include "google/protobuf/text_format.h"

namespace weir {
namespace {

class PsEndTest : public testing::Test {
 protected:
  PsEndTest()
      : store_(*Store::Create({.incarnation = 1})),
        leaving_(&clock_, std::chrono::seconds(25)) {}

  void Declare() {
    DeclareRequest request;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        "job: 'end' history: 1 shard_count: 1 slot_count: 1 block_elements: 16 "
        "out_of_order_bytes: 1024 update { async {} } "
        "group { optimizer { sgd {} } schedule { learning_rate: 1 } } "
        "variable { name: 'v' shape: 4 }",
        request.mutable_declaration()));
    ASSERT_TRUE(store_->Declare(request).ok());
  }
  absl::Status Wait(int signal) {
    return end_.Wait(
        *store_, [signal] { return signal; }, &leaving_);
  }

  FakeClock clock_;
  std::unique_ptr<Store> store_;
  Leaving leaving_;
  PsEnd end_;
};

TEST_F(PsEndTest, TheChiefsFirstWordCounts) {
  EXPECT_FALSE(end_.told());
  end_.Tell(absl::OkStatus());
  end_.Tell(absl::UnavailableError("a ps is lost"));
  EXPECT_TRUE(end_.told());
  EXPECT_TRUE(Wait(0).ok());
}

TEST_F(PsEndTest, AnEmptyPsEndsWithItsSignal) {
  leaving_.OnChief();
  EXPECT_EQ(Wait(SIGTERM).code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(leaving_.begun());
}

TEST_F(PsEndTest, AnInterruptWaitsForNoChief) {
  Declare();
  leaving_.OnChief();
  EXPECT_EQ(Wait(SIGINT).code(), absl::StatusCode::kCancelled);
}

TEST_F(PsEndTest, AfterSigtermAChiefThatIsThereMaySaveTheJob) {
  Declare();
  leaving_.OnChief();
  int asked = 0;
  const absl::Status why = end_.Wait(
      *store_,
      [&] {
        if (++asked == 3) {
          EXPECT_TRUE(leaving_.begun());
          end_.Tell(absl::UnavailableError("stopped"));
        }
        return SIGTERM;
      },
      &leaving_);
  // Whoever sent SIGTERM does not want it to be started again.
  EXPECT_EQ(why.code(), absl::StatusCode::kCancelled) << why;
  EXPECT_GE(asked, 3);
}

TEST_F(PsEndTest, ASilentChiefIsNotWaitedFor) {
  Declare();
  leaving_.OnChief();
  const absl::Status why = end_.Wait(
      *store_,
      [&] {
        clock_.Advance(std::chrono::seconds(1));
        return SIGTERM;
      },
      &leaving_);
  EXPECT_EQ(why.code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(end_.told());
}

}  // namespace
}  // namespace weir
