#include "server/ps/block/parking.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

constexpr int64_t kMs = 1000000;

Sender SenderOf(uint32_t slot, uint32_t generation = 1) {
  Sender sender;
  sender.set_slot(slot);
  sender.set_generation(generation);
  return sender;
}

Want WantFor(uint32_t timeout_ms) {
  Want want;
  want.set_timeout_ms(timeout_ms);
  return want;
}

class ParkingTest : public testing::Test {
 protected:
  using Place = Parking<std::string>;
  using Said = Place::Said<int>;

  absl::Status Park(std::string wait, uint32_t timeout_ms = 0,
                    const Sender& sender = SenderOf(0)) {
    return place_.Park(sender, WantFor(timeout_ms), 0, std::move(wait));
  }
  // The waits that end at `now_ns` when nobody's condition holds.
  std::vector<std::string> EndedAt(int64_t now_ns) {
    std::vector<std::string> ended;
    for (auto& [wait, answer] : place_.Take(
             now_ns, std::vector<Said>(place_.waits().size(), std::nullopt))) {
      EXPECT_FALSE(answer->has_value());
      ended.push_back(wait);
    }
    return ended;
  }

  std::atomic<int64_t> total_{0};
  Place place_{{2, 3}, "a place", &total_};
};

TEST_F(ParkingTest, AWaitEndsAtItsDeadline) {
  ASSERT_TRUE(Park("long", 100).ok());
  ASSERT_TRUE(Park("short", 50).ok());
  EXPECT_EQ(EndedAt(kNoDeadlinePassed), std::vector<std::string>());
  EXPECT_EQ(EndedAt(50 * kMs - 1), std::vector<std::string>());
  EXPECT_EQ(EndedAt(50 * kMs), std::vector<std::string>{"short"});
  EXPECT_EQ(EndedAt(100 * kMs), std::vector<std::string>{"long"});
  EXPECT_TRUE(place_.empty());
}

TEST_F(ParkingTest, WhoDoesNotSayWaitsForTheDefaultAndNobodyLongerThanTheMost) {
  ASSERT_TRUE(Park("default").ok());
  ASSERT_TRUE(Park("most", 99999).ok());
  EXPECT_EQ(EndedAt(kWaitDefaultMs * kMs - 1), std::vector<std::string>());
  EXPECT_EQ(EndedAt(kWaitDefaultMs * kMs), std::vector<std::string>{"default"});
  EXPECT_EQ(EndedAt(kWaitMaxMs * kMs - 1), std::vector<std::string>());
  EXPECT_EQ(EndedAt(kWaitMaxMs * kMs), std::vector<std::string>{"most"});
}

TEST_F(ParkingTest, TakesWhatHasAnAnswerAndLeavesTheRestInItsOrder) {
  for (const char* wait : {"a", "b", "c"}) {
    ASSERT_TRUE(Park(wait, 0, SenderOf(0, 0)).ok());
  }
  std::vector<Said> said = {std::nullopt, std::optional<int>(5),
                            absl::AbortedError("gone")};
  const auto ended = place_.Take(kNoDeadlinePassed, std::move(said));
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[0].first, "b");
  EXPECT_EQ(**ended[0].second, 5);
  EXPECT_EQ(ended[1].first, "c");
  EXPECT_EQ(ended[1].second.status().message(), "gone");
  ASSERT_EQ(place_.waits().size(), 1u);
  EXPECT_EQ(place_.waits()[0].wait, "a");
  EXPECT_EQ(total_, 1);
}

TEST_F(ParkingTest, AFullShareKeepsNobodyElseOut) {
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(Park("slot 0's").ok());
  }
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Park("a reader's", 0, SenderOf(i, 0)).ok());
  }
  EXPECT_EQ(Park("x").message(),
            "a place: 2 waits of slot 0 are parked already");
  EXPECT_EQ(Park("x", 0, SenderOf(9, 0)).message(),
            "a place: 3 waits of readers are parked already");
  EXPECT_EQ(Park("x").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Park("slot 1's", 0, SenderOf(1)).ok());
  EXPECT_EQ(total_, 6);
}

TEST_F(ParkingTest, WhatTheWaitsOfASenderHoldIsBoundedToo) {
  Place place({10, 10, 100}, "a place", &total_);
  const auto park = [&](const Sender& sender, int64_t bytes) {
    return place.Park(sender, WantFor(0), 0, "x", bytes);
  };
  ASSERT_TRUE(park(SenderOf(0), 60).ok());
  EXPECT_EQ(park(SenderOf(0), 41).message(),
            "a place: 1 waits of slot 0 are parked already and hold 60 bytes; "
            "with 41 more they would hold over 100");
  EXPECT_TRUE(park(SenderOf(0), 40).ok());
  EXPECT_TRUE(park(SenderOf(0), 0).ok());
  EXPECT_TRUE(park(SenderOf(1), 100).ok());
  EXPECT_TRUE(park(SenderOf(3, 0), 100).ok());
  EXPECT_EQ(park(SenderOf(4, 0), 1).code(),
            absl::StatusCode::kResourceExhausted);
  // What ended is given back.
  place.Take(kWaitMaxMs * kMs,
             std::vector<Said>(place.waits().size(), std::nullopt));
  EXPECT_TRUE(park(SenderOf(0), 100).ok());
  place.Close(absl::UnavailableError("closed"));
}

TEST_F(ParkingTest, AWaitThatIsRefusedIsUnchanged) {
  place_.Close(absl::UnavailableError("closed"));
  std::string wait = "mine";
  EXPECT_EQ(place_.Park(SenderOf(0), WantFor(0), 0, std::move(wait)).message(),
            "closed");
  EXPECT_EQ(wait, "mine");
}

TEST_F(ParkingTest, CloseGivesAllBackAndNothingParksAfterIt) {
  EXPECT_TRUE(place_.closed().ok());
  ASSERT_TRUE(Park("a").ok());
  ASSERT_TRUE(Park("b").ok());
  EXPECT_FALSE(place_.empty());
  EXPECT_EQ(place_.Close(absl::UnavailableError("closed")).size(), 2u);
  EXPECT_TRUE(place_.empty());
  EXPECT_EQ(total_, 0);
  EXPECT_EQ(Park("c").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(place_.closed().message(), "closed");
  EXPECT_TRUE(place_.empty());
}

}  // namespace
}  // namespace weir
