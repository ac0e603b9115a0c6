// A client of ledger_test: pushes -1 to every element, contribution after
// contribution.
//
//   ledger_client TRANSPORT JOB HISTORY SLOT GENERATION PUSHES ELEMENTS BLOCK
//     ROWS ADDRESS...
//
// With plain SGD at learning rate 1 every contribution adds exactly 1 to every
// element, and likewise to ROWS rows of its own (ledger_rows.h) of a table, if
// ROWS > 0. Starts at the smallest contribution that some block or table still
// expects; prints the number of contributions when one is acknowledged.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "client/cc/parameters/parameter_client.h"
#include "client/cc/parameters/table_client.h"
#include "client/cc/transport/shm_transport.h"
#include "common/base/status.h"
#include "common/job/layout.h"
#include "tests/integration/ledger_rows.h"

namespace weir {
namespace {

struct Arguments {
  std::string transport;
  Sender sender;
  uint64_t contributions;
  VariableSpec variable;
  int64_t block_elements;
  int rows;
  std::vector<std::string> addresses;
};

// Looks the contribution's rows up and starts to push to them.
absl::Status StartRows(TableClient* client, const Sender& sender,
                       const std::vector<uint64_t>& ids, uint64_t sequence) {
  const size_t floats = ids.size() * kLedgerDim;
  std::vector<float> rows(floats);
  const TableClient::Wanted wanted = {0, ids, rows.data()};
  Want want;
  want.set_latest(true);
  WEIR_RETURN_IF_ERROR(
      client->StartLookup(sender, want, /*train=*/true, std::span(&wanted, 1)));
  ContributionPush push;
  push.sender = sender;
  push.sequence = sequence;
  WEIR_ASSIGN_OR_RETURN(const TableClient::Versions versions,
                        client->WaitLookup());
  static const std::vector<float> gradients(floats, -1.0f);
  const TableClient::Gradients update = {0, ids, gradients.data()};
  return client->StartUpdate(push, versions, std::span(&update, 1));
}

absl::Status Run(Arguments arguments) {
  WEIR_ASSIGN_OR_RETURN(
      const Layout layout,
      Layout::Create({arguments.variable},
                     static_cast<int>(arguments.addresses.size()),
                     arguments.block_elements));
  arguments.sender.set_layout_fingerprint(layout.fingerprint());
  WEIR_ASSIGN_OR_RETURN(const TransportChoice choice,
                        ParseTransportChoice(arguments.transport));
  GrpcTransportOptions grpc;
  WEIR_ASSIGN_OR_RETURN(
      grpc.security,
      Security::Create(Security::Options::FromEnvironment(), PeerRole::kWorker,
                       static_cast<int>(arguments.sender.slot())));
  const auto transport = MakeTransport(choice, grpc);
  uint64_t sequence = arguments.contributions;
  for (const std::string& address : arguments.addresses) {
    absl::StatusOr<HelloReply> hello;
    for (int tries = 0; tries < 100 && !hello.ok(); ++tries) {
      hello = transport->Connect(address)->Hello(ControlLink::Timeout(1000));
    }
    WEIR_RETURN_IF_ERROR(hello.status());
    for (const SlotStatus& slot : hello->slot()) {
      if (slot.slot() == arguments.sender.slot()) {
        sequence = std::min(sequence, slot.next_sequence_min());
      }
    }
  }
  std::vector<float> parameters(layout.flat_elements());
  const auto elements = static_cast<size_t>(layout.flat_elements());
  const std::shared_ptr<float> gradients = transport->NewBuffer(elements);
  std::fill_n(gradients.get(), elements, -1.0f);
  ParameterClient::Options options;
  options.transport = transport.get();
  options.addresses = arguments.addresses;
  options.layout = &layout;
  options.parameters = parameters.data();
  options.gradients = gradients.get();
  WEIR_ASSIGN_OR_RETURN(const auto client, ParameterClient::Create(options));
  std::unique_ptr<TableClient> tables;
  if (arguments.rows > 0) {
    TableClient::Options of;
    of.transport = transport.get();
    of.addresses = arguments.addresses;
    of.tables = {LedgerTable()};
    WEIR_ASSIGN_OR_RETURN(tables, TableClient::Create(of));
  }
  for (; sequence < arguments.contributions; ++sequence) {
    const std::vector<uint64_t> ids =
        LedgerIds(arguments.sender.slot(), sequence, arguments.rows);
    ContributionPush push;
    push.sender = arguments.sender;
    push.sequence = sequence;
    WEIR_RETURN_IF_ERROR(client->BeginContribution(push));
    client->GradientReady(0);
    if (tables != nullptr) {
      WEIR_RETURN_IF_ERROR(
          StartRows(tables.get(), arguments.sender, ids, sequence));
    }
    WEIR_RETURN_IF_ERROR(client->FinishContribution());
    WEIR_RETURN_IF_ERROR(client->WaitReceipts().status());
    if (tables != nullptr) {
      WEIR_RETURN_IF_ERROR(tables->WaitUpdate().status());
    }
    std::printf("%llu\n", static_cast<unsigned long long>(sequence + 1));
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  if (argc < 11) {
    std::fprintf(stderr, "see the top of ledger_client.cc for the usage\n");
    return 2;
  }
  weir::Arguments arguments;
  arguments.transport = argv[1];
  arguments.sender.set_job(argv[2]);
  arguments.sender.set_history(std::strtoull(argv[3], nullptr, 10));
  arguments.sender.set_slot(std::strtoul(argv[4], nullptr, 10));
  arguments.sender.set_generation(std::strtoul(argv[5], nullptr, 10));
  arguments.contributions = std::strtoull(argv[6], nullptr, 10);
  arguments.variable.name = "w";
  arguments.variable.shape = {std::strtoll(argv[7], nullptr, 10)};
  arguments.block_elements = std::strtoll(argv[8], nullptr, 10);
  arguments.rows = static_cast<int>(std::strtol(argv[9], nullptr, 10));
  arguments.addresses.assign(argv + 10, argv + argc);
  const absl::Status status = weir::Run(arguments);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
  }
  return status.ok() ? 0 : 1;
}
