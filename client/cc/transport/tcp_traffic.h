// The TCP connections of this process to one peer, seen from outside gRPC.
//
// Place: under grpc_transport.cc. gRPC 1.51 does not tell how far a message has
// come, and gives no way to end a connection; the kernel does both. Sockets are
// found among the process's own descriptors by the address at their other end.
//
// Terms
//   peer  the other end, written as grpc::ClientContext::peer() does:
//         "ipv4:10.0.0.1:2222" or "ipv6:%5B::1%5D:2222".
// Threads: safe. Whatever descriptor another thread closes meanwhile, only
//   connections to `peer` are ended.
// Cost: a few system calls for each descriptor of the process. Call it a few
//   times a second while an answer is late, and never for each message.
#ifndef CLIENT_CC_TRANSPORT_TCP_TRAFFIC_H_
#define CLIENT_CC_TRANSPORT_TCP_TRAFFIC_H_

#include <cstdint>
#include <string>

namespace weir {

// Whether "host:port" names this host: loopback, an address of one of its
// interfaces, or its own name. Asks no name server.
bool IsThisHost(const std::string& address);

// Bytes that the peer has acknowledged plus those received from it, over all
// connections that are open now; -1 if there is none, or `peer` is not a TCP
// address.
int64_t TcpBytesMoved(const std::string& peer);

// Ends the connections to `peer`: calls on them fail at once, and what still
// waits to be sent is dropped. Returns how many there were.
int SeverTcp(const std::string& peer);

}  // namespace weir

#endif  // CLIENT_CC_TRANSPORT_TCP_TRAFFIC_H_
