#include "client/cc/weir.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/cc/parameter_client.h"
#include "client/cc/shm_transport.h"
#include "common/clock.h"
#include "common/layout.h"
#include "common/logging.h"
#include "common/status.h"
#include "proto/job_spec_rules.h"
#include "proto/layout_io.h"
#include "proto/tf_config.h"

namespace weir::sdk {
namespace {

constexpr std::chrono::milliseconds kCallTimeout{10000};
constexpr std::chrono::milliseconds kPollEvery{50};
constexpr int64_t kSayEveryNs = 10'000'000'000;

Status ToStatus(const absl::Status& status) {
  return status.ok() ? Status()
                     : Status(static_cast<int>(status.code()),
                              std::string(status.message()));
}

absl::Status CheckOptions(const Options& options) {
  if (options.ps.empty()) {
    return absl::InvalidArgumentError(
        "Options.ps is empty: name the parameter servers, or call FromEnv()");
  }
  if (options.worker_count < 1 || options.worker_index < 0 ||
      options.worker_index >= options.worker_count) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker_index ", options.worker_index,
                     " is not below worker_count ", options.worker_count));
  }
  if (!(options.lost_after_seconds > 0.0) ||
      !(options.start_wait_seconds > 0.0)) {
    return absl::InvalidArgumentError("times must be positive");
  }
  return absl::OkStatus();
}

absl::StatusOr<Encoding> ParseEncoding(const std::string& name) {
  Encoding encoding = F32;
  if (name != absl::AsciiStrToLower(name) ||
      !Encoding_Parse(absl::AsciiStrToUpper(name), &encoding)) {
    return absl::InvalidArgumentError(
        absl::StrCat("no encoding is called '", name,
                     "'; choose f32, bf16, f16, int8 or top_k"));
  }
  return encoding;
}

absl::StatusOr<Compression> ToCompression(const Options& options) {
  Compression compression;
  WEIR_ASSIGN_OR_RETURN(const Encoding push,
                        ParseEncoding(options.push_encoding));
  WEIR_ASSIGN_OR_RETURN(const Encoding pull,
                        ParseEncoding(options.pull_encoding));
  compression.set_push(push);
  compression.set_pull(pull);
  if (push == TOP_K) {
    compression.set_top_k_fraction(options.top_k_fraction);
  }
  WEIR_RETURN_IF_ERROR(ValidateCompression(compression));
  return compression;
}

Group ToGroup(const Optimizer& optimizer) {
  Group group;
  group.mutable_schedule()->set_learning_rate(optimizer.learning_rate);
  weir::Optimizer* const proto = group.mutable_optimizer();
  switch (optimizer.kind) {
    case Optimizer::Kind::kSgd:
      proto->mutable_sgd()->set_momentum(optimizer.momentum);
      proto->mutable_sgd()->set_weight_decay(optimizer.weight_decay);
      break;
    case Optimizer::Kind::kAdagrad:
      proto->mutable_adagrad()->set_weight_decay(optimizer.weight_decay);
      break;
    case Optimizer::Kind::kAdam:
      proto->mutable_adam()->set_weight_decay(optimizer.weight_decay);
      break;
    case Optimizer::Kind::kAdamW:
      proto->mutable_adamw()->set_weight_decay(optimizer.weight_decay);
      break;
  }
  return group;
}

}  // namespace

Status Options::FromEnv() {
  const absl::StatusOr<ClusterSpec> cluster =
      ResolveCluster(ClusterSources::FromEnv());
  if (!cluster.ok()) {
    return ToStatus(cluster.status());
  }
  if (!cluster->full_view() || !cluster->task().has_value()) {
    return Status(static_cast<int>(absl::StatusCode::kInvalidArgument),
                  "the environment names no cluster with this task in it: set "
                  "TF_CONFIG, or WEIR_CLUSTER and WEIR_TASK_INDEX");
  }
  ps = cluster->ps_addresses();
  worker_index = cluster->task()->index;
  worker_count = std::max(cluster->worker_count(), 1);
  return Status();
}

class Client::Impl {
 public:
  explicit Impl(Options options) : options_(std::move(options)) {}

  absl::Status Connect();
  absl::Status Declare(const std::vector<Tensor>& tensors);
  absl::Status Start(const std::vector<std::string>& names, bool pull);
  absl::Status Wait();
  absl::Status Pull();
  absl::Status Shutdown();
  float* Find(float* flat, const std::string& name, size_t* count) const;

  uint64_t item_ = 0;
  std::shared_ptr<float> parameters_;
  std::shared_ptr<float> gradients_;
  std::unique_ptr<ParameterClient> client_;

 private:
  absl::Status BuildLayout(const std::vector<Tensor>& tensors);
  // Hello to shard `s`, again until it answers or `start_wait` is over.
  absl::StatusOr<HelloReply> Hello(size_t s, int64_t deadline_ns);
  absl::Status MakeShards(const std::vector<Tensor>& tensors);
  absl::Status AssignValues(size_t s, const std::vector<Tensor>& tensors);
  absl::Status Join();
  Want NextWant() const;

  const Options options_;
  std::unique_ptr<Transport> transport_;
  std::vector<std::unique_ptr<ShardLink>> links_;
  std::unique_ptr<Layout> layout_;
  Compression compression_;
  Declaration declaration_;
  Sender sender_;
  bool item_open_ = false;
};

absl::Status Client::Impl::Connect() {
  WEIR_RETURN_IF_ERROR(CheckOptions(options_));
  WEIR_ASSIGN_OR_RETURN(compression_, ToCompression(options_));
  WEIR_ASSIGN_OR_RETURN(const TransportChoice choice,
                        ParseTransportChoice(options_.transport));
  transport_ = MakeTransport(choice);
  for (const std::string& address : options_.ps) {
    links_.push_back(transport_->Connect(address));
  }
  const int64_t deadline_ns =
      Clock::Real()->NowNs() +
      static_cast<int64_t>(options_.start_wait_seconds * 1e9);
  for (size_t s = 0; s < links_.size(); ++s) {
    WEIR_RETURN_IF_ERROR(Hello(s, deadline_ns).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<HelloReply> Client::Impl::Hello(size_t s, int64_t deadline_ns) {
  int64_t said_ns = Clock::Real()->NowNs();
  while (true) {
    absl::StatusOr<HelloReply> reply = links_[s]->Hello(kCallTimeout);
    const int64_t now_ns = Clock::Real()->NowNs();
    if (reply.ok() || now_ns >= deadline_ns) {
      return reply;
    }
    if (now_ns - said_ns >= kSayEveryNs) {
      said_ns = now_ns;
      LOG_WARN("waiting for ps {}: {}", s,
               std::string(reply.status().message()));
    }
    std::this_thread::sleep_for(kPollEvery);
  }
}

absl::Status Client::Impl::BuildLayout(const std::vector<Tensor>& tensors) {
  std::vector<VariableSpec> variables;
  declaration_.Clear();
  for (const Tensor& tensor : tensors) {
    VariableSpec variable;
    variable.name = tensor.name;
    variable.shape = tensor.shape;
    variable.init = {InitKind::kUniform, tensor.init_scale};
    if (!tensor.values.empty() &&
        static_cast<int64_t>(tensor.values.size()) != variable.elements()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", tensor.name, "' has ", variable.elements(),
                       " elements and ", tensor.values.size(), " values"));
    }
    *declaration_.add_variable() = VariableToProto(variable);
    variables.push_back(std::move(variable));
  }
  WEIR_ASSIGN_OR_RETURN(
      Layout layout,
      Layout::Create(std::move(variables), static_cast<int>(links_.size()),
                     options_.block_elements));
  layout_ = std::make_unique<Layout>(std::move(layout));
  const size_t elements = static_cast<size_t>(layout_->flat_elements());
  parameters_ = transport_->NewBuffer(elements);
  gradients_ = transport_->NewBuffer(elements);
  if (parameters_ == nullptr || gradients_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", elements, " elements"));
  }

  declaration_.set_job(options_.job);
  declaration_.set_shard_count(static_cast<uint32_t>(links_.size()));
  declaration_.set_block_elements(
      static_cast<uint64_t>(options_.block_elements));
  *declaration_.add_group() = ToGroup(options_.optimizer);
  const uint32_t workers = static_cast<uint32_t>(options_.worker_count);
  switch (options_.mode) {
    case Mode::kAsync:
      declaration_.mutable_update()->mutable_async();
      break;
    case Mode::kSync:
      declaration_.mutable_update()->mutable_sync()->set_contributions(workers);
      break;
    case Mode::kBoundedStaleness:
      declaration_.mutable_update()->mutable_bounded_staleness()->set_bound(
          static_cast<uint32_t>(options_.staleness_bound));
      break;
  }
  declaration_.set_seed(options_.seed);
  declaration_.set_slot_count(workers);
  declaration_.set_out_of_order_bytes(uint64_t{256} << 20);
  return absl::OkStatus();
}

// What a chief does at its start, for shards that are all empty.
absl::Status Client::Impl::MakeShards(const std::vector<Tensor>& tensors) {
  std::random_device random;
  declaration_.set_history((uint64_t{random()} << 32) | random());
  for (size_t s = 0; s < links_.size(); ++s) {
    DeclareRequest request;
    *request.mutable_declaration() = declaration_;
    request.set_shard(static_cast<uint32_t>(s));
    WEIR_RETURN_IF_ERROR(links_[s]->Declare(request, kCallTimeout).status());
  }
  sender_.set_history(declaration_.history());
  for (size_t s = 0; s < links_.size(); ++s) {
    WEIR_RETURN_IF_ERROR(AssignValues(s, tensors));
  }
  return absl::OkStatus();
}

absl::Status Client::Impl::AssignValues(size_t s,
                                        const std::vector<Tensor>& tensors) {
  struct Piece {
    AssignChunk header;
    std::span<const char> bytes;
  };
  std::vector<Piece> pieces;
  for (int b = 0; b < layout_->block_count(static_cast<int>(s)); ++b) {
    for (const Segment& segment : layout_->segments({static_cast<int>(s), b})) {
      const std::vector<float>& values = tensors[segment.variable].values;
      if (values.empty()) {
        continue;
      }
      Piece piece;
      *piece.header.mutable_sender() = sender_;
      piece.header.set_block(static_cast<uint32_t>(b));
      piece.header.set_offset(static_cast<uint32_t>(segment.block_offset));
      piece.bytes = {reinterpret_cast<const char*>(values.data() +
                                                   segment.variable_offset),
                     static_cast<size_t>(segment.count) * sizeof(float)};
      pieces.push_back(std::move(piece));
    }
  }
  if (pieces.empty()) {
    return absl::OkStatus();
  }
  size_t next = 0;
  return links_[s]
      ->Assign(kCallTimeout,
               [&](AssignChunk* header, std::span<const char>* bytes) {
                 if (next == pieces.size()) {
                   return false;
                 }
                 *header = pieces[next].header;
                 *bytes = pieces[next++].bytes;
                 return true;
               })
      .status();
}

absl::Status Client::Impl::Declare(const std::vector<Tensor>& tensors) {
  if (client_ != nullptr) {
    return absl::FailedPreconditionError("the tensors are declared already");
  }
  WEIR_RETURN_IF_ERROR(BuildLayout(tensors));
  sender_.set_job(options_.job);
  sender_.set_layout_fingerprint(layout_->fingerprint());
  if (options_.worker_index == 0) {
    size_t empty = 0;
    for (const auto& link : links_) {
      WEIR_ASSIGN_OR_RETURN(const HelloReply hello, link->Hello(kCallTimeout));
      empty += hello.state() == ACTIVE ? 0 : 1;
    }
    if (empty == links_.size()) {
      WEIR_RETURN_IF_ERROR(MakeShards(tensors));
    } else if (empty > 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          empty, " of ", links_.size(),
          " ps lost their tensors; shut all of them down and start anew"));
    }
  }
  WEIR_RETURN_IF_ERROR(Join());
  ParameterClient::Options client;
  client.transport = transport_.get();
  client.addresses = options_.ps;
  client.layout = layout_.get();
  client.sender = sender_;
  client.parameters = parameters_.get();
  client.gradients = gradients_.get();
  client.compression = compression_;
  client.lost_after = std::chrono::milliseconds(
      static_cast<int64_t>(options_.lost_after_seconds * 1000.0));
  WEIR_ASSIGN_OR_RETURN(client_, ParameterClient::Create(std::move(client)));
  return absl::OkStatus();
}

// Takes this worker's slot on every shard, under the next generation.
absl::Status Client::Impl::Join() {
  const int64_t deadline_ns =
      Clock::Real()->NowNs() +
      static_cast<int64_t>(options_.start_wait_seconds * 1e9);
  const uint32_t slot = static_cast<uint32_t>(options_.worker_index);
  uint32_t generation = 0;
  uint64_t next_item = ~uint64_t{0};
  for (size_t s = 0; s < links_.size(); ++s) {
    HelloReply hello;
    while (true) {
      WEIR_ASSIGN_OR_RETURN(hello, Hello(s, deadline_ns));
      // Worker 0 made them; the others wait until it opened them.
      if (hello.state() == ACTIVE ||
          (options_.worker_index == 0 && hello.state() == LOADED)) {
        break;
      }
      if (Clock::Real()->NowNs() >= deadline_ns) {
        return absl::FailedPreconditionError(absl::StrCat(
            "ps ", s, " (", options_.ps[s],
            ") holds nothing: worker 0 has not declared its tensors"));
      }
      std::this_thread::sleep_for(kPollEvery);
    }
    if (hello.job() != options_.job ||
        hello.layout_fingerprint() != layout_->fingerprint()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "ps ", s, " (", options_.ps[s], ") holds job '", hello.job(),
          "' or other tensors than these; give every worker the same ones"));
    }
    sender_.set_history(hello.history());
    for (const SlotStatus& status : hello.slot()) {
      if (status.slot() == slot) {
        generation = std::max(generation, status.generation());
        next_item = std::min(next_item, status.next_item_min());
      }
    }
  }
  SetSlotsRequest request;
  *request.mutable_sender() = sender_;
  SetSlotsRequest::Slot* const entry = request.add_slot();
  entry->set_slot(slot);
  entry->set_generation(generation + 1);
  for (const auto& link : links_) {
    WEIR_RETURN_IF_ERROR(link->SetSlots(request, kCallTimeout));
  }
  sender_.set_slot(slot);
  sender_.set_generation(generation + 1);
  item_ = next_item == ~uint64_t{0} ? 0 : next_item;
  return absl::OkStatus();
}

Want Client::Impl::NextWant() const {
  Want want;
  want.set_encoding(compression_.pull());
  if (options_.mode == Mode::kSync) {
    // One item a step: the step is the item.
    want.set_version(item_);
    return want;
  }
  want.set_latest(true);
  if (options_.mode == Mode::kBoundedStaleness) {
    want.set_clock(item_);
  }
  return want;
}

absl::Status Client::Impl::Pull() {
  WEIR_RETURN_IF_ERROR(client_->StartPull(NextWant()));
  return client_->WaitPull();
}

absl::Status Client::Impl::Start(const std::vector<std::string>& names,
                                 bool pull) {
  std::vector<int> variables;
  for (const std::string& name : names) {
    const int v = layout_->Find(name);
    if (v < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("no tensor is named '", name, "'"));
    }
    variables.push_back(v);
  }
  for (size_t v = 0; names.empty() && v < layout_->variables().size(); ++v) {
    variables.push_back(static_cast<int>(v));
  }
  ParameterClient::ItemPush item;
  item.item = item_++;
  item.contribution = static_cast<uint32_t>(options_.worker_index);
  if (pull) {
    item.then = NextWant();
  }
  WEIR_RETURN_IF_ERROR(client_->BeginItem(item));
  for (const int v : variables) {
    client_->GradientReady(v);
  }
  item_open_ = true;
  return client_->FinishItem();
}

absl::Status Client::Impl::Wait() {
  if (item_open_) {
    item_open_ = false;
    WEIR_ASSIGN_OR_RETURN(const ParameterClient::ItemResult result,
                          client_->WaitReceipts());
    if (result.bad) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the gradient of '", result.bad_variable, "' has NaN or Inf"));
    }
  }
  return client_->WaitPull();
}

absl::Status Client::Impl::Shutdown() {
  ShutdownRequest request;
  *request.mutable_sender() = sender_;
  for (const auto& link : links_) {
    WEIR_RETURN_IF_ERROR(link->Shutdown(request, kCallTimeout));
  }
  return absl::OkStatus();
}

float* Client::Impl::Find(float* flat, const std::string& name,
                          size_t* count) const {
  const int v = layout_ == nullptr ? -1 : layout_->Find(name);
  if (v < 0) {
    return nullptr;
  }
  *count = static_cast<size_t>(layout_->variables()[v].elements());
  return flat + layout_->flat_begin(v);
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::Client(Client&& other) noexcept = default;
Client& Client::operator=(Client&& other) noexcept = default;
Client::~Client() = default;

Result<Client> Client::Connect(const Options& options) {
  auto impl = std::make_unique<Impl>(options);
  const absl::Status status = impl->Connect();
  if (!status.ok()) {
    return ToStatus(status);
  }
  return Client(std::move(impl));
}

namespace {

Status NotDeclared() {
  return Status(static_cast<int>(absl::StatusCode::kFailedPrecondition),
                "the client is closed or has no tensors: call Declare first");
}

}  // namespace

Status Client::Declare(const std::vector<Tensor>& tensors) {
  return impl_ == nullptr ? NotDeclared() : ToStatus(impl_->Declare(tensors));
}

std::span<const float> Client::Values(const std::string& name) const {
  size_t count = 0;
  const float* const values =
      impl_ == nullptr ? nullptr
                       : impl_->Find(impl_->parameters_.get(), name, &count);
  return {values, count};
}

std::span<float> Client::Gradient(const std::string& name) {
  size_t count = 0;
  float* const values =
      impl_ == nullptr ? nullptr
                       : impl_->Find(impl_->gradients_.get(), name, &count);
  return {values, count};
}

Status Client::Pull() {
  if (impl_ == nullptr || impl_->client_ == nullptr) {
    return NotDeclared();
  }
  return ToStatus(impl_->Pull());
}

Status Client::Push(const std::vector<std::string>& names) {
  if (impl_ == nullptr || impl_->client_ == nullptr) {
    return NotDeclared();
  }
  const absl::Status status = impl_->Start(names, /*pull=*/false);
  return ToStatus(status.ok() ? impl_->Wait() : status);
}

Status Client::PushPull(const std::vector<std::string>& names) {
  const Status status = StartPushPull(names);
  return status.ok() ? Wait() : status;
}

Status Client::StartPushPull(const std::vector<std::string>& names) {
  if (impl_ == nullptr || impl_->client_ == nullptr) {
    return NotDeclared();
  }
  return ToStatus(impl_->Start(names, /*pull=*/true));
}

Status Client::Wait() {
  if (impl_ == nullptr || impl_->client_ == nullptr) {
    return NotDeclared();
  }
  return ToStatus(impl_->Wait());
}

uint64_t Client::pushes() const { return impl_ == nullptr ? 0 : impl_->item_; }

Status Client::ShutdownServers() {
  if (impl_ == nullptr || impl_->client_ == nullptr) {
    return NotDeclared();
  }
  impl_->client_.reset();
  return ToStatus(impl_->Shutdown());
}

void Client::Close() { impl_.reset(); }

}  // namespace weir::sdk
