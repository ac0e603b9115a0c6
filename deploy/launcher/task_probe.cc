#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status.h"
#include "deploy/launcher/task.h"
#include "deploy/launcher/task_door.h"
#include "proto/health.grpc.pb.h"
#include "proto/security/security.h"
#include "proto/task/task_main.h"
#include "proto/wire/grpc_channel.h"
#include "proto/wire/grpc_deadline.h"
#include "proto/wire/grpc_status.h"

namespace weir {
namespace {

// The kubelet gives a probe a second by default; render writes five.
constexpr std::chrono::seconds kPatience{4};

// The address of the own port as this host reaches it.
std::string LocalAddress(const ClusterSpec& cluster) {
  const std::string bound = cluster.bind_address();
  return absl::StrReplaceAll(bound,
                             {{"0.0.0.0:", "127.0.0.1:"}, {"[::]:", "[::1]:"}});
}

absl::Status AskPort(const ClusterSpec& cluster) {
  const TaskId& task = *cluster.task();
  // The own role: a certificate from files says no other.
  WEIR_ASSIGN_OR_RETURN(const auto security,
                        Security::Create(Security::Options::FromEnvironment(),
                                         PeerRoleOf(task.role), task.index));
  const auto credentials =
      task.role == TaskRole::kPs ? security->ToPs() : security->ToChief();
  const auto channel = grpc::CreateCustomChannel(
      LocalAddress(cluster), credentials, CommonChannelArguments());
  const auto stub = grpc::health::v1::Health::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(DeadlineAfter(kPatience));
  context.set_wait_for_ready(false);
  grpc::health::v1::HealthCheckResponse response;
  const absl::Status status =
      FromGrpcStatus(stub->Check(&context, {}, &response));
  if (!status.ok()) {
    return absl::UnavailableError(
        absl::StrCat(task.ToString(), " does not answer at ",
                     LocalAddress(cluster), ": ", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ProbeTask(const OperatorSources& sources) {
  WEIR_ASSIGN_OR_RETURN(const ClusterSpec cluster,
                        IdentityFromOperator(sources));
  WEIR_RETURN_IF_ERROR(KnockAtTask(TaskDoorName(cluster)));
  const bool has_port =
      cluster.task()->role == TaskRole::kPs || cluster.hosts_chief();
  return has_port ? AskPort(cluster) : absl::OkStatus();
}

}  // namespace weir
