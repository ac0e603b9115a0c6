#include "bench/support/load.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cc/parameters/parameter_client.h"
#include "client/cc/transport/shm_transport.h"
#include "common/base/status.h"
#include "nlohmann/json.hpp"
#include "proto/wire/layout_io.h"

namespace weir {
namespace {

constexpr int kWarmupSteps = 2;
constexpr double kMeetSeconds = 120;
constexpr double kStartDelaySeconds = 0.3;

std::string PathOf(const std::string& directory, const char* what, int slot) {
  return absl::StrCat(directory, "/", what, "-", slot);
}

// Declares one variable, trained by SGD in async.
Declaration FlatModel(const LoadOptions& options) {
  Declaration declaration;
  declaration.set_job("load");
  declaration.set_history(1);
  declaration.set_shard_count(static_cast<uint32_t>(options.addresses.size()));
  declaration.set_block_elements(Layout::kDefaultBlockElements);
  Variable* const variable = declaration.add_variable();
  variable->set_name("w");
  variable->add_shape(options.bytes / 4);
  Group* const group = declaration.add_group();
  group->mutable_optimizer()->mutable_sgd();
  group->mutable_schedule()->set_learning_rate(1e-6);
  declaration.mutable_update()->mutable_async();
  declaration.set_slot_count(static_cast<uint32_t>(options.clients));
  return declaration;
}

absl::Status Step(ParameterClient* client, const Sender& sender,
                  uint64_t sequence, bool pull) {
  ContributionPush push;
  push.sender = sender;
  push.sequence = sequence;
  if (pull) {
    Want latest;
    latest.set_latest(true);
    push.then = latest;
  }
  WEIR_RETURN_IF_ERROR(client->BeginContribution(push));
  client->GradientReady(0);
  WEIR_RETURN_IF_ERROR(client->FinishContribution());
  WEIR_RETURN_IF_ERROR(client->WaitReceipts().status());
  return client->WaitPull();
}

}  // namespace

void AddLoadClientFlags(CLI::App* app, LoadOptions* options, int* client,
                        std::string* directory) {
  app->add_option("--client", *client)->group("");
  app->add_option("--directory", *directory)->group("");
  app->add_option("--addresses", options->addresses)->delimiter(',')->group("");
  app->add_option("--client_count", options->clients)->group("");
  app->add_option("--bytes", options->bytes)->group("");
  app->add_option("--client_transport", options->transport)->group("");
  app->add_option("--client_in_flight", options->in_flight_bytes)->group("");
  app->add_flag("!--push_only", options->pull)->group("");
}

absl::Status RunLoadClient(const LoadOptions& options, int slot,
                           const std::string& directory) {
  WEIR_ASSIGN_OR_RETURN(const TransportChoice choice,
                        ParseTransportChoice(options.transport));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Transport> transport,
                        BenchTransport(choice, slot));
  const Declaration declaration = FlatModel(options);
  WEIR_ASSIGN_OR_RETURN(const Layout layout,
                        LayoutFromDeclaration(declaration));
  const auto elements = static_cast<size_t>(layout.flat_elements());
  std::vector<float> parameters(elements);
  const std::shared_ptr<float> gradients = transport->NewBuffer(elements);
  std::fill_n(gradients.get(), elements, 1.0f);
  WEIR_ASSIGN_OR_RETURN(const Sender sender,
                        JoinJob(transport.get(), options.addresses, declaration,
                                slot, /*first=*/slot == 0));
  ParameterClient::Options client_options;
  client_options.transport = transport.get();
  client_options.addresses = options.addresses;
  client_options.layout = &layout;
  client_options.parameters = parameters.data();
  client_options.gradients = gradients.get();
  client_options.in_flight_bytes_max = options.in_flight_bytes;
  // Many clients on two cores are slow, not lost.
  client_options.lost_after = std::chrono::seconds(60);
  WEIR_ASSIGN_OR_RETURN(const auto client,
                        ParameterClient::Create(std::move(client_options)));
  uint64_t sequence = 0;
  while (sequence < kWarmupSteps) {
    WEIR_RETURN_IF_ERROR(Step(client.get(), sender, sequence++, options.pull));
  }
  WEIR_RETURN_IF_ERROR(Say(PathOf(directory, "ready", slot), ""));
  WEIR_ASSIGN_OR_RETURN(const std::string go,
                        Hear(directory + "/go", kMeetSeconds));
  double begin = 0;
  double end = 0;
  std::istringstream(go) >> begin >> end;
  if (Now() < begin) {
    usleep(static_cast<useconds_t>(1e6 * (begin - Now())));
  }
  std::vector<double> ends;
  while (ends.empty() || ends.back() < end) {
    WEIR_RETURN_IF_ERROR(Step(client.get(), sender, sequence++, options.pull));
    ends.push_back(Now());
  }
  return Say(PathOf(directory, "result", slot), nlohmann::json(ends).dump());
}

absl::StatusOr<std::unique_ptr<Load>> Load::Start(const LoadOptions& options,
                                                  const Placement& place) {
  auto load = std::make_unique<Load>();
  WEIR_ASSIGN_OR_RETURN(load->directory_, RunDirectory::Create());
  const std::string& directory = load->directory_->path();
  for (int i = 0; i < options.clients; ++i) {
    std::vector<std::string> argv = {OwnBinary(),
                                     "--client",
                                     absl::StrCat(i),
                                     "--directory",
                                     directory,
                                     "--addresses",
                                     absl::StrJoin(options.addresses, ","),
                                     "--client_count",
                                     absl::StrCat(options.clients),
                                     "--bytes",
                                     absl::StrCat(options.bytes),
                                     "--client_transport",
                                     options.transport,
                                     "--client_in_flight",
                                     absl::StrCat(options.in_flight_bytes)};
    if (!options.pull) {
      argv.push_back("--push_only");
    }
    WEIR_ASSIGN_OR_RETURN(
        auto child, Child::Start(place(i, std::move(argv)), options.log_path));
    load->clients_.push_back(std::move(child));
  }
  for (int i = 0; i < options.clients; ++i) {
    WEIR_RETURN_IF_ERROR(Annotate(
        Hear(PathOf(directory, "ready", i), kMeetSeconds).status(),
        absl::StrCat("client ", i, " (its log is ", options.log_path, ")")));
  }
  return load;
}

ClientResult ResultOf(const std::vector<double>& ends, double begin,
                      double seconds) {
  const double end = begin + seconds;
  ClientResult result;
  double previous = begin;
  for (const double at : ends) {
    if (at > end) {
      // Without the part, a client with long steps would seem slower.
      result.steps_per_s += (end - previous) / (at - previous) / seconds;
      break;
    }
    result.steps_per_s += 1 / seconds;
    result.step_s.push_back(at - previous);
    previous = at;
  }
  return result;
}

absl::StatusOr<std::vector<ClientResult>> Load::Run(
    double seconds, const std::function<void()>& tick) {
  const std::string& directory = directory_->path();
  const double begin = Now() + kStartDelaySeconds;
  const double end = begin + seconds;
  std::ostringstream go;
  go.precision(17);
  go << begin << ' ' << end;
  WEIR_RETURN_IF_ERROR(Say(directory + "/go", go.str()));
  while (Now() < end) {
    tick();
    usleep(100000);
  }
  std::vector<ClientResult> results;
  for (size_t i = 0; i < clients_.size(); ++i) {
    WEIR_ASSIGN_OR_RETURN(
        const std::string text,
        Hear(PathOf(directory, "result", static_cast<int>(i)), kMeetSeconds));
    const auto ends = nlohmann::json::parse(text).get<std::vector<double>>();
    results.push_back(ResultOf(ends, begin, seconds));
  }
  return results;
}

double Load::cpu_seconds() const {
  double sum = 0;
  for (const auto& client : clients_) {
    sum += CpuSeconds(client->pid());
  }
  return sum;
}

}  // namespace weir
