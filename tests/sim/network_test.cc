// What a simulated network does with messages, apart from the random breaks
// that every world of swarm_test has.
#include "sim/network.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "common/threads/scheduler.h"

namespace weir::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kClient = 1;
constexpr int kServer = 2;
// The fibres themselves take a little of the world's time.
constexpr auto kSoon = milliseconds(2);

// A network with two tasks, and a connection between them.
class Pair {
 public:
  explicit Pair(const Faults& faults) {
    network.SetFaults(faults);
    for (const int process : {kClient, kServer}) {
      StartAs(process, [this] { network.Join(); });
    }
    SleepFor(milliseconds(1));
    connection = network.Connect(kClient, kServer);
    start_ = Now();
  }

  void ToServer(size_t payload = 0) {
    network.ToServer(
        connection, [this] { at_server.push_back(Now() - start_); }, payload);
  }
  void ToClient() {
    network.ToClient(connection,
                     [this] { at_client.push_back(Now() - start_); });
  }

  Network network;
  std::shared_ptr<Connection> connection;
  std::vector<std::chrono::nanoseconds> at_server;  // since the connection
  std::vector<std::chrono::nanoseconds> at_client;

 private:
  std::chrono::nanoseconds start_{0};
};

void InWorldWith(const Faults& faults, const std::function<void(Pair*)>& look) {
  const Outcome outcome = RunWorld(1, [&] {
    Pair pair(faults);
    look(&pair);
  });
  EXPECT_EQ(outcome.stuck, "");
}

TEST(SimNetworkTest, AWayCarriesSoManyBytesASecond) {
  InWorldWith({.bytes_per_second = 1000}, [](Pair* pair) {
    for (int i = 0; i < 3; ++i) {
      pair->ToServer(/*payload=*/936);  // 1000 with its header
    }
    pair->ToClient();  // another way
    SleepFor(seconds(10));
    ASSERT_EQ(pair->at_server.size(), 3);
    for (int i = 0; i < 3; ++i) {
      EXPECT_GE(pair->at_server[i], seconds(1 + i));
      EXPECT_LT(pair->at_server[i], seconds(1 + i) + kSoon);
    }
    ASSERT_EQ(pair->at_client.size(), 1);
    EXPECT_LT(pair->at_client[0], milliseconds(64) + kSoon);
  });
}

TEST(SimNetworkTest, APartOfOneWayLeavesTheOther) {
  InWorldWith({}, [](Pair* pair) {
    pair->network.Part(kClient, kServer, seconds(5), /*one_way=*/true);
    pair->ToServer();
    pair->ToClient();
    SleepFor(seconds(10));
    ASSERT_EQ(pair->at_server.size(), 1);
    EXPECT_GE(pair->at_server[0], seconds(5));
    ASSERT_EQ(pair->at_client.size(), 1);
    EXPECT_LT(pair->at_client[0], kSoon);
  });
}

TEST(SimNetworkTest, APartLeavesNeitherWay) {
  InWorldWith({}, [](Pair* pair) {
    pair->network.Part(kClient, kServer, seconds(5), /*one_way=*/false);
    pair->ToServer();
    pair->ToClient();
    SleepFor(seconds(10));
    ASSERT_EQ(pair->at_server.size(), 1);
    EXPECT_GE(pair->at_server[0], seconds(5));
    ASSERT_EQ(pair->at_client.size(), 1);
    EXPECT_GE(pair->at_client[0], seconds(5));
  });
}

// A ping of keepalive needs both ways, whichever is cut.
TEST(SimNetworkTest, ALongSilenceBreaksTheConnection) {
  for (const int from : {kClient, kServer}) {
    InWorldWith({}, [from](Pair* pair) {
      pair->network.Part(from, kClient + kServer - from, seconds(60),
                         /*one_way=*/true);
      SleepFor(seconds(15));
      pair->network.BreakSilent();
      EXPECT_TRUE(pair->connection->broken.ok());
      SleepFor(seconds(10));
      pair->network.BreakSilent();
      EXPECT_FALSE(pair->connection->broken.ok());
    });
  }
}

}  // namespace
}  // namespace weir::sim
