// Settings of gRPC's channels and servers, and a quicker reconnect.
#ifndef PROTO_WIRE_GRPC_CHANNEL_H_
#define PROTO_WIRE_GRPC_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

namespace weir {

// Gives a channel whose last attempt failed up to 100 ms to connect before a
// call on it fails at once. gRPC makes the next attempt on a timer, but nobody
// reads its sockets while no call is under way: without this a peer that came
// up is found only every 5 s.
void Reconnect(grpc::Channel* channel);

// The arguments that every channel of Weir is made with. See "gRPC settings" in
// docs/design_notes.md for the reason of each value.
grpc::ChannelArguments CommonChannelArguments();

// Gives `builder` what every server of Weir is made with; the reasons are at
// the same place.
void AddServerArguments(grpc::ServerBuilder* builder);

}  // namespace weir

#endif  // PROTO_WIRE_GRPC_CHANNEL_H_
