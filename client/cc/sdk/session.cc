// Long because the start, pushes and lookups share one state.
#include "client/cc/sdk/session.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "client/cc/sdk/declaration.h"
#include "client/cc/transport/shm_transport.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "proto/wire/declaration_io.h"

namespace weir::sdk {
namespace {

constexpr std::chrono::milliseconds kCallTimeout{10000};
constexpr std::chrono::milliseconds kPollEvery{50};
constexpr int64_t kSayEveryNs = 10'000'000'000;
// Of one Register call: a caller that is to wait no longer ends within it.
constexpr std::chrono::milliseconds kRegisterTimeout{500};
constexpr std::chrono::milliseconds kLookUpEvery{100};

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

absl::Status NoTables() {
  return absl::InvalidArgumentError(
      "this job has no tables: name them in Declare");
}

uint64_t RandomId() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

}  // namespace

Session::Session(Options options)
    : options_(std::move(options)), process_(RandomId()) {}

absl::Status Session::Connect() {
  WEIR_RETURN_IF_ERROR(CheckOptions(options_));
  WEIR_ASSIGN_OR_RETURN(compression_, ToCompression(options_));
  WEIR_ASSIGN_OR_RETURN(const TransportChoice choice,
                        ParseTransportChoice(options_.transport));
  GrpcTransportOptions grpc;
  WEIR_ASSIGN_OR_RETURN(grpc.checksum, ParseChecksumChoice(options_.checksum));
  transport_ = MakeTransport(choice, grpc);
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

absl::Status Session::OnWait() const {
  if (options_.keep_waiting && !options_.keep_waiting()) {
    return absl::CancelledError("the wait was ended");
  }
  if (chief_ == nullptr || !chief_->stopping()) {
    return absl::OkStatus();
  }
  const absl::Status why = chief_->stop_status();
  if (why.code() == absl::StatusCode::kPermissionDenied) {
    return why;
  }
  return absl::AbortedError(
      absl::StrCat("the job is over for this worker: ",
                   why.ok() ? "every worker has finished" : why.message()));
}

absl::Status Session::Rest() const {
  WEIR_RETURN_IF_ERROR(OnWait());
  std::this_thread::sleep_for(kPollEvery);
  return absl::OkStatus();
}

absl::StatusOr<HelloReply> Session::Hello(size_t s, int64_t deadline_ns) {
  const int64_t begin_ns = Clock::Real()->NowNs();
  int64_t said_ns = begin_ns;
  while (true) {
    absl::StatusOr<HelloReply> reply = links_[s]->Hello(kCallTimeout);
    const int64_t now_ns = Clock::Real()->NowNs();
    if (reply.ok()) {
      return reply;
    }
    if (now_ns >= deadline_ns) {
      return absl::Status(reply.status().code(),
                          absl::StrCat(NameOf(s), " did not answer for ",
                                       (now_ns - begin_ns) / 1'000'000'000,
                                       " s: ", reply.status().message()));
    }
    if (now_ns - said_ns >= kSayEveryNs) {
      said_ns = now_ns;
      LOG_WARN("waiting for {}: {}", NameOf(s),
               std::string(reply.status().message()));
    }
    WEIR_RETURN_IF_ERROR(Rest());
  }
}

absl::Status Session::BuildLayout(const std::vector<Tensor>& tensors,
                                  const std::vector<Table>& tables) {
  if (tensors.empty() && tables.empty()) {
    return absl::InvalidArgumentError("neither a tensor nor a table is given");
  }
  WEIR_ASSIGN_OR_RETURN(std::vector<VariableSpec> variables,
                        ToVariables(options_, tensors));
  declaration_ = ToDeclaration(options_, variables);
  WEIR_RETURN_IF_ERROR(AddTables(tables, &declaration_));
  WEIR_ASSIGN_OR_RETURN(
      Layout layout,
      Layout::Create(std::move(variables), static_cast<int>(links_.size()),
                     options_.block_elements));
  layout_ = std::make_unique<Layout>(std::move(layout));
  const size_t elements = static_cast<size_t>(layout_->flat_elements());
  // Nobody else reads or writes the values: a transport copies them in.
  parameters_ = NewPrivateBuffer(elements);
  gradients_ = transport_->NewBuffer(elements);
  if (parameters_ == nullptr || gradients_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", elements, " elements"));
  }
  return absl::OkStatus();
}

// What a chief does at its start, for shards that are all empty.
absl::Status Session::MakeShards(const std::vector<Tensor>& tensors) {
  declaration_.set_history(RandomId());
  const StartCalls calls = Calls();
  for (size_t s = 0; s < links_.size(); ++s) {
    WEIR_RETURN_IF_ERROR(DeclareShard(
        calls, s, declaration_,
        std::chrono::milliseconds(
            static_cast<int64_t>(options_.start_wait_seconds * 1000.0))));
  }
  sender_.set_history(declaration_.history());
  for (size_t s = 0; s < links_.size(); ++s) {
    WEIR_RETURN_IF_ERROR(AssignValues(s, sender_, tensors));
  }
  return absl::OkStatus();
}

absl::Status Session::AssignValues(size_t s, const Sender& sender,
                                   const std::vector<Tensor>& tensors) {
  std::vector<AssignPiece> pieces;
  for (int b = 0; b < layout_->block_count(static_cast<int>(s)); ++b) {
    for (const Segment& segment : layout_->segments({static_cast<int>(s), b})) {
      const std::vector<float>& values = tensors[segment.variable].values;
      if (values.empty()) {
        continue;
      }
      AssignPiece piece;
      *piece.header.mutable_sender() = sender;
      piece.header.set_block(static_cast<uint32_t>(b));
      piece.header.set_offset(static_cast<uint32_t>(segment.block_offset));
      piece.bytes = {reinterpret_cast<const char*>(values.data() +
                                                   segment.variable_offset),
                     static_cast<size_t>(segment.count) * sizeof(float)};
      pieces.push_back(std::move(piece));
    }
  }
  return AssignPieces(Calls(), s, pieces);
}

StartCalls Session::Calls() const {
  StartCalls calls;
  calls.links = &links_;
  for (size_t s = 0; s < links_.size(); ++s) {
    calls.names.push_back(NameOf(s));
  }
  calls.call_timeout = kCallTimeout;
  calls.on_wait = [this] { return OnWait(); };
  return calls;
}

absl::Status Session::Declare(const std::vector<Tensor>& tensors,
                              const std::vector<Table>& tables) {
  if (client_ != nullptr) {
    return absl::FailedPreconditionError("the tensors are declared already");
  }
  WEIR_RETURN_IF_ERROR(BuildLayout(tensors, tables));
  WEIR_RETURN_IF_ERROR(options_.chief.empty() ? DeclareAlone(tensors)
                                              : DeclareWithChief(tensors));
  return CreateClient();
}

absl::Status Session::DeclareAlone(const std::vector<Tensor>& tensors) {
  sender_.Clear();
  sender_.set_job(options_.job);
  sender_.set_layout_fingerprint(layout_->fingerprint());
  if (options_.rank == 0) {
    std::vector<HelloReply> hellos;
    for (const auto& link : links_) {
      WEIR_ASSIGN_OR_RETURN(hellos.emplace_back(), link->Hello(kCallTimeout));
    }
    WEIR_ASSIGN_OR_RETURN(const bool make, MustMakeShards(hellos));
    if (make) {
      WEIR_RETURN_IF_ERROR(MakeShards(tensors));
    }
  }
  return Join();
}

absl::Status Session::DeclareWithChief(const std::vector<Tensor>& tensors) {
  ChiefClient::Options options;
  options.address = options_.chief;
  options.register_timeout = kRegisterTimeout;
  options.lost_after = std::chrono::milliseconds(
      static_cast<int64_t>(options_.start_wait_seconds * 1000.0));
  options.request.set_rank(static_cast<uint32_t>(options_.rank));
  options.request.set_process(process_);
  options.request.set_host(HostName());
  *options.request.mutable_declaration() = declaration_;
  WEIR_ASSIGN_OR_RETURN(auto chief, ChiefClient::Create(std::move(options)));
  ChiefClient::Joining joining;
  joining.assign = [&](const Sender& sender) -> absl::Status {
    for (size_t s = 0; s < links_.size(); ++s) {
      WEIR_RETURN_IF_ERROR(AssignValues(s, sender, tensors));
    }
    return absl::OkStatus();
  };
  joining.on_wait = [this] { return OnWait(); };
  const absl::StatusOr<Grant> granted = chief->Register(joining);
  if (!granted.ok() && chief->stopping()) {
    const absl::Status why = chief->stop_status();
    return absl::AbortedError(
        absl::StrCat("the job is over: ",
                     why.ok() ? "every worker has finished" : why.message()));
  }
  if (absl::IsFailedPrecondition(granted.status())) {
    return absl::AbortedError(granted.status().message());
  }
  WEIR_RETURN_IF_ERROR(granted.status());
  const Grant& grant = *granted;
  sender_ = grant.sender();
  for (size_t s = 0; s < links_.size(); ++s) {
    WEIR_ASSIGN_OR_RETURN(const HelloReply hello,
                          links_[s]->Hello(kCallTimeout));
    WEIR_RETURN_IF_ERROR(CheckDeclared(s, hello));
  }
  sequence_ = grant.next_sequence();
  pushes_before_ = grant.pushes_before();
  base_version_ = grant.base_version();
  chief_ = std::move(chief);
  // Calls that wait look at it themselves.
  chief_->Start(grant, [] {});
  return absl::OkStatus();
}

absl::Status Session::CreateClient() {
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
  if (options_.keep_waiting || chief_ != nullptr) {
    client.on_wait = [this] { return OnWait(); };
  }
  if (declaration_.table_size() > 0) {
    TableClient::Options tables;
    tables.transport = transport_.get();
    tables.addresses = options_.ps;
    tables.tables.assign(declaration_.table().begin(),
                         declaration_.table().end());
    tables.sender = sender_;
    tables.lost_after = client.lost_after;
    tables.on_wait = client.on_wait;
    WEIR_ASSIGN_OR_RETURN(tables_, SessionTables::Create(std::move(tables)));
  }
  WEIR_ASSIGN_OR_RETURN(client_, ParameterClient::Create(std::move(client)));
  return absl::OkStatus();
}

absl::StatusOr<HelloReply> Session::WaitUntilActive(size_t s,
                                                    int64_t deadline_ns) {
  while (true) {
    WEIR_ASSIGN_OR_RETURN(const HelloReply hello, Hello(s, deadline_ns));
    // Worker 0 made them; the others wait until it opened them.
    if (hello.state() == ACTIVE ||
        (options_.rank == 0 && hello.state() == LOADED)) {
      return hello;
    }
    if (Clock::Real()->NowNs() >= deadline_ns) {
      return absl::UnavailableError(absl::StrCat(
          NameOf(s), " holds nothing: worker 0 has not declared its tensors"));
    }
    WEIR_RETURN_IF_ERROR(Rest());
  }
}

absl::Status Session::CheckDeclared(size_t s, const HelloReply& hello) const {
  if (hello.job() != options_.job) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(s), " holds job '", hello.job(), "', this is '",
                     options_.job, "'; start other ps for it"));
  }
  if (hello.shard() != s) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(s), " holds shard ", hello.shard(),
                     ": name the ps in the same order everywhere"));
  }
  WEIR_ASSIGN_OR_RETURN(const PsStatus status,
                        links_[s]->GetStatus(kCallTimeout, 0));
  const std::string difference =
      FirstDeclarationDifference(status.declaration(), declaration_);
  if (!difference.empty()) {
    return absl::AlreadyExistsError(
        absl::StrCat(difference, "; every worker must declare the same"));
  }
  if (hello.layout_fingerprint() != layout_->fingerprint()) {
    return absl::InternalError(absl::StrCat(
        NameOf(s), " computed another layout: its version of Weir differs"));
  }
  return absl::OkStatus();
}

// Takes this worker's slot on every shard, under the next generation.
absl::Status Session::Join() {
  const int64_t deadline_ns =
      Clock::Real()->NowNs() +
      static_cast<int64_t>(options_.start_wait_seconds * 1e9);
  for (size_t s = 0; s < links_.size(); ++s) {
    WEIR_ASSIGN_OR_RETURN(const HelloReply hello,
                          WaitUntilActive(s, deadline_ns));
    WEIR_RETURN_IF_ERROR(CheckDeclared(s, hello));
    sender_.set_history(hello.history());
  }
  const uint32_t slot = static_cast<uint32_t>(options_.rank);
  WEIR_ASSIGN_OR_RETURN(const TakenSlot taken,
                        TakeSlot(Calls(), sender_, slot, process_));
  sender_.set_slot(slot);
  sender_.set_generation(taken.generation);
  sequence_ = taken.next_sequence;
  return absl::OkStatus();
}

absl::Status Session::RetireSlot() {
  SetSlotsRequest request;
  *request.mutable_sender() = sender_;
  SetSlotsRequest::Slot* const entry = request.add_slot();
  entry->set_slot(static_cast<uint32_t>(options_.rank));
  entry->set_generation(sender_.generation());
  entry->set_retired(true);
  entry->set_process(process_);
  for (const auto& link : links_) {
    WEIR_RETURN_IF_ERROR(link->SetSlots(request, kCallTimeout));
  }
  return absl::OkStatus();
}

std::optional<uint64_t> Session::NextVersion() const {
  // A slot brings one contribution a step: its sequence number is the step.
  return options_.mode == Mode::kSync
             ? std::optional<uint64_t>(base_version_ + sequence_)
             : std::nullopt;
}

Want Session::NextWant() const {
  Want want;
  want.set_encoding(compression_.pull());
  if (const auto version = NextVersion(); version.has_value()) {
    want.set_version(*version);
    return want;
  }
  want.set_latest(true);
  if (options_.mode == Mode::kBoundedStaleness) {
    want.set_clock(sequence_);
  }
  return want;
}

absl::Status Session::Pull() {
  WEIR_RETURN_IF_ERROR(Wait());
  WEIR_RETURN_IF_ERROR(client_->StartPull(NextWant()));
  return client_->WaitPull();
}

absl::StatusOr<std::vector<int>> Session::Find(
    const std::vector<std::string>& names) const {
  std::vector<int> tensors;
  for (const std::string& name : names) {
    tensors.push_back(layout_->Find(name));
    if (tensors.back() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("no tensor is named '", name, "'"));
    }
  }
  for (size_t v = 0; names.empty() && v < layout_->variables().size(); ++v) {
    tensors.push_back(static_cast<int>(v));
  }
  return tensors;
}

absl::Status Session::Begin(const PushOptions& push) {
  if (contribution_state_ == ContributionState::kBegun) {
    return absl::FailedPreconditionError(
        "a push is open: call EndPush and Wait first");
  }
  // Ends what may still be under way, then nothing moves sequence_.
  WEIR_RETURN_IF_ERROR(Wait());
  WEIR_ASSIGN_OR_RETURN(std::vector<TableRate> rates, CheckPush(push));
  WEIR_RETURN_IF_ERROR(EnterPush());
  ParameterClient::ContributionPush contribution;
  contribution.sequence = sequence_;
  contribution.index_in_step = static_cast<uint32_t>(options_.rank);
  contribution.weight = push.weight;
  contribution.hyper = ToHyper(push.settings);
  const std::optional<uint64_t> version = NextVersion();
  ++sequence_;
  if (push.pull) {
    contribution.then = NextWant();
  }
  const absl::Status status = client_->BeginContribution(contribution);
  if (!status.ok()) {
    --sequence_;
    if (chief_ != nullptr) {
      chief_->LeaveContribution(sequence_, {});
    }
    return status;
  }
  contribution_state_ = ContributionState::kBegun;
  if (tables_ != nullptr) {
    tables_->Begin({.sequence = contribution.sequence,
                    .index_in_step = contribution.index_in_step,
                    .weight = contribution.weight,
                    .versions = {},
                    .rates = std::move(rates)},
                   version);
  }
  return push.rows.empty() ? absl::OkStatus() : Rows(push.rows);
}

absl::StatusOr<std::vector<TableRate>> Session::CheckPush(
    const PushOptions& push) const {
  for (const GroupSettings& settings : push.settings) {
    if (settings.group < 0 ||
        settings.group >= static_cast<int>(options_.groups.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("settings of group ", settings.group, "; there are ",
                       options_.groups.size()));
    }
  }
  if (tables_ != nullptr) {
    WEIR_RETURN_IF_ERROR(tables_->Check(push.rows, NextVersion()));
    return tables_->Rates(push.tables);
  }
  if (!push.rows.empty() || !push.tables.empty()) {
    return NoTables();
  }
  return std::vector<TableRate>();
}

absl::Status Session::EnterPush() {
  while (chief_ != nullptr) {
    const auto entered = chief_->EnterContributionWithin(kLookUpEvery);
    if (entered.has_value() && *entered) {
      break;
    }
    WEIR_RETURN_IF_ERROR(OnWait());
  }
  return absl::OkStatus();
}

absl::Status Session::CheckReady(int tensor) const {
  if (contribution_state_ != ContributionState::kBegun) {
    return absl::FailedPreconditionError("no push is open: call BeginPush");
  }
  if (tensor < 0 || tensor >= static_cast<int>(layout_->variables().size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", tensor, " of ", layout_->variables().size()));
  }
  return absl::OkStatus();
}

absl::Status Session::Ready(int tensor) {
  WEIR_RETURN_IF_ERROR(CheckReady(tensor));
  client_->GradientReady(tensor);
  return absl::OkStatus();
}

absl::Status Session::Ready(
    std::span<const std::pair<int, const float*>> gradients) {
  for (const auto& [tensor, from] : gradients) {
    WEIR_RETURN_IF_ERROR(CheckReady(tensor));
  }
  client_->GradientsReady(gradients);
  return absl::OkStatus();
}

absl::Status Session::Rows(std::span<const RowGradients> gradients) {
  if (contribution_state_ != ContributionState::kBegun) {
    return absl::FailedPreconditionError("no push is open: call BeginPush");
  }
  return tables_ == nullptr ? NoTables() : tables_->Push(gradients);
}

absl::Status Session::StartLookup(std::span<const RowsWanted> wanted,
                                  bool train) {
  return tables_ == nullptr ? NoTables()
                            : tables_->StartLookup(NextWant(), train, wanted);
}

absl::Status Session::WaitLookup() {
  return tables_ == nullptr ? NoTables() : tables_->WaitLookup();
}

void Session::GiveUpLookup() {
  if (tables_ != nullptr) {
    tables_->GiveUpLookup();
  }
}

absl::Status Session::End() {
  if (contribution_state_ != ContributionState::kBegun) {
    return absl::FailedPreconditionError("no push is open: call BeginPush");
  }
  contribution_state_ = ContributionState::kSent;
  const absl::Status status = client_->FinishContribution();
  return status.ok() && tables_ != nullptr ? tables_->End() : status;
}

absl::Status Session::Wait() {
  if (contribution_state_ == ContributionState::kBegun) {
    return absl::FailedPreconditionError("a push is open: call EndPush first");
  }
  absl::Status bad;
  if (contribution_state_ == ContributionState::kSent) {
    WEIR_ASSIGN_OR_RETURN(ParameterClient::ContributionResult result,
                          client_->WaitReceipts());
    TableClient::ContributionResult rows;
    if (tables_ != nullptr) {
      WEIR_ASSIGN_OR_RETURN(rows, tables_->Wait());
    }
    contribution_state_ = ContributionState::kNone;
    if (rows.bad) {
      bad = absl::OutOfRangeError(absl::StrCat(
          "a gradient of table '", rows.bad_table, "' has NaN or Inf"));
    }
    if (result.bad) {
      bad = absl::OutOfRangeError(absl::StrCat(
          "the gradient of '", result.bad_variable, "' has NaN or Inf"));
    }
    result.bad = !bad.ok();
    if (chief_ != nullptr) {
      chief_->LeaveContribution(sequence_, result);
    }
  }
  WEIR_RETURN_IF_ERROR(client_->WaitPull());
  return bad;
}

absl::Status Session::Finish() {
  WEIR_RETURN_IF_ERROR(Wait());
  client_.reset();
  tables_.reset();
  WEIR_RETURN_IF_ERROR(RetireSlot());
  if (chief_ != nullptr) {
    // Should it not hear of this, it sees that the slot is retired.
    chief_->CloseFinished();
    chief_.reset();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ServerStatus>> Session::Servers() {
  std::vector<ServerStatus> result;
  for (size_t s = 0; s < links_.size(); ++s) {
    const absl::StatusOr<PsStatus> status =
        links_[s]->GetStatus(kCallTimeout, 0);
    if (!status.ok()) {
      return absl::Status(
          status.status().code(),
          absl::StrCat(NameOf(s), ": ", status.status().message()));
    }
    result.push_back(ToServerStatus(options_.ps[s], *status));
  }
  return result;
}

absl::Status Session::Shutdown() {
  if (!options_.chief.empty()) {
    return absl::FailedPreconditionError(
        "the chief ends the ps once every worker has finished");
  }
  client_.reset();
  tables_.reset();
  ShutdownRequest request;
  *request.mutable_sender() = sender_;
  for (const auto& link : links_) {
    WEIR_RETURN_IF_ERROR(link->Shutdown(request, kCallTimeout));
  }
  return absl::OkStatus();
}

std::span<float> Session::Part(float* flat, const std::string& name) const {
  const int v = layout_ == nullptr ? -1 : layout_->Find(name);
  if (v < 0) {
    return {};
  }
  return {flat + layout_->flat_begin(v),
          static_cast<size_t>(layout_->variables()[v].elements())};
}

}  // namespace weir::sdk
