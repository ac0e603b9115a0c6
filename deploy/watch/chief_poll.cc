#include "deploy/watch/chief_poll.h"

#include <grpcpp/grpcpp.h>

#include <chrono>

#include "common/base/status.h"
#include "proto/chief.grpc.pb.h"
#include "proto/wire/grpc_channel.h"
#include "proto/wire/grpc_deadline.h"
#include "proto/wire/grpc_status.h"

namespace weir {
namespace {

// A call may hold up the loop that watches the tasks, so it is short.
constexpr std::chrono::milliseconds kTimeout{500};

}  // namespace

struct ChiefPoll::State {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<Chief::Stub> stub;
  ChiefStatus status;
  JobReport report;
};

ChiefPoll::ChiefPoll(const std::string& address, const Security& security)
    : state_(std::make_unique<State>()) {
  state_->channel = grpc::CreateCustomChannel(address, security.ToChief(),
                                              CommonChannelArguments());
  state_->stub = Chief::NewStub(state_->channel);
}

ChiefPoll::~ChiefPoll() = default;

const ChiefStatus& ChiefPoll::Status() {
  Reconnect(state_->channel.get());
  grpc::ClientContext context;
  context.set_deadline(DeadlineAfter(kTimeout));
  ChiefStatus status;
  if (state_->stub->GetStatus(&context, {}, &status).ok()) {
    state_->status = status;
  }
  return state_->status;
}

const JobReport& ChiefPoll::Report() {
  NewReport().status().IgnoreError();
  return state_->report;
}

absl::StatusOr<JobReport> ChiefPoll::NewReport() {
  Reconnect(state_->channel.get());
  grpc::ClientContext context;
  context.set_deadline(DeadlineAfter(kTimeout));
  JobReport report;
  const grpc::Status status = state_->stub->GetReport(&context, {}, &report);
  WEIR_RETURN_IF_ERROR(FromGrpcStatus(status));
  state_->report = report;
  return report;
}

}  // namespace weir
