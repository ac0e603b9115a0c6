#include "client/cc/transport/peer_watch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

namespace weir {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kSecond = 1'000'000'000;

// Looks as an owner does, until `end_ns`; with traffic of `bytes_per_s` where
// that is not negative. The time at which the peer was lost, or -1.
class Owner {
 public:
  explicit Owner(PeerWatch* watch) : watch_(watch) {
    watch_->Heard(now_ns);
    watch_->Look(now_ns);
  }

  int64_t LostWithin(int64_t ns, int64_t bytes_per_s = -1) {
    const int64_t step = std::chrono::nanoseconds(watch_->period()).count();
    for (const int64_t end = now_ns + ns; now_ns < end;) {
      now_ns += step;
      if (bytes_per_s >= 0) {
        traffic_ += bytes_per_s * step / kSecond;
        if (watch_->WantsTraffic(now_ns)) {
          watch_->NoteTraffic(traffic_, now_ns);
        }
      }
      if (watch_->Look(now_ns)) {
        return now_ns;
      }
    }
    return -1;
  }

  int64_t now_ns = 5 * kSecond;

 private:
  PeerWatch* const watch_;
  int64_t traffic_ = 1000;
};

TEST(PeerWatchTest, ASilentPeerIsLostInTime) {
  for (const int64_t bytes_per_s : {-1, 0, 34}) {  // 34: pings
    PeerWatch watch(milliseconds(10000));
    Owner owner(&watch);
    EXPECT_EQ(owner.LostWithin(60 * kSecond, bytes_per_s), 15 * kSecond);
    EXPECT_EQ(watch.Reason(), "unreachable for 10 s");
  }
}

TEST(PeerWatchTest, AnAnswerBeginsTheCountAnew) {
  PeerWatch watch(milliseconds(10000));
  Owner owner(&watch);
  EXPECT_EQ(owner.LostWithin(9 * kSecond), -1);
  watch.Heard(owner.now_ns);
  EXPECT_EQ(owner.LostWithin(9 * kSecond), -1);
  EXPECT_GT(owner.LostWithin(2 * kSecond), 0);
}

TEST(PeerWatchTest, BytesThatFlowAreASignOfLife) {
  PeerWatch watch(milliseconds(10000));
  Owner owner(&watch);
  // 64 kbit/s, for what two blocks each way take.
  EXPECT_EQ(owner.LostWithin(524 * kSecond, 8000), -1);
  // When they stop, the count begins where they stopped.
  const int64_t stopped = owner.now_ns;
  const int64_t lost = owner.LostWithin(60 * kSecond, 0);
  EXPECT_GE(lost, stopped + 5 * kSecond);
  EXPECT_LE(lost, stopped + 10 * kSecond);
}

TEST(PeerWatchTest, AStuckStreamOnABusyConnectionIsLost) {
  PeerWatch watch(milliseconds(10000));
  Owner owner(&watch);
  // 64 MiB pass in 64 s; before that the stream may be slow.
  const int64_t lost = owner.LostWithin(600 * kSecond, 1 << 20);
  EXPECT_GT(lost, 60 * kSecond);
  EXPECT_LT(lost, 90 * kSecond);
  EXPECT_NE(watch.Reason().find("answered nothing while"), std::string::npos);
}

TEST(PeerWatchTest, AConnectionThatWasMadeAnewCountsFromItsBegin) {
  PeerWatch watch(milliseconds(10000));
  watch.Heard(0);
  watch.Look(0);
  watch.NoteTraffic(1 << 20, 5 * kSecond);
  watch.NoteTraffic(100, 6 * kSecond);
  watch.NoteTraffic(100 + PeerWatch::kFlowBytes, 9 * kSecond);
  for (int64_t at = 1; at < 19; ++at) {
    EXPECT_FALSE(watch.Look(at * kSecond)) << at;
  }
  EXPECT_TRUE(watch.Look(19 * kSecond));
}

TEST(PeerWatchTest, AWatcherThatSleptDoesNotBlameThePeer) {
  PeerWatch watch(milliseconds(10000));
  Owner owner(&watch);
  EXPECT_EQ(owner.LostWithin(3 * kSecond), -1);
  owner.now_ns += 3600 * kSecond;  // SIGSTOP, then SIGCONT
  EXPECT_FALSE(watch.Look(owner.now_ns));
  EXPECT_EQ(owner.LostWithin(9 * kSecond), -1);
  EXPECT_GT(owner.LostWithin(2 * kSecond), 0);
}

TEST(PeerWatchTest, NorDoesOneThatSleptBeforeItsFirstLook) {
  PeerWatch watch(milliseconds(10000));
  watch.Heard(5 * kSecond);
  EXPECT_FALSE(watch.Look(3600 * kSecond));
  watch.LookIdle(3609 * kSecond);
  EXPECT_TRUE(watch.Look(3610 * kSecond));
}

TEST(PeerWatchTest, SmallDelaysOfTheWatcherChangeNothing) {
  PeerWatch watch(milliseconds(1000));
  watch.Heard(0);
  for (const int64_t at : {0, 450, 900}) {
    EXPECT_FALSE(watch.Look(at * 1'000'000));
  }
  EXPECT_TRUE(watch.Look(1'350'000'000));
}

}  // namespace
}  // namespace weir
