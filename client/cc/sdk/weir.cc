#include "client/cc/weir.h"

#include <algorithm>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/cc/sdk/session.h"
#include "common/base/status.h"
#include "common/job/cluster_spec.h"
#include "proto/job/tf_config.h"

namespace weir::sdk {
namespace {

Status ToStatus(const absl::Status& status) {
  // Abseil's codes are gRPC's numbers, which the public header promises.
  return Status(static_cast<int>(status.code()), std::string(status.message()));
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
                  "TF_CONFIG, or WEIR_CLUSTER, WEIR_TASK_TYPE and "
                  "WEIR_TASK_INDEX");
  }
  // Another role's index is no rank: it would take the place of a worker.
  if (cluster->task()->role != TaskRole::kWorker) {
    return Status(
        static_cast<int>(absl::StatusCode::kInvalidArgument),
        absl::StrCat("this task is ", cluster->task()->ToString(),
                     " and not a worker: only workers are clients of the ps; "
                     "an evaluator reads checkpoints"));
  }
  ps = cluster->ps_addresses();
  chief.clear();
  if (cluster->has_chief()) {
    chief = cluster->chief_address();
  }
  rank = cluster->task()->index;
  worker_count = std::max(cluster->worker_count(), 1);
  // Read once, before any thread. NOLINTNEXTLINE(concurrency-mt-unsafe)
  if (const char* const choice = std::getenv("WEIR_TRANSPORT")) {
    transport = choice;
  }
  return Status();
}

// The public header must not name Session, whose headers need Abseil.
class Client::Impl : public Session {
 public:
  using Session::Session;
};

namespace {

Status NotDeclared() {
  return Status(static_cast<int>(absl::StatusCode::kFailedPrecondition),
                "the client is closed or has no tensors: call Declare first");
}

// Makes `call` if the session has its tensors. A client that was closed or
// moved from has no session.
template <typename Call>
Status WithTensors(Session* session, const Call& call) {
  if (session == nullptr || !session->declared()) {
    return NotDeclared();
  }
  return ToStatus(call(session));
}

// A whole push. Names are looked up first: nothing has left if one is wrong.
absl::Status Send(Session* session, const std::vector<std::string>& names,
                  const std::vector<RowGradients>& rows, bool pull) {
  WEIR_ASSIGN_OR_RETURN(const std::vector<int> tensors, session->Find(names));
  WEIR_RETURN_IF_ERROR(session->Begin({.pull = pull, .rows = rows}));
  for (const int tensor : tensors) {
    WEIR_RETURN_IF_ERROR(session->Ready(tensor));
  }
  return session->End();
}

}  // namespace

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

Status Client::Declare(const std::vector<Tensor>& tensors,
                       const std::vector<Table>& tables) {
  if (impl_ == nullptr) {
    return NotDeclared();
  }
  return ToStatus(impl_->Declare(tensors, tables));
}

std::span<const float> Client::Values(const std::string& name) const {
  if (impl_ == nullptr) {
    return {};
  }
  return impl_->Values(name);
}

std::span<float> Client::Gradient(const std::string& name) {
  if (impl_ == nullptr) {
    return {};
  }
  return impl_->Gradient(name);
}

std::shared_ptr<const void> Client::Buffers() const {
  return impl_ == nullptr ? nullptr : impl_->Buffers();
}

Status Client::Pull() {
  return WithTensors(impl_.get(), [](Session* s) { return s->Pull(); });
}

Status Client::Push(const std::vector<std::string>& names,
                    const std::vector<RowGradients>& rows) {
  return WithTensors(impl_.get(), [&](Session* s) {
    WEIR_RETURN_IF_ERROR(Send(s, names, rows, /*pull=*/false));
    return s->Wait();
  });
}

Status Client::PushPull(const std::vector<std::string>& names,
                        const std::vector<RowGradients>& rows) {
  const Status status = StartPushPull(names, rows);
  if (!status.ok()) {
    return status;
  }
  return Wait();
}

Status Client::StartPushPull(const std::vector<std::string>& names,
                             const std::vector<RowGradients>& rows) {
  return WithTensors(impl_.get(), [&](Session* s) {
    return Send(s, names, rows, /*pull=*/true);
  });
}

Status Client::Lookup(const std::vector<RowsWanted>& wanted, bool train) {
  return WithTensors(impl_.get(), [&](Session* s) {
    absl::Status status = s->StartLookup(wanted, train);
    if (status.ok()) {
      status = s->WaitLookup();
      // After an error the caller's memory may go, and nobody waits again. If
      // the lookup has ended, this changes nothing.
      s->GiveUpLookup();
    }
    return status;
  });
}

Status Client::StartLookup(const std::vector<RowsWanted>& wanted, bool train) {
  return WithTensors(impl_.get(),
                     [&](Session* s) { return s->StartLookup(wanted, train); });
}

Status Client::WaitLookup() {
  return WithTensors(impl_.get(), [](Session* s) { return s->WaitLookup(); });
}

Status Client::BeginPush(const PushOptions& options) {
  return WithTensors(impl_.get(),
                     [&](Session* s) { return s->Begin(options); });
}

Status Client::Ready(int tensor) {
  return WithTensors(impl_.get(), [&](Session* s) { return s->Ready(tensor); });
}

Status Client::Ready(std::span<const std::pair<int, const float*>> gradients) {
  return WithTensors(impl_.get(),
                     [&](Session* s) { return s->Ready(gradients); });
}

Status Client::PushRows(const std::vector<RowGradients>& rows) {
  return WithTensors(impl_.get(), [&](Session* s) { return s->Rows(rows); });
}

Status Client::EndPush() {
  return WithTensors(impl_.get(), [](Session* s) { return s->End(); });
}

Status Client::Wait() {
  return WithTensors(impl_.get(), [](Session* s) { return s->Wait(); });
}

bool Client::HasValues(int tensor) const {
  return impl_ != nullptr && impl_->declared() && impl_->HasValues(tensor);
}

Status Client::Report(const Metrics& metrics) {
  return WithTensors(impl_.get(),
                     [&](Session* s) { return s->Report(metrics); });
}

uint64_t Client::pushes() const {
  return impl_ == nullptr ? 0 : impl_->pushes();
}

Status Client::Finish() {
  if (impl_ != nullptr && impl_->finishing()) {
    return ToStatus(impl_->Finish());
  }
  return WithTensors(impl_.get(), [](Session* s) { return s->Finish(); });
}

Result<std::vector<ServerStatus>> Client::Servers() {
  if (impl_ == nullptr) {
    return NotDeclared();
  }
  absl::StatusOr<std::vector<ServerStatus>> servers = impl_->Servers();
  if (!servers.ok()) {
    return ToStatus(servers.status());
  }
  return *std::move(servers);
}

Status Client::ShutdownServers() {
  return WithTensors(impl_.get(), [](Session* s) { return s->Shutdown(); });
}

void Client::Close() { impl_.reset(); }

}  // namespace weir::sdk
