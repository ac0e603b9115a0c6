#include "proto/wire/grpc_channel.h"

#include <chrono>

#include "common/base/limits.h"
#include "proto/wire/grpc_deadline.h"

namespace weir {

void Reconnect(grpc::Channel* channel) {
  constexpr auto kPatience = std::chrono::milliseconds(100);
  if (channel->GetState(/*try_to_connect=*/true) ==
      GRPC_CHANNEL_TRANSIENT_FAILURE) {
    channel->WaitForStateChange(GRPC_CHANNEL_TRANSIENT_FAILURE,
                                DeadlineAfter(kPatience));
  }
}

grpc::ChannelArguments CommonChannelArguments() {
  grpc::ChannelArguments arguments;
  // A peer that was started again is found within a second.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // How long one attempt may take, not how long to wait for the next.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);
  // A name server that is busy may lose a question, and gRPC would wait for its
  // answer for two minutes.
  arguments.SetInt(GRPC_ARG_DNS_ARES_QUERY_TIMEOUT_MS, 3000);
  // Finds a partition that drops packets without a word, also while no call is
  // under way. A server must allow pings as frequent as this.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A proxy for the web is not the way to a peer.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

void AddServerArguments(grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                              kStreamsPerConnection);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 8 << 10);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              static_cast<int>(kHandshakeWait.count()));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
}

}  // namespace weir
