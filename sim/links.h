// The transport of a simulated network (sim/network.h).
//
// Threads: for fibres.
// Errors: as every transport (client/cc/transport/transport.h).
#ifndef SIM_LINKS_H_
#define SIM_LINKS_H_

#include <memory>
#include <string>

#include "client/cc/transport/transport.h"
#include "sim/network.h"

namespace weir::sim {

class SimTransport : public Transport {
 public:
  SimTransport(Network* network, int process)
      : network_(network), process_(process) {}

  std::unique_ptr<ControlLink> Connect(const std::string& address) override;
  std::unique_ptr<DataLink> ConnectData(const std::string& address) override;

 private:
  Network* const network_;
  const int process_;
};

}  // namespace weir::sim

#endif  // SIM_LINKS_H_
