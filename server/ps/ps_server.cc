#include "server/ps/ps_server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/malloc_settings.h"
#include "common/base/status.h"
#include "common/threads/thread.h"
#include "common/trace/trace.h"
#include "proto/wire/chunk_codec.h"
#include "proto/wire/grpc_channel.h"
#include "proto/wire/grpc_deadline.h"
#include "server/ps/plan/shard_plan.h"

namespace weir {
namespace {

// More threads than this only take turns.
constexpr int kQueuesMax = 64;
// How late a parked wait may end: little beside its deadline, which is seconds.
constexpr auto kExpirePeriod = std::chrono::milliseconds(50);
constexpr auto kTrimPeriod = std::chrono::seconds(30);

// The why of each value is in docs/design_notes.md, "gRPC settings".
void Configure(const PsServer::Options& options, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder->SetMaxSendMessageSize(kMaxMessageBytes);
  AddServerArguments(builder);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 60000);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 2);
  grpc::ResourceQuota quota("weir_ps");
  quota.Resize(static_cast<size_t>(options.wire_bytes_max));
  builder->SetResourceQuota(quota);
}

}  // namespace

absl::Status PsServer::Options::Validate() const {
  if (queue_count < 1 || queue_count > kQueuesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("queues is ", queue_count, ", not 1 to ", kQueuesMax));
  }
  // Early contributions stay in gRPC's memory. They must not use the quota up,
  // or the one that is awaited could not be received.
  const int64_t least = static_cast<int64_t>(ShardPlan::kOutOfOrderBytesMax) +
                        int64_t{16} * kMaxMessageBytes;
  if (wire_bytes_max < least) {
    return absl::InvalidArgumentError(
        absl::StrCat("wire_bytes_max is ", wire_bytes_max, ", less than ",
                     least, " for early contributions and 16 messages"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PsServer>> PsServer::Create(Options options,
                                                           Store* store) {
  WEIR_RETURN_IF_ERROR(options.Validate());
  std::unique_ptr<PsServer> server(new PsServer(std::move(options), store));
  WEIR_RETURN_IF_ERROR(server->Start());
  return server;
}

PsServer::PsServer(Options options, Store* store)
    : options_(std::move(options)),
      store_(store),
      open_(AccessControl::Options()),
      service_(store, access(), options_.on_shutdown) {
  service_.TellLeaving(options_.leaving);
  service_.TellUsage(options_.host);
}

AccessControl* PsServer::access() {
  return options_.access == nullptr ? &open_ : options_.access;
}

absl::Status PsServer::Start() {
  grpc::ServerBuilder builder;
  Configure(options_, &builder);
  WEIR_RETURN_IF_ERROR(access()->Listen(options_.address, &builder));
  builder.RegisterAsyncGenericService(service_.service());
  for (int i = 0; i < options_.queue_count; ++i) {
    queues_.push_back(
        std::make_unique<CallQueue>(builder.AddCompletionQueue()));
  }
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve on ", options_.address));
  }
  // Before the first Hello can be answered, which names it. Without shared
  // memory clients on this host take gRPC, so a failure is no error.
  if (options_.shared_arena != nullptr) {
    auto shm = ShmService::Create(store_, options_.shared_arena, {});
    if (shm.ok()) {
      shm_service_ = *std::move(shm);
      service_.OfferSharedMemory(shm_service_.get());
    } else {
      LOG_WARN("no shared memory for clients on this host: {}",
               shm.status().ToString());
    }
  }
  for (const auto& queue : queues_) {
    queue->Run();
    service_.TakeCalls(queue.get());
  }
  access()->listener()->Start();
  expire_thread_ = Thread([this] { ExpireLoop(); });
  return absl::OkStatus();
}

void PsServer::ExpireLoop() {
  NameTraceLane("timeouts");
  auto trimmed = MonotonicClock::now();
  for (;;) {
    {
      MutexLock lock(&mutex_);
      if (!stopped_) {
        stopped_changed_.WaitFor(&mutex_, kExpirePeriod);
      }
      if (stopped_) {
        return;
      }
    }
    store_->ExpireWaits();
    if (MonotonicClock::now() - trimmed >= kTrimPeriod) {
      TrimFreedHeap();
      trimmed = MonotonicClock::now();
    }
  }
}

void PsServer::Stop(std::chrono::milliseconds grace) {
  {
    MutexLock lock(&mutex_);
    if (stopped_) {
      return;
    }
    stopped_ = true;
  }
  stopped_changed_.NotifyAll();
  if (expire_thread_.joinable()) {
    expire_thread_.join();
  }
  // No connection comes any more. The queues later: their operations end as the
  // server shuts down. Shared memory last: a Hello on a queue may ask for it.
  if (access()->listener() != nullptr) {
    access()->listener()->Stop();
  }
  if (server_ != nullptr) {
    server_->Shutdown(DeadlineAfter(grace));
  }
  for (const auto& queue : queues_) {
    queue->Stop();
  }
  shm_service_.reset();
}

PsServer::~PsServer() { Stop(std::chrono::milliseconds(0)); }

PsStatus PsServer::Status() {
  GetStatusRequest request;
  request.set_without_declaration(true);
  return service_.Status(request, /*peers=*/true);
}

}  // namespace weir
