#include "deploy/trace/trace_sources.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "proto/chief.grpc.pb.h"
#include "proto/ps.grpc.pb.h"
#include "proto/wire/grpc_channel.h"
#include "proto/wire/grpc_deadline.h"
#include "proto/wire/grpc_status.h"

namespace weir {
namespace {

// Of one call. The first one for parts waits until they are made.
constexpr std::chrono::seconds kTimeout{5};

// Asks by `stub`, which both services have alike.
template <typename Stub>
std::function<absl::StatusOr<TraceReply>(const TraceRequest&)> AskBy(
    std::shared_ptr<grpc::Channel> channel, std::unique_ptr<Stub> stub) {
  return [channel = std::move(channel),
          stub = std::shared_ptr<Stub>(std::move(stub))](
             const TraceRequest& request) -> absl::StatusOr<TraceReply> {
    Reconnect(channel.get());
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(kTimeout));
    TraceReply reply;
    WEIR_RETURN_IF_ERROR(
        FromGrpcStatus(stub->Trace(&context, request, &reply)));
    return reply;
  };
}

}  // namespace

std::vector<TraceSource> MakeTraceSources(const ClusterSpec& cluster,
                                          const Security& security) {
  std::vector<TraceSource> sources;
  if (!cluster.chief_address().empty()) {
    auto channel = grpc::CreateCustomChannel(
        cluster.chief_address(), security.ToChief(), CommonChannelArguments());
    auto stub = Chief::NewStub(channel);
    sources.push_back({"chief", AskBy(channel, std::move(stub))});
  }
  int index = 0;
  for (const std::string& address : cluster.ps_addresses()) {
    auto channel = grpc::CreateCustomChannel(address, security.ToPs(),
                                             CommonChannelArguments());
    auto stub = ParameterServer::NewStub(channel);
    sources.push_back(
        {absl::StrCat("ps ", index++), AskBy(channel, std::move(stub))});
  }
  return sources;
}

}  // namespace weir
