#include "server/chief/trace_collector.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/status.h"
#include "common/trace/trace.h"

namespace weir {
namespace {

// What keeping a part takes beside its bytes.
constexpr size_t kPlaceBytes = 128;

}  // namespace

absl::StatusOr<TraceReply> TraceCollector::Answer(const TraceRequest& request) {
  TraceRequest own = request;
  own.clear_part();  // its parts are numbered with those of the workers below
  WEIR_ASSIGN_OR_RETURN(TraceReply reply, own_.Answer(own));
  MutexLock lock(&mutex_);
  const bool begins = request.start_ms() > 0 && !request.forget();
  if (request.trace() != 0 &&
      (begins || (request.forget() && request.trace() == trace_))) {
    sent_.clear();  // I1
    told_ = 0;
    trace_ = begins ? request.trace() : 0;
    end_ns_ = clock_->NowNs() + int64_t{request.start_ms()} * 1'000'000;
    return reply;
  }
  if (request.trace() == 0 || request.trace() != trace_) {
    return reply;
  }
  reply.set_workers_told(static_cast<uint32_t>(told_));
  reply.set_workers_heard(static_cast<uint32_t>(HeardCount()));
  if (!reply.ready() || !WorkersAreDone()) {
    reply.set_ready(false);
    reply.set_part_count(0);
  } else {
    const uint32_t own_count = reply.part_count();
    for (const auto& [rank, sent] : sent_) {
      reply.set_part_count(reply.part_count() +
                           static_cast<uint32_t>(sent.parts.size()));
    }
    if (request.has_part() && request.part() < own_count) {
      own.set_part(request.part());
      WEIR_ASSIGN_OR_RETURN(const TraceReply with_part, own_.Answer(own));
      *reply.mutable_part() = with_part.part();
      for (const auto& [rank, sent] : sent_) {
        if (sent.here) {
          reply.mutable_part()->add_also_rank(rank);
        }
      }
      return reply;
    }
    if (request.has_part()) {
      const std::string* const part = WorkersPart(request.part() - own_count);
      if (part != nullptr) {
        WEIR_CHECK(reply.mutable_part()->ParseFromString(*part));
        return reply;
      }
    }
  }
  if (request.has_part()) {
    return Invalid("part ", request.part(), " of ", reply.part_count());
  }
  return reply;
}

TraceOrder TraceCollector::OrderFor(const TraceRequest& request,
                                    size_t workers) {
  MutexLock lock(&mutex_);
  told_ = workers;
  TraceOrder order;
  order.set_trace(request.trace());
  order.set_duration_ms(request.start_ms());
  order.set_events_max(static_cast<uint32_t>(
      std::min(Share() / kTraceEventBytes, kTraceEventsMax)));
  return order;
}

bool TraceCollector::WorkersAreDone() const {
  // I3.
  return HeardCount() >= told_ ||
         clock_->NowNs() >
             end_ns_ + std::chrono::nanoseconds(kTraceLateWait).count();
}

size_t TraceCollector::Share() const {
  return kTraceBytesMax / std::max<size_t>(told_, 1);
}

size_t TraceCollector::HeardCount() const {
  return static_cast<size_t>(
      std::count_if(sent_.begin(), sent_.end(),
                    [](const auto& worker) { return worker.second.heard; }));
}

const std::string* TraceCollector::WorkersPart(uint32_t index) const {
  for (const auto& [rank, sent] : sent_) {
    if (index < sent.parts.size()) {
      return &std::next(sent.parts.begin(), index)->second;
    }
    index -= static_cast<uint32_t>(sent.parts.size());
  }
  return nullptr;
}

absl::StatusOr<PutTraceReply> TraceCollector::Put(
    const PutTraceRequest& request, uint32_t rank) {
  MutexLock lock(&mutex_);
  if (request.trace() == 0 || request.trace() != trace_) {
    return absl::FailedPreconditionError(
        "the chief takes no such trace; it has ended, or another has begun");
  }
  PutTraceReply reply;
  reply.set_same_process(request.process() ==
                         TraceRecorder::Process()->process());
  // Any other call only asks for the time.
  if (reply.same_process() || request.has_part() || request.last()) {
    if (sent_.size() >= told_ && !sent_.contains(rank)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the ", told_, " workers that were told are here"));
    }
    Sent& sent = sent_[rank];
    sent.process = request.process();
    sent.here |= reply.same_process();
    if (request.has_part() && !reply.same_process()) {
      WEIR_RETURN_IF_ERROR(AddPart(request, rank));
    }
    sent.heard |= request.last();
  }
  reply.set_now_ns(clock_->NowNs());
  return reply;
}

absl::Status TraceCollector::AddPart(const PutTraceRequest& request,
                                     uint32_t rank) {
  // Workers that share a process have one recording.
  const bool is_of_another =
      std::any_of(sent_.begin(), sent_.end(), [&](const auto& worker) {
        return worker.first != rank && !worker.second.parts.empty() &&
               worker.second.process == request.process();
      });
  Sent& sent = sent_[rank];
  if (is_of_another || sent.parts.contains(request.part_number())) {
    return absl::OkStatus();
  }
  TracePart part = request.part();
  part.set_rank(rank);  // the worker's own word does not count
  part.clear_also_rank();
  std::string text = part.SerializeAsString();
  const size_t bytes = text.size() + kPlaceBytes;
  if (bytes > Share() - std::min(Share(), sent.bytes)) {  // I2
    return absl::ResourceExhaustedError(
        absl::StrCat("a timeline of more than ", Share(), " bytes"));
  }
  sent.bytes += bytes;
  sent.parts.emplace(request.part_number(), std::move(text));
  return absl::OkStatus();
}

}  // namespace weir
