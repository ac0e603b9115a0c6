#include "client/cc/transport/tcp_traffic.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "common/io/file_descriptor.h"

namespace weir {
namespace {

// A connection within this process, over loopback; of gRPC's kind when `v6`.
struct Pair {
  explicit Pair(bool v6) {
    const FileDescriptor listener(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener.get(), any, length), 0);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    getsockname(listener.get(), any, &length);
    peer = "ipv4:127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    client = FileDescriptor(socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0));
    if (v6) {
      sockaddr_in6 mapped = {};
      mapped.sin6_family = AF_INET6;
      mapped.sin6_port = address.sin_port;
      inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr);
      EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&mapped),
                        sizeof(mapped)),
                0);
    } else {
      EXPECT_EQ(connect(client.get(), any, length), 0);
    }
    server = FileDescriptor(accept(listener.get(), nullptr, nullptr));
  }

  FileDescriptor client;
  FileDescriptor server;
  std::string peer;  // as the client's end has it
};

class TcpTrafficTest : public testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Families, TcpTrafficTest, testing::Bool());

TEST_P(TcpTrafficTest, CountsWhatWentAndWhatCame) {
  const Pair pair(GetParam());
  const int64_t before = TcpBytesMoved(pair.peer);
  ASSERT_GE(before, 0);
  const std::vector<char> bytes(5000);
  ASSERT_EQ(send(pair.client.get(), bytes.data(), 3000, 0), 3000);
  ASSERT_EQ(send(pair.server.get(), bytes.data(), 2000, 0), 2000);
  std::vector<char> got(5000);
  ASSERT_EQ(recv(pair.server.get(), got.data(), 3000, MSG_WAITALL), 3000);
  ASSERT_EQ(recv(pair.client.get(), got.data(), 2000, MSG_WAITALL), 2000);
  // Loopback acknowledges within milliseconds.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (TcpBytesMoved(pair.peer) < before + 5000 &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_EQ(TcpBytesMoved(pair.peer), before + 5000);
}

TEST_P(TcpTrafficTest, EndsTheConnectionsToOnePeerAlone) {
  const Pair pair(GetParam());
  const Pair other(GetParam());
  EXPECT_EQ(SeverTcp(pair.peer), 1);
  char byte = 0;
  EXPECT_EQ(recv(pair.client.get(), &byte, 1, 0), 0);
  EXPECT_EQ(send(other.client.get(), &byte, 1, 0), 1);
  EXPECT_EQ(recv(other.server.get(), &byte, 1, 0), 1);
}

TEST(TcpTrafficTest, KnowsNothingOfOtherPeers) {
  for (const std::string peer :
       {"", "unknown", "unix:/tmp/socket", "ipv4:127.0.0.1:1", "ipv4:a:b",
        "ipv6:%5B::1%5D:1", "ipv6:[::1]:1", "ipv6:nonsense:7", "127.0.0.1:1",
        "ps-0.example:2222"}) {
    EXPECT_EQ(TcpBytesMoved(peer), -1) << peer;
    EXPECT_EQ(SeverTcp(peer), 0) << peer;
  }
}

TEST(TcpTrafficTest, KnowsThisHostByItsNames) {
  char own[256] = {};
  gethostname(own, sizeof(own) - 1);
  for (const std::string host : {"localhost", "127.0.0.1", "127.0.0.7", "[::1]",
                                 static_cast<const char*>(own)}) {
    EXPECT_TRUE(IsThisHost(host + ":2222")) << host;
  }
  for (const std::string host :
       {"192.0.2.1", "ps-0.example", "[2001:db8::1]", ""}) {
    EXPECT_FALSE(IsThisHost(host + ":2222")) << host;
  }
}

}  // namespace
}  // namespace weir
