// What others ask of a ChiefRunner: every call posts an event to the decision
// thread.
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "server/chief/chief_runner.h"

namespace weir {
namespace {

// A report of a thousand workers takes milliseconds, so whoever asks more often
// gets the same one again.
constexpr int64_t kReportEveryNs = 500'000'000;

// An answer that another thread gives, if it comes in time.
template <typename T>
class Answered {
 public:
  void Set(absl::StatusOr<T> value) {
    MutexLock lock(&mutex_);
    value_ = std::move(value);
    changed_.NotifyAll();
  }
  absl::StatusOr<T> Wait(std::chrono::milliseconds timeout) {
    MutexLock lock(&mutex_);
    if (!value_.has_value()) {
      changed_.WaitFor(&mutex_, timeout);
    }
    if (!value_.has_value()) {
      return absl::DeadlineExceededError("the chief is busy: ask again");
    }
    return *value_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<absl::StatusOr<T>> value_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::optional<absl::Status> ChiefRunner::WaitFor(
    std::chrono::milliseconds timeout) {
  const auto deadline = MonotonicClock::now() + timeout;
  MutexLock lock(&inbox_->mutex);
  while (!inbox_->finished.has_value()) {
    const auto now = MonotonicClock::now();
    if (now >= deadline) {
      return std::nullopt;
    }
    inbox_->changed.WaitFor(&inbox_->mutex, deadline - now);
  }
  return inbox_->finished;
}

absl::Status ChiefRunner::Wait() {
  for (;;) {
    if (const auto status = WaitFor(std::chrono::hours(1))) {
      return *status;
    }
  }
}

void ChiefRunner::RequestStop(const std::string& reason) {
  Post(inbox_, [reason](JobState* state) { state->RequestStop(reason); });
}

absl::Status ChiefRunner::CheckRank(const std::optional<PeerIdentity>& caller,
                                    const RegisterRequest& request) const {
  const Capability offered = {request.offer_high(), request.offer_low()};
  if (!caller.has_value() || !caller->index.has_value() ||
      *caller->index == static_cast<int64_t>(request.rank()) ||
      offered == CapabilityOf(chief_secret_, /*history=*/0, request.rank(),
                              /*generation=*/0)) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(
      absl::StrCat(caller->ToUri(), " may not register as worker ",
                   request.rank(), ": the chief has not offered it that slot"));
}

void ChiefRunner::Register(
    const RegisterRequest& request,
    const std::function<void(absl::StatusOr<RegisterReply>)>& done) {
  const absl::Status posted = PostCall(
      [request, done](JobState* state) { done(state->OnRegister(request)); });
  if (!posted.ok()) {
    done(posted);
  }
}

uint64_t ChiefRunner::OpenStream(std::shared_ptr<HeartbeatSink> sink) {
  const uint64_t id = next_stream_++;
  Post(inbox_,
       [this, id, sink = std::move(sink)](JobState*) { sinks_[id] = sink; });
  return id;
}

void ChiefRunner::OnProgress(uint64_t stream, const Progress& progress,
                             const std::function<void()>& taken) {
  const auto take = [this, stream, progress, taken](JobState* state) {
    if (const auto it = sinks_.find(stream); it != sinks_.end()) {
      const absl::Status status = state->OnProgress(stream, progress);
      // An error ends the stream, and its worker counts as connected no more.
      if (!status.ok()) {
        it->second->End(status);
        sinks_.erase(it);
        state->OnStreamLost(stream);
      }
    }
    taken();
  };
  // Not by PostCall: a heartbeat must not get lost behind calls of others, and
  // a stream has one in the inbox at most.
  if (!Post(inbox_, take)) {
    taken();
  }
}

void ChiefRunner::OnStreamLost(uint64_t stream) {
  Post(inbox_, [this, stream](JobState* state) {
    sinks_.erase(stream);
    state->OnStreamLost(stream);
  });
}

absl::Status ChiefRunner::SendToAll(
    const std::function<Command(size_t streams)>& make) {
  return PostCall([this, make](JobState*) {
    const Command command = make(sinks_.size());
    for (const auto& [id, sink] : sinks_) {
      sink->Send(command);
    }
  });
}

void ChiefRunner::GetStatus(
    const std::function<void(absl::StatusOr<ChiefStatus>)>& done) {
  const absl::Status posted =
      PostCall([done](JobState* state) { done(state->status()); });
  if (!posted.ok()) {
    done(posted);
  }
}

void ChiefRunner::GetReport(
    const std::function<void(absl::StatusOr<SharedReport>)>& done) {
  const absl::Status posted = PostCall([this, done](JobState* state) {
    const int64_t now_ns = options_.clock->NowNs();
    if (report_ == nullptr || now_ns - report_ns_ >= kReportEveryNs) {
      report_ns_ = now_ns;
      report_ = std::make_shared<const JobReport>(state->Report());
    }
    done(report_);
  });
  if (!posted.ok()) {
    done(posted);
  }
}

absl::StatusOr<ChiefRunner::SharedReport> ChiefRunner::WaitForReport(
    std::chrono::milliseconds timeout) {
  const auto answer = std::make_shared<Answered<SharedReport>>();
  GetReport([answer](const absl::StatusOr<SharedReport>& report) {
    answer->Set(report);
  });
  return answer->Wait(timeout);
}

absl::StatusOr<CurveReport> ChiefRunner::WaitForCurve(
    std::chrono::milliseconds timeout) {
  const auto answer = std::make_shared<Answered<CurveReport>>();
  WEIR_RETURN_IF_ERROR(PostCall(
      [answer](JobState* state) { answer->Set(state->CurveOfJob()); }));
  return answer->Wait(timeout);
}

}  // namespace weir
