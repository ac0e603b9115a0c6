// A client of ledger_test: pushes -1 to every element, item after item.
//
//   ledger_client TRANSPORT JOB HISTORY SLOT GENERATION ITEMS ELEMENTS BLOCK
//     ADDRESS...
//
// With plain SGD at learning rate 1 every item adds exactly 1 to every element.
// Starts at the smallest item that some block still expects.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "client/cc/parameter_client.h"
#include "client/cc/shm_transport.h"
#include "common/layout.h"
#include "common/status.h"

namespace weir {
namespace {

struct Arguments {
  std::string transport;
  Sender sender;
  uint64_t items;
  VariableSpec variable;
  int64_t block_elements;
  std::vector<std::string> addresses;
};

absl::Status Run(Arguments arguments) {
  WEIR_ASSIGN_OR_RETURN(
      const Layout layout,
      Layout::Create({arguments.variable},
                     static_cast<int>(arguments.addresses.size()),
                     arguments.block_elements));
  arguments.sender.set_layout_fingerprint(layout.fingerprint());
  WEIR_ASSIGN_OR_RETURN(const TransportChoice choice,
                        ParseTransportChoice(arguments.transport));
  const auto transport = MakeTransport(choice);
  uint64_t item = arguments.items;
  for (const std::string& address : arguments.addresses) {
    absl::StatusOr<HelloReply> hello;
    for (int tries = 0; tries < 100 && !hello.ok(); ++tries) {
      hello = transport->Connect(address)->Hello(ShardLink::Timeout(1000));
    }
    WEIR_RETURN_IF_ERROR(hello.status());
    item = std::min(item, hello->slot(arguments.sender.slot()).next_item_min());
  }
  std::vector<float> parameters(layout.flat_elements());
  const auto elements = static_cast<size_t>(layout.flat_elements());
  const std::shared_ptr<float> gradients = transport->NewBuffer(elements);
  std::fill_n(gradients.get(), elements, -1.0f);
  ParameterClient::Options options;
  options.transport = transport.get();
  options.addresses = arguments.addresses;
  options.layout = &layout;
  options.sender = arguments.sender;
  options.parameters = parameters.data();
  options.gradients = gradients.get();
  WEIR_ASSIGN_OR_RETURN(const auto client, ParameterClient::Create(options));
  for (; item < arguments.items; ++item) {
    ParameterClient::ItemPush push;
    push.item = item;
    WEIR_RETURN_IF_ERROR(client->BeginItem(push));
    client->GradientReady(0);
    WEIR_RETURN_IF_ERROR(client->FinishItem());
    WEIR_RETURN_IF_ERROR(client->WaitReceipts().status());
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  if (argc < 10) {
    std::fprintf(stderr, "see the top of ledger_client.cc for the usage\n");
    return 2;
  }
  weir::Arguments arguments;
  arguments.transport = argv[1];
  arguments.sender.set_job(argv[2]);
  arguments.sender.set_history(std::strtoull(argv[3], nullptr, 10));
  arguments.sender.set_slot(std::strtoul(argv[4], nullptr, 10));
  arguments.sender.set_generation(std::strtoul(argv[5], nullptr, 10));
  arguments.items = std::strtoull(argv[6], nullptr, 10);
  arguments.variable.name = "w";
  arguments.variable.shape = {std::strtoll(argv[7], nullptr, 10)};
  arguments.block_elements = std::strtoll(argv[8], nullptr, 10);
  arguments.addresses.assign(argv + 9, argv + argc);
  const absl::Status status = weir::Run(arguments);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
  }
  return status.ok() ? 0 : 1;
}
