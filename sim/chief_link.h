// A worker's way to its chief in a simulated network. The chief's end does what
// ChiefService does behind gRPC, but for who may call.
//
// Threads: for fibres.
#ifndef SIM_CHIEF_LINK_H_
#define SIM_CHIEF_LINK_H_

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "client/cc/job/chief_link.h"
#include "sim/network.h"

namespace weir::sim {

class SimChiefLink : public ChiefLink {
 public:
  SimChiefLink(Network* network, std::string address, int process)
      : network_(network), address_(std::move(address)), process_(process) {}

  const std::string& address() const override { return address_; }
  absl::Status Register(const RegisterRequest& request,
                        std::chrono::milliseconds timeout,
                        RegisterReply* reply) override;
  absl::Status Probe(std::chrono::milliseconds timeout) override;
  std::unique_ptr<HeartbeatStream> NewHeartbeat() override;
  // No timeline is taken in a simulated world.
  absl::Status PutTrace(const PutTraceRequest& request,
                        std::chrono::milliseconds timeout,
                        PutTraceReply* reply) override;
  void CancelPutTrace() override {}

 private:
  Network* const network_;
  const std::string address_;
  const int process_;
};

}  // namespace weir::sim

#endif  // SIM_CHIEF_LINK_H_
