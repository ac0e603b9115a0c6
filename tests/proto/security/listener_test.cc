#include "proto/security/listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "common/io/file_descriptor.h"
#include "gtest/gtest.h"
#include "tests/common/expect_error.h"
#include "tests/proto/security/echo_server.h"
#include "tests/support/wait_until.h"

namespace weir {
namespace {

FileDescriptor ConnectTo(int port) {
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
    return FileDescriptor();
  }
  return fd;
}

// Whether the other side has closed the connection.
bool IsClosed(const FileDescriptor& fd) {
  char buffer[256];
  ssize_t bytes = 0;
  while ((bytes = recv(fd.get(), buffer, sizeof(buffer), MSG_DONTWAIT)) > 0) {
  }
  return bytes == 0 || errno != EAGAIN;
}

TEST(ListenerTest, SilentConnectionsKeepNobodyOut) {
  Listener::Options options;
  options.unproven_max = 8;
  EchoServer server(Security::Insecure(), options);
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(ConnectTo(server.listener().port()));
  }
  EXPECT_TRUE(server.Call(grpc::InsecureChannelCredentials()).ok());
  // The oldest ones made room.
  EXPECT_TRUE(WaitUntil([&] { return IsClosed(silent[0]); }));
  EXPECT_FALSE(IsClosed(silent[99]));
  EXPECT_GE(server.listener().counts().closed, 100 - 8);
}

TEST(ListenerTest, ProvenConnectionsStay) {
  Listener::Options options;
  options.unproven_max = 2;
  options.connections_max = 3;
  EchoServer server(Security::Insecure(), options);
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < 3; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channels.push_back(grpc::CreateCustomChannel(
        server.address(), grpc::InsecureChannelCredentials(), arguments));
  }
  for (const auto& channel : channels) {
    ASSERT_TRUE(server.CallOn(channel).ok());
  }
  EXPECT_EQ(server.listener().counts().proven, 3);
  // There is no room: a fourth is closed, and the three stay.
  const FileDescriptor fourth = ConnectTo(server.listener().port());
  EXPECT_TRUE(WaitUntil([&] { return IsClosed(fourth); }));
  for (const auto& channel : channels) {
    EXPECT_TRUE(server.CallOn(channel).ok());
  }
  EXPECT_EQ(server.listener().counts().accepted, 4);
}

TEST(ListenerTest, AcceptsAgainAfterDescriptorsRanOut) {
  EchoServer server(Security::Insecure());
  ASSERT_TRUE(server.Call(grpc::InsecureChannelCredentials()).ok());
  // As many descriptors as this process may open, but the client's own.
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit small = {.rlim_cur = 200, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &small);
  std::vector<FileDescriptor> silent;
  while (true) {
    FileDescriptor one(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!one.valid()) {
      break;
    }
    silent.push_back(std::move(one));
  }
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(server.listener().port()));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (const FileDescriptor& fd : silent) {
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)),
              0);
  }
  // Each was turned away, since no descriptor was left for it.
  EXPECT_TRUE(WaitUntil([&] { return IsClosed(silent[0]); }));
  silent.clear();
  setrlimit(RLIMIT_NOFILE, &before);
  // The first attempt may still be among those that are turned away.
  EXPECT_TRUE(WaitUntil(
      [&] { return server.Call(grpc::InsecureChannelCredentials()).ok(); }));
}

TEST(ListenerTest, EndsAConnectionThatDropsCalls) {
  EchoServer server(Security::Insecure());
  const FileDescriptor fd = ConnectTo(server.listener().port());
  sockaddr_in own = {};
  socklen_t bytes = sizeof(own);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &bytes);
  const std::string peer =
      "ipv4:127.0.0.1:" + std::to_string(ntohs(own.sin_port));
  ASSERT_TRUE(
      WaitUntil([&] { return server.listener().counts().accepted == 1; }));
  for (int i = 0; i < 2 * kEmptyCallsPerSecond + 2; ++i) {
    server.listener().CountEmptyCall(peer);
  }
  EXPECT_TRUE(WaitUntil([&] { return IsClosed(fd); }));
}

TEST(ListenerTest, CountsWhoNeverProvedAnything) {
  EchoServer server(Security::Insecure());
  ASSERT_TRUE(server.Call(grpc::InsecureChannelCredentials()).ok());
  { const FileDescriptor gone = ConnectTo(server.listener().port()); }
  // The next connection sees that it is gone.
  EXPECT_TRUE(WaitUntil([&] {
    const FileDescriptor next = ConnectTo(server.listener().port());
    return server.listener().counts().failed > 0;
  }));
  EXPECT_EQ(server.listener().counts().proven, 1);
}

TEST(ListenerTest, SaysWhyItCannotListen) {
  EchoServer server(Security::Insecure());
  grpc::ServerBuilder builder;
  Listener::Options options;
  options.credentials = grpc::InsecureServerCredentials();
  options.address = server.address();
  ExpectError(Listener::Create(options, &builder).status(),
              absl::StatusCode::kUnavailable,
              server.address() + ": Address already in use");
  options.address = "127.0.0.1";
  ExpectInvalid(Listener::Create(options, &builder).status(),
                "is not host:port");
  options.address = "no.such.host.invalid:1";
  ExpectError(Listener::Create(options, &builder).status(),
              absl::StatusCode::kUnavailable, "no.such.host.invalid:1: ");
}

}  // namespace
}  // namespace weir
