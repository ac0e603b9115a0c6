#include "server/chief/chief_server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include <memory>
#include <utility>
#include <vector>

#include "common/base/limits.h"
#include "common/base/plant.h"
#include "common/base/status.h"
#include "proto/wire/grpc_channel.h"
#include "proto/wire/grpc_deadline.h"
#include "server/chief/chief_service.h"
#include "server/chief/empty_calls.h"
#include "server/chief/health_service.h"

namespace weir {
namespace {

// A JobSpec and a variable list fit many times over.
constexpr int kMaxMessageBytes = 4 << 20;
// Workers ask in much shorter periods whether the connection is alive, and a
// heartbeat is small, so an answer that takes longer does not come.
constexpr int kKeepaliveTimeoutMs = 10000;
// For the last commands to go out. After it open calls are broken off.
constexpr std::chrono::milliseconds kGrace{500};

}  // namespace

absl::StatusOr<std::unique_ptr<ChiefServer>> ChiefServer::Start(
    Options options) {
  std::unique_ptr<ChiefServer> chief(new ChiefServer());
  if (Planted("chief.sweeps_before_bind")) {
    WEIR_ASSIGN_OR_RETURN(chief->runner_, ChiefRunner::Create(options.runner));
  }
  chief->access_ = std::make_unique<AccessControl>(options.access);
  auto service = std::make_unique<ChiefService>(chief->access_.get());
  ChiefService* const calls = service.get();
  chief->service_ = std::move(service);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  AddServerArguments(&builder);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 2);
  grpc::ResourceQuota quota("weir_chief");
  quota.Resize(kChiefWireBytesMax);
  builder.SetResourceQuota(quota);
  const absl::Status listens =
      chief->access_->Listen(options.address, &builder);
  if (!listens.ok()) {
    return Invalid("the chief ", listens.message(),
                   ": another process has the port, or it is not an address "
                   "of this host");
  }
  std::vector<
      std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
      counters;
  counters.push_back(std::make_unique<EmptyCalls>(chief->access_.get()));
  builder.experimental().SetInterceptorCreators(std::move(counters));
  builder.RegisterService(chief->service_.get());
  chief->health_ = std::make_unique<HealthService>(chief->access_.get());
  builder.RegisterService(chief->health_.get());
  chief->server_ = builder.BuildAndStart();
  if (chief->server_ == nullptr) {
    return Invalid("the chief cannot serve on ", options.address);
  }
  chief->access_->listener()->Start();
  // The port is ours. Only now files and ps may be touched: a second chief at
  // this address has ended above without harm. Calls that came since the start
  // of the server got UNAVAILABLE and come again.
  if (chief->runner_ == nullptr) {
    WEIR_ASSIGN_OR_RETURN(chief->runner_,
                          ChiefRunner::Create(std::move(options.runner)));
  }
  calls->SetRunner(chief->runner_.get());
  return chief;
}

ChiefServer::~ChiefServer() {
  // Before the runner and the service, which the open calls use.
  if (server_ != nullptr) {
    access_->listener()->Stop();
    server_->Shutdown(DeadlineAfter(kGrace));
    server_->Wait();
  }
}

}  // namespace weir
