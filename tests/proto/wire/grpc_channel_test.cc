#include "proto/wire/grpc_channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

namespace weir {
namespace {

// A server that implements no call. Port 0 takes a free one.
std::unique_ptr<grpc::Server> Listen(grpc::CallbackGenericService* service,
                                     int* port) {
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort("127.0.0.1:" + std::to_string(*port),
                           grpc::InsecureServerCredentials(), port);
  builder.RegisterCallbackGenericService(service);
  return builder.BuildAndStart();
}

TEST(GrpcChannelTest, FindsAPeerThatCameUpLater) {
  grpc::CallbackGenericService first;
  grpc::CallbackGenericService second;
  int port = 0;
  std::unique_ptr<grpc::Server> server = Listen(&first, &port);
  ASSERT_NE(server, nullptr);
  server->Shutdown();
  server.reset();

  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  const std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port),
                                grpc::InsecureChannelCredentials(), arguments);
  grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
  while (state != GRPC_CHANNEL_TRANSIENT_FAILURE) {
    ASSERT_TRUE(channel->WaitForStateChange(
        state, std::chrono::system_clock::now() + std::chrono::seconds(10)));
    state = channel->GetState(true);
  }

  server = Listen(&second, &port);
  ASSERT_NE(server, nullptr);
  // Each call takes at most 100 ms, so all of them 2 s. A channel that is left
  // alone takes up to 5 s.
  for (int call = 0;
       call < 20 && channel->GetState(false) != GRPC_CHANNEL_READY; ++call) {
    Reconnect(channel.get());
    const auto soon =
        std::chrono::system_clock::now() + std::chrono::milliseconds(50);
    while (channel->GetState(false) == GRPC_CHANNEL_CONNECTING &&
           channel->WaitForStateChange(GRPC_CHANNEL_CONNECTING, soon)) {
    }
  }
  EXPECT_EQ(channel->GetState(false), GRPC_CHANNEL_READY);
}

}  // namespace
}  // namespace weir
