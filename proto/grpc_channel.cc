#include "proto/grpc_channel.h"

#include <chrono>

namespace weir {

void Reconnect(grpc::Channel* channel) {
  constexpr auto kPatience = std::chrono::milliseconds(100);
  if (channel->GetState(/*try_to_connect=*/true) ==
      GRPC_CHANNEL_TRANSIENT_FAILURE) {
    channel->WaitForStateChange(GRPC_CHANNEL_TRANSIENT_FAILURE,
                                std::chrono::system_clock::now() + kPatience);
  }
}

}  // namespace weir
