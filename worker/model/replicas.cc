#include "worker/model/replicas.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/math/random.h"
#include "common/trace/trace.h"

namespace weir {
namespace {

// I2, I3: replica 0 has the seed of Network; the others drop other elements.
uint64_t SeedOf(uint64_t seed, int64_t replica) {
  if (replica == 0) {
    return seed;
  }
  return MixKey(seed, replica);
}

}  // namespace

Replicas::Replicas(std::vector<std::unique_ptr<Network>> networks)
    : networks_(std::move(networks)), weights_(networks_.size()) {}

// Replica 0 pinned the host's memory for all, so it lets go of it last.
Replicas::~Replicas() {
  Reset();
  while (!networks_.empty()) {
    networks_.pop_back();
  }
}

absl::StatusOr<std::unique_ptr<Replicas>> Replicas::Create(
    const Model& spec, const std::vector<int64_t>& sample_shape,
    const std::vector<Backend*>& backends, NetworkOptions options) {
  WEIR_CHECK(!backends.empty());
  const auto count = static_cast<int64_t>(backends.size());
  // The largest part of a whole batch.
  options.rows_reserved = (options.rows_reserved + count - 1) / count;
  std::vector<std::unique_ptr<Network>> networks;
  for (Backend* backend : backends) {
    options.keeps_gradients = !networks.empty();
    WEIR_ASSIGN_OR_RETURN(
        networks.emplace_back(),
        Network::Create(spec, sample_shape, backend, options));
  }
  if (networks.size() > 1 && !networks[0]->tables().empty()) {
    return Invalid(
        "the model reads tables, and this worker has ", networks.size(),
        " devices: tables with several devices in one worker are not "
        "supported; start a worker for each device");
  }
  return std::unique_ptr<Replicas>(new Replicas(std::move(networks)));
}

absl::Status Replicas::Bind(const Layout& layout, float* parameters,
                            float* gradients) {
  for (const auto& network : networks_) {
    WEIR_RETURN_IF_ERROR(network->Bind(layout, parameters, gradients));
  }
  return absl::OkStatus();
}

absl::Status Replicas::StoreValues(int64_t begin, HostPieces values) {
  for (const auto& network : networks_) {
    WEIR_RETURN_IF_ERROR(network->StoreValues(begin, values));
  }
  return absl::OkStatus();
}

void Replicas::Reset() {
  for (const auto& network : networks_) {
    network->Reset();
  }
}

size_t Replicas::CountOf(int64_t rows) const {
  return static_cast<size_t>(
      std::clamp<int64_t>(rows, 1, static_cast<int64_t>(networks_.size())));
}

int64_t Replicas::PartOf(int64_t rows, size_t count, size_t replica) {
  const auto parts = static_cast<int64_t>(count);
  return rows / parts + (static_cast<int64_t>(replica) < rows % parts ? 1 : 0);
}

absl::Status Replicas::SendAhead(const Features& features, int64_t rows) {
  const size_t count = CountOf(rows);
  int64_t begin = 0;
  for (size_t r = 0; r < count; ++r) {
    const int64_t part = PartOf(rows, count, r);
    WEIR_RETURN_IF_ERROR(networks_[r]->SendAhead(
        features.From(begin * network().feature_elements()), part));
    begin += part;
  }
  return absl::OkStatus();
}

absl::StatusOr<StepResult> Replicas::TrainStep(
    const Features& features, const float* labels, int64_t rows,
    uint64_t contribution_seed, const StepHooks& hooks,
    std::span<const TableInput> tables) {
  const TraceSpan span("forward and backward");
  const size_t count = CountOf(rows);
  absl::StatusOr<StepResult> result = StepResult();
  if (count == 1) {  // I2: Network's bits
    result = networks_[0]->TrainStep(features, labels, rows, contribution_seed,
                                     hooks, tables);
  } else {
    result = Step(count, features, labels, rows, contribution_seed, hooks);
  }
  if (!result.ok()) {
    // The next step writes what this one may still read, what failed is this
    // one's, and the batch that it has sent ahead may never be asked for.
    Reset();
  }
  return result;
}

// The pieces of Network::TrainStep, each on every replica before the next. On a
// GPU a piece only enqueues work, so one thread keeps all devices busy.
absl::StatusOr<StepResult> Replicas::Step(size_t count,
                                          const Features& features,
                                          const float* labels, int64_t rows,
                                          uint64_t seed,
                                          const StepHooks& hooks) {
  // For the whole batch, so that a message names the row of the batch.
  WEIR_RETURN_IF_ERROR(networks_[0]->CheckTraining(labels, rows));
  WEIR_RETURN_IF_ERROR(Begin(count, features, labels, rows, seed));
  WEIR_RETURN_IF_ERROR(Forward(count, hooks));
  for (size_t r = 0; r < count; ++r) {
    networks_[r]->ComputeLoss(/*training=*/true);
  }
  WEIR_RETURN_IF_ERROR(Backward(count, hooks));
  StepResult result;
  for (size_t r = 0; r < count; ++r) {
    const auto [loss_sum, correct] = networks_[r]->SumRowResults();
    WEIR_RETURN_IF_ERROR(networks_[r]->backend_->TakeStatus());
    result.loss += loss_sum;
    result.correct += correct;
  }
  result.loss /= static_cast<double>(rows);  // over the whole batch
  return result;
}

absl::Status Replicas::Begin(size_t count, Features features,
                             const float* labels, int64_t rows, uint64_t seed) {
  const Network& model = network();
  for (size_t r = 0; r < count; ++r) {
    const int64_t part = PartOf(rows, count, r);
    // A replica's gradient is that of the mean over its part; this weight makes
    // the sum that of the mean over the batch (I1).
    weights_[r] = static_cast<float>(static_cast<double>(part) /
                                     static_cast<double>(rows));
    WEIR_RETURN_IF_ERROR(networks_[r]->BeginStep(
        features, labels, part, /*tables=*/{},
        /*training=*/true, SeedOf(seed, static_cast<int64_t>(r))));
    features = features.From(part * model.feature_elements());
    labels += part * model.label_width();
  }
  return absl::OkStatus();
}

absl::Status Replicas::Forward(size_t count, const StepHooks& hooks) {
  const size_t nodes = network().graph_.nodes.size();
  for (size_t n = 0; n < nodes; ++n) {
    for (size_t r = 0; r < count; ++r) {
      // Replica 0 waits for the values; then they are there for all.
      WEIR_RETURN_IF_ERROR(networks_[r]->FetchOf(
          n, /*training=*/true,
          r == 0 ? hooks.before_layer_parameters : nullptr));
      networks_[r]->ForwardOf(n);
    }
  }
  return absl::OkStatus();
}

absl::Status Replicas::Backward(size_t count, const StepHooks& hooks) {
  Network* const first = networks_[0].get();
  StepHooks checked;
  checked.gradient_ready = [&](int variable) -> absl::Status {
    // Replica 0's sum has read these gradients, but the queues of the others
    // may not have passed them yet; and an operation that failed on a device
    // shows in the status of that device only.
    for (size_t r = 1; r < count; ++r) {
      WEIR_RETURN_IF_ERROR(networks_[r]->TakeGradient());
    }
    if (!hooks.gradient_ready) {
      return absl::OkStatus();
    }
    return hooks.gradient_ready(variable);
  };
  for (size_t n = first->graph_.nodes.size(); n-- > 0;) {
    if (!first->Trains(n)) {
      continue;
    }
    for (size_t r = 0; r < count; ++r) {
      networks_[r]->BackwardOf(n);
    }
    // Before SendGradients, which enqueues the download of the sum.
    Reduce(count, n);
    for (size_t r = 0; r < count; ++r) {
      networks_[r]->SendGradients(n);
    }
    WEIR_RETURN_IF_ERROR(first->Publish(checked, /*wait=*/false));
  }
  return first->Publish(checked, /*wait=*/true);
}

void Replicas::Reduce(size_t count, size_t n) {
  Network* const first = networks_[0].get();
  const GraphNode& node = first->graph_.nodes[n];
  const auto& variables = node.op->traits().variables;
  for (size_t i = variables.size(); i-- > 0;) {
    const int64_t begin = first->begins_[node.first_variable + i];
    // I1: in the order of replicas, which a deterministic backend keeps (I2).
    terms_.clear();
    for (size_t r = 1; r < count; ++r) {
      terms_.push_back({.peer = networks_[r]->backend_,
                        .x = networks_[r]->gradients_ + begin,
                        .weight = weights_[r]});
    }
    first->backend_->ReduceFromPeers(variables[i].elements(), weights_[0],
                                     first->gradients_ + begin, terms_);
  }
}

DeviceUsage Replicas::Usage() const {
  DeviceUsage sum;
  for (const auto& network : networks_) {
    const DeviceUsage usage = network->backend_->Usage();
    sum.busy_ns += usage.busy_ns;
    sum.bytes_used += usage.bytes_used;
    sum.bytes_reserved += usage.bytes_reserved;
  }
  sum.busy_ns /= static_cast<int64_t>(networks_.size());
  return sum;
}

}  // namespace weir
