#include "client/cc/job/trace_sender.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/exhausted.h"
#include "common/base/limits.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "common/trace/trace.h"
#include "proto/trace/trace_parts.h"

namespace weir {

TraceSender::~TraceSender() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    changed_.NotifyAll();
    while (running_) {
      link_->CancelPutTrace();  // which may begin a moment later
      changed_.WaitFor(&mutex_, std::chrono::milliseconds(10));
    }
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

void TraceSender::Obey(const TraceOrder& order) {
  {
    MutexLock lock(&mutex_);
    if (running_ || stop_) {  // I1
      return;
    }
    running_ = true;
  }
  if (thread_.joinable()) {
    thread_.join();  // it has ended, or is about to return
  }
  auto thread = StartThread([this, order] { Run(order); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
    return;
  }
  LOG_WARN("trace: {}", thread.status().ToString());
  MutexLock lock(&mutex_);
  running_ = false;
}

void TraceSender::Run(const TraceOrder& order) {
  const absl::Status status = OrExhausted([&] { return Send(order); });
  if (!status.ok()) {
    LOG_WARN("this worker's part of a trace is not sent: {}",
             status.ToString());
  }
  MutexLock lock(&mutex_);
  running_ = false;
  changed_.NotifyAll();
}

absl::Status TraceSender::Send(const TraceOrder& order) {
  TraceRecorder* const recorder = TraceRecorder::Process();
  // The order is the chief's word: longer than a trace may be it cannot bind.
  const auto duration = std::min<std::chrono::milliseconds>(
      std::chrono::milliseconds(order.duration_ms()), kTraceMax);
  WEIR_RETURN_IF_ERROR(
      recorder->Start(order.trace(), duration, order.events_max()));
  if (!WaitForEnd(order)) {
    return absl::CancelledError("the worker ends");
  }
  PutTraceRequest request;
  request.set_trace(order.trace());
  request.set_rank(rank_);
  request.set_process(recorder->process());
  PutTraceReply reply;
  chief_clock_ = ClockOffset();
  for (int i = 0; i < kClockExchanges; ++i) {
    WEIR_RETURN_IF_ERROR(Call(request, &reply));
  }
  if (reply.same_process()) {
    request.set_last(true);
    return Call(request, &reply);
  }
  std::vector<TracePart> parts;
  {
    WEIR_ASSIGN_OR_RETURN(const TraceRecording recording,
                          recorder->Read(order.trace()));
    parts = MakeTraceParts(recording);
  }
  recorder->Forget(order.trace());
  for (size_t i = 0; i < parts.size(); ++i) {
    *request.mutable_part() = std::move(parts[i]);
    // The chief's clock is the reference.
    request.mutable_part()->set_ahead_ns(-chief_clock_.ns());
    request.mutable_part()->set_delay_ns(
        static_cast<uint64_t>(chief_clock_.delay_ns()));
    request.set_part_number(static_cast<uint32_t>(i));
    request.set_last(i + 1 == parts.size());
    WEIR_RETURN_IF_ERROR(Call(request, &reply));
  }
  return absl::OkStatus();
}

bool TraceSender::WaitForEnd(const TraceOrder& order) {
  MutexLock lock(&mutex_);
  while (!stop_ && TraceRecorder::Process()->recording(order.trace())) {
    changed_.WaitFor(&mutex_, std::chrono::milliseconds(50));
  }
  return !stop_;
}

absl::Status TraceSender::Call(const PutTraceRequest& request,
                               PutTraceReply* reply) {
  {
    MutexLock lock(&mutex_);
    if (stop_) {
      return absl::CancelledError("the worker ends");
    }
  }
  const int64_t asked_ns = Clock::Real()->NowNs();
  const absl::Status status = link_->PutTrace(request, kTimeout, reply);
  const int64_t answered_ns = Clock::Real()->NowNs();
  if (status.ok()) {
    chief_clock_.Add(asked_ns, reply->now_ns(), answered_ns);
  }
  return status;
}

}  // namespace weir
