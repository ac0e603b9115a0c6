// Pushes, pulls and lookups of a Session; session_start.cc has how it comes to
// its slot.
#include "client/cc/sdk/session.h"

#include <algorithm>
#include <chrono>

#include "client/cc/sdk/declaration.h"
#include "client/cc/sdk/metrics.h"
#include "client/cc/transport/shm_transport.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "proto/job/push_checks.h"
#include "proto/security/security.h"

namespace weir::sdk {
namespace {

// How long a wait for the chief takes before it asks on_wait.
constexpr std::chrono::milliseconds kLookUpEvery{100};

absl::Status NoTables() {
  return absl::InvalidArgumentError(
      "this job has no tables: name them in Declare");
}

}  // namespace

absl::Status Session::MakeWire() {
  WEIR_ASSIGN_OR_RETURN(const TransportChoice choice,
                        ParseTransportChoice(options_.transport));
  GrpcTransportOptions grpc;
  WEIR_ASSIGN_OR_RETURN(grpc.checksum, ParseChecksumChoice(options_.checksum));
  const auto security = Security::Create(Security::Options::FromEnvironment(),
                                         PeerRole::kWorker, options_.rank);
  WEIR_RETURN_IF_ERROR(security.status());
  if ((*security)->secured()) {
    PreferCheapCiphers();
  }
  grpc.security = *security;
  wire_.transport = MakeTransport(choice, grpc);
  if (!options_.chief.empty()) {
    wire_.chief = MakeGrpcChiefLink(options_.chief, *security);
  }
  return absl::OkStatus();
}

absl::Status Session::Connect() {
  WEIR_RETURN_IF_ERROR(CheckOptions(options_));
  WEIR_ASSIGN_OR_RETURN(compression_, ToCompression(options_));
  if (wire_.transport == nullptr) {
    WEIR_RETURN_IF_ERROR(MakeWire());
  }
  for (const std::string& address : options_.ps) {
    links_.push_back(wire_.transport->Connect(address));
  }
  const int64_t deadline_ns = StartDeadlineNs();
  for (size_t s = 0; s < links_.size(); ++s) {
    WEIR_RETURN_IF_ERROR(Hello(s, deadline_ns, /*active=*/false).status());
  }
  return absl::OkStatus();
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
      memory_, WorkerMemory::Create(
                   std::move(variables), static_cast<int>(links_.size()),
                   options_.block_elements, wire_.transport.get()));
  return absl::OkStatus();
}

absl::Status Session::Declare(const std::vector<Tensor>& tensors,
                              const std::vector<Table>& tables) {
  if (worker_ != nullptr) {
    return absl::FailedPreconditionError("the tensors are declared already");
  }
  WEIR_RETURN_IF_ERROR(BuildLayout(tensors, tables));
  if (options_.chief.empty()) {
    WEIR_RETURN_IF_ERROR(DeclareAlone(tensors));
  } else {
    WEIR_RETURN_IF_ERROR(DeclareWithChief(tensors));
  }
  return CreateWorker();
}

absl::Status Session::CreateWorker() {
  WorkerSession::Options worker;
  worker.transport = wire_.transport.get();
  worker.addresses = options_.ps;
  worker.lost_after = Milliseconds(options_.lost_after_seconds);
  if (options_.keep_waiting || chief_ != nullptr) {
    worker.on_wait = [this] { return OnWait(); };
  }
  worker.layout = &memory_->layout;
  worker.parameters = memory_->parameters.get();
  worker.gradients = memory_->gradients.get();
  worker.compression = compression_;
  worker.tables.assign(declaration_.table().begin(),
                       declaration_.table().end());
  worker.bounded_staleness = options_.mode == Mode::kBoundedStaleness;
  WEIR_ASSIGN_OR_RETURN(worker_, WorkerSession::Create(worker));
  if (worker_->rows() != nullptr) {
    tables_ = std::make_unique<SessionTables>(worker.tables, links_.size(),
                                              worker_->rows());
  }
  if (chief_ != nullptr) {
    chief_->SetCounters(
        [worker = worker_.get()] { return worker->counters(); });
  }
  return absl::OkStatus();
}

std::optional<uint64_t> Session::NextVersion() const {
  if (options_.mode != Mode::kSync) {
    return std::nullopt;
  }
  // A slot brings one contribution a step: its sequence number is the step.
  return base_version_ + sequence_;
}

absl::Status Session::Pull() {
  WEIR_RETURN_IF_ERROR(Wait());
  WEIR_RETURN_IF_ERROR(worker_->blocks()->StartPull(sender_, NextWant()));
  WEIR_RETURN_IF_ERROR(WaitPull());
  values_version_ = NextVersion().value_or(0);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> Session::Find(
    const std::vector<std::string>& names) const {
  std::vector<int> tensors;
  for (const std::string& name : names) {
    tensors.push_back(memory_->layout.Find(name));
    if (tensors.back() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("no tensor is named '", name, "'"));
    }
  }
  for (size_t v = 0; names.empty() && v < memory_->layout.variables().size();
       ++v) {
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
  ContributionPush contribution;
  WEIR_ASSIGN_OR_RETURN(contribution.rates, CheckPush(push));
  WEIR_RETURN_IF_ERROR(
      phases_.Timed(StepPhases::kHold, [this] { return EnterPush(); }));
  contribution.sender = sender_;
  contribution.sequence = sequence_;
  contribution.index_in_step = static_cast<uint32_t>(options_.rank);
  contribution.weight = push.weight;
  contribution.hyper = ToHyper(push.settings);
  // The gradients are for the step of this contribution; what is pulled behind
  // it is of the step after it.
  const std::optional<uint64_t> version = NextVersion();
  ++sequence_;
  pulls_ = push.pull;
  if (push.pull) {
    contribution.then = NextWant();
  }
  const absl::Status status =
      worker_->blocks()->BeginContribution(contribution);
  if (!status.ok()) {
    // Nothing has left, so the number is free, and the chief need not wait for
    // this worker.
    --sequence_;
    if (chief_ != nullptr) {
      chief_->LeaveContribution(sequence_, {});
    }
    return status;
  }
  contribution_state_ = ContributionState::kBegun;
  if (tables_ != nullptr) {
    tables_->Begin(contribution, version);
  }
  if (push.rows.empty()) {
    return absl::OkStatus();  // PushRows may bring them yet
  }
  return Rows(push.rows);
}

absl::StatusOr<std::vector<TableRate>> Session::CheckPush(
    const PushOptions& push) const {
  // A ps refuses the same, but there the push would be lost, and the client.
  WEIR_RETURN_IF_ERROR(CheckWeight(push.weight));
  for (const Hyper& hyper : ToHyper(push.settings)) {
    WEIR_RETURN_IF_ERROR(CheckHyper(declaration_.group(), hyper));
  }
  const std::optional<uint64_t> version = NextVersion();
  if (version.has_value() && *version != values_version_ &&
      !memory_->layout.variables().empty()) {
    // The servers would take it for a repeated one of an earlier step.
    return absl::FailedPreconditionError(absl::StrCat(
        "sync: the values here are of step ", values_version_,
        ", and this push is for step ", *version, ": call Pull before it"));
  }
  if (tables_ != nullptr) {
    WEIR_RETURN_IF_ERROR(tables_->Check(push.rows, version));
    return tables_->Rates(push.tables);
  }
  if (!push.rows.empty() || !push.tables.empty()) {
    return NoTables();
  }
  return std::vector<TableRate>();
}

// Waits in short steps, so that on_wait is called while the chief holds.
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

absl::Status Session::RetireAndWaitForEnd() {
  absl::Status status = RetireSlot();
  while (status.ok() && !chief_->OutOfWorkWithin(kLookUpEvery)) {
    status = OnWait();
  }
  // The job may be done while the answer of a ps is still on its way, or
  // between two looks: each push of this worker had its receipt before.
  if (chief_->stopping()) {
    return chief_->stop_status().ok() ? absl::OkStatus() : OnWait();
  }
  return status;
}

absl::Status Session::CheckReady(int tensor) const {
  if (contribution_state_ != ContributionState::kBegun) {
    return absl::FailedPreconditionError("no push is open: call BeginPush");
  }
  if (tensor < 0 ||
      tensor >= static_cast<int>(memory_->layout.variables().size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", tensor, " of ", memory_->layout.variables().size()));
  }
  return absl::OkStatus();
}

absl::Status Session::Ready(int tensor) {
  WEIR_RETURN_IF_ERROR(CheckReady(tensor));
  worker_->blocks()->GradientReady(tensor);
  return absl::OkStatus();
}

absl::Status Session::Ready(
    std::span<const std::pair<int, const float*>> gradients) {
  // All are checked before the first one leaves.
  for (const auto& [tensor, from] : gradients) {
    WEIR_RETURN_IF_ERROR(CheckReady(tensor));
  }
  worker_->blocks()->GradientsReady(gradients);
  return absl::OkStatus();
}

absl::Status Session::Rows(std::span<const RowGradients> gradients) {
  if (contribution_state_ != ContributionState::kBegun) {
    return absl::FailedPreconditionError("no push is open: call BeginPush");
  }
  if (tables_ == nullptr) {
    return NoTables();
  }
  return tables_->Push(gradients);
}

absl::Status Session::StartLookup(std::span<const RowsWanted> wanted,
                                  bool train) {
  if (tables_ == nullptr) {
    return NoTables();
  }
  return tables_->StartLookup(sender_, NextWant(), train, wanted);
}

absl::Status Session::WaitLookup() {
  if (tables_ == nullptr) {
    return NoTables();
  }
  return tables_->WaitLookup();
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
  // Before what may fail: the blocks are on their way, and Wait must settle
  // them.
  contribution_state_ = ContributionState::kSent;
  WEIR_RETURN_IF_ERROR(worker_->blocks()->FinishContribution());
  if (tables_ == nullptr) {
    return absl::OkStatus();
  }
  return tables_->End();
}

absl::Status Session::Wait() {
  if (contribution_state_ == ContributionState::kBegun) {
    return absl::FailedPreconditionError("a push is open: call EndPush first");
  }
  absl::Status bad;
  if (contribution_state_ == ContributionState::kSent) {
    WEIR_ASSIGN_OR_RETURN(const ContributionResult result,
                          phases_.Timed(StepPhases::kPush, [this] {
                            return worker_->WaitReceipts();
                          }));
    // Only now: a Wait that was cancelled may be called again.
    contribution_state_ = ContributionState::kNone;
    if (result.bad) {
      bad = absl::OutOfRangeError(absl::StrCat(
          "the gradient of '", result.bad_name, "' has NaN or Inf"));
    }
    if (chief_ != nullptr) {
      chief_->AddPhases(phases_.End());
      chief_->LeaveContribution(sequence_, result);
    }
  }
  WEIR_RETURN_IF_ERROR(WaitPull());
  if (std::exchange(pulls_, false)) {
    values_version_ = NextVersion().value_or(0);
  }
  return bad;
}

bool Session::HasValues(int tensor) const {
  return contribution_state_ != ContributionState::kNone && tensor >= 0 &&
         tensor < static_cast<int>(memory_->layout.variables().size()) &&
         worker_->blocks()->HasVariable(tensor);
}

absl::Status Session::Report(const Metrics& metrics) {
  WEIR_ASSIGN_OR_RETURN(const MetricSums sums,
                        ToMetricSums(metrics, &metric_names_));
  // Without a chief nobody writes a curve, and the same program runs as well.
  if (chief_ != nullptr) {
    chief_->AddMetrics(sums);
  }
  return absl::OkStatus();
}

absl::Status Session::WaitPull() {
  return phases_.Timed(StepPhases::kPull,
                       [this] { return worker_->blocks()->WaitPull(); });
}

Session::~Session() { ForgetWorker(); }

void Session::ForgetWorker() {
  if (chief_ != nullptr) {
    chief_->ForgetCallbacks();  // they ask the worker
  }
  worker_.reset();
  tables_.reset();
}

absl::Status Session::Finish() {
  if (!finishing_) {
    WEIR_RETURN_IF_ERROR(Wait());
    // The clients go first: a slot that is retired takes no more contributions.
    ForgetWorker();
  }
  absl::Status end;
  if (chief_ == nullptr) {
    end = RetireSlot();
  } else {
    end = RetireAndWaitForEnd();
  }
  finishing_ = absl::IsCancelled(end);
  if (!finishing_ && chief_ != nullptr) {
    chief_->Close(absl::OkStatus());
    chief_.reset();
  }
  return end;
}

absl::StatusOr<std::vector<ServerStatus>> Session::Servers() {
  std::vector<ServerStatus> result;
  for (size_t s = 0; s < links_.size(); ++s) {
    const absl::StatusOr<PsStatus> status =
        links_[s]->GetStatus({}, kCallTimeout);
    WEIR_RETURN_IF_ERROR(Annotate(status.status(), NameOf(s)));
    result.push_back(ToServerStatus(options_.ps[s], *status));
  }
  return result;
}

absl::Status Session::Shutdown() {
  if (!options_.chief.empty()) {
    return absl::FailedPreconditionError(
        "the chief ends the ps once every worker has finished");
  }
  worker_.reset();
  tables_.reset();
  ShutdownRequest request;
  *request.mutable_sender() = sender_;
  for (const auto& link : links_) {
    WEIR_RETURN_IF_ERROR(link->Shutdown(request, kCallTimeout));
  }
  return absl::OkStatus();
}

std::span<float> Session::Part(std::shared_ptr<float> WorkerMemory::*flat,
                               const std::string& name) const {
  if (memory_ == nullptr) {
    return {};
  }
  const int v = memory_->layout.Find(name);
  if (v < 0) {
    return {};
  }
  return {(memory_.get()->*flat).get() + memory_->layout.flat_begin(v),
          static_cast<size_t>(memory_->layout.variables()[v].elements())};
}

}  // namespace weir::sdk
