// How a worker holds its line to the chief; chief_client_register.cc has how it
// gets one.
#include "client/cc/job/chief_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/logging.h"
#include "common/base/plant.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "common/threads/thread.h"
#include "proto/wire/measures.h"

namespace weir {
namespace {

constexpr std::chrono::seconds kCloseWaitMax{2};
// How long RequestStop lets a contribution finish. One that was cut in the
// middle keeps the job from being saved, but a signal must end the process.
constexpr std::chrono::seconds kLeaveWaitMax{10};
constexpr int64_t kLoadEveryNs = 1'000'000'000;

}  // namespace

absl::Status ChiefClient::Options::Validate() const {
  if (link == nullptr) {
    return absl::InternalError("a client of the chief needs a link");
  }
  if (link->address().empty()) {
    return absl::InvalidArgumentError(
        "no chief address: the cluster names neither a chief nor worker 0");
  }
  if (lost_after.count() < 1 || progress_every.count() < 1 ||
      register_timeout.count() < 1) {
    return absl::InvalidArgumentError("times must be positive");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ChiefClient>> ChiefClient::Create(
    Options options) {
  WEIR_RETURN_IF_ERROR(options.Validate());
  return std::unique_ptr<ChiefClient>(new ChiefClient(std::move(options)));
}

ChiefClient::ChiefClient(Options options)
    : options_(std::move(options)),
      trace_sender_(options_.link.get(), options_.request.rank()) {}

ChiefClient::~ChiefClient() { Close(absl::OkStatus()); }

void ChiefClient::Start(const Grant& grant, std::function<void()> on_stop,
                        std::function<ClientCounters()> counters) {
  grant_ = grant;
  {
    MutexLock lock(&mutex_);
    // Residuals were in the memory of the process that pushed before this one.
    outbox_.Start(
        grant.next_sequence(),
        options_.request.job_spec().compression().push() != F32 &&
            (grant.next_sequence() > 0 || grant.applied_range_size() > 0 ||
             grant.deal_size() > 0));
    // A signal may have come before there was anybody to tell.
    if (stop_.has_value()) {
      on_stop();
    }
    on_stop_ = std::move(on_stop);
    counters_ = std::move(counters);
  }
  thread_ = Thread([this] { Run(); });
}

void ChiefClient::Run() {
  while (true) {
    // I1: the train loop notices nothing of a stream that ends; only holding
    // and reporting stop until the next one.
    const absl::Status status = RunStream();
    {
      MutexLock lock(&mutex_);
      // The chief that asked for a hold may be gone; the next one does not know
      // of it, and nobody would ever release us.
      hold_ = hold_ && Planted("worker.keeps_hold");
      changed_.NotifyAll();
      if (closing_) {
        closed_ = true;
        changed_.NotifyAll();
        return;
      }
      if (status.code() == absl::StatusCode::kPermissionDenied) {
        Stop(status);
      }
      if (stop_.has_value()) {
        // Nobody to report to; Close needs no stream.
        closed_ = true;
        changed_.NotifyAll();
        return;
      }
    }
    LOG_WARN("chief: the heartbeat ended ({}); joining again",
             std::string(status.message()));
    const absl::StatusOr<Grant> grant = RegisterUntilGranted(&grant_, {});
    MutexLock lock(&mutex_);
    if (!grant.ok()) {
      Stop(grant.status());
    } else if (grant->sender().history() != grant_.sender().history() ||
               grant->sender().generation() != grant_.sender().generation()) {
      // I2: what this process computed belongs to a history that is over, or
      // its slot to another process.
      Stop(absl::FailedPreconditionError(
          "the chief restored the job or gave this slot anew; start again"));
    }
    // A restarted chief holds only workers that it has told.
    hold_ = false;
    dirty_ = true;
    changed_.NotifyAll();
    if (!grant.ok()) {
      closed_ = true;
      return;
    }
  }
}

absl::Status ChiefClient::RunStream() {
  const std::unique_ptr<HeartbeatStream> stream = options_.link->NewHeartbeat();
  {
    MutexLock lock(&mutex_);
    stream_ = stream.get();
    stream_ended_ = false;
    dirty_ = true;
    outbox_.OnStreamOpen();  // I3
  }
  stream->Open();
  // Commands come at any time, so another thread reads them. It ends with the
  // stream, and then wakes the one that writes.
  Thread reader([this, &stream] {
    Command command;
    while (stream->Read(&command)) {
      OnCommand(command);
    }
    MutexLock lock(&mutex_);
    stream_ended_ = true;
    changed_.NotifyAll();
  });
  WriteProgress(stream.get());
  reader.join();
  const absl::Status status = stream->Finish();
  MutexLock lock(&mutex_);
  stream_ = nullptr;
  return status;
}

void ChiefClient::WriteProgress(HeartbeatStream* stream) {
  mutex_.Lock();
  while (!stream_ended_) {
    if (!dirty_ && !closing_) {
      changed_.WaitFor(&mutex_, options_.progress_every);
      StopWhenFree();
      if (stream_ended_) {
        break;
      }
    }
    Progress progress = TakeProgress();
    // The last message carries the error and all reports that are left (I3).
    const bool last = closing_ && !dirty_;
    // Write may wait until the chief reads, and ReadDevice asks the driver.
    mutex_.Unlock();
    ReadDevice(&progress);
    const bool written = stream->Write(progress);
    if (written && last) {
      stream->WritesDone();
    }
    mutex_.Lock();
    if (!written || last) {
      break;
    }
  }
  // The chief closes its side when ours is closed; Close cancels otherwise.
  mutex_.Unlock();
}

void ChiefClient::ReadDevice(Progress* progress) {
  const int64_t now_ns = Clock::Real()->NowNs();
  if (options_.read_device == nullptr || !progress->has_phases() ||
      now_ns - device_read_ns_ <
          std::chrono::nanoseconds(options_.read_device_every).count()) {
    return;
  }
  device_read_ns_ = now_ns;
  options_.read_device(progress->mutable_phases());
}

absl::Status ChiefClient::StatusOf(const weir::Stop& stop) {
  if (stop.code() == 0) {
    return absl::OkStatus();
  }
  return absl::Status(static_cast<absl::StatusCode>(stop.code()),
                      Printable(stop.reason(), kPeerMessageBytesMax));
}

void ChiefClient::AddLoad(Progress* progress) {
  if (!counters_) {
    return;
  }
  const ClientCounters counters = counters_();
  progress->set_bytes_moved(counters.bytes());
  const int64_t now_ns = Clock::Real()->NowNs();
  if (now_ns - load_ns_ < kLoadEveryNs) {
    return;
  }
  load_ns_ = now_ns;
  WorkerLoad* const load = progress->mutable_load();
  load->mutable_shard_wait_ns()->Assign(counters.shard_wait_ns.begin(),
                                        counters.shard_wait_ns.end());
  load->mutable_variable_wait_ns()->Assign(counters.variable_wait_ns.begin(),
                                           counters.variable_wait_ns.end());
  if (options_.host != nullptr) {
    *load->mutable_usage() = ToProto(options_.host->Read());
  }
}

Progress ChiefClient::TakeProgress() {
  // I3. The state below is today's, also in a message that is sent again.
  Progress progress = outbox_.Take();
  dirty_ = outbox_.more();
  progress.set_slot(grant_.sender().slot());
  progress.set_generation(grant_.sender().generation());
  progress.set_capability_high(grant_.sender().capability_high());
  progress.set_capability_low(grant_.sender().capability_low());
  // Holding means that nothing is in flight: the chief freezes a checkpoint
  // then.
  progress.set_holding(hold_ && !in_flight_);
  // Not before the last report is on its way: it may end the job.
  progress.set_out_of_work(out_of_work_ && !dirty_);
  progress.set_ending(closing_ || stop_.has_value());
  AddLoad(&progress);
  if (!error_.ok()) {
    progress.set_error(std::string(error_.message()));
    progress.set_error_code(static_cast<uint32_t>(error_.code()));
  }
  return progress;
}

void ChiefClient::OnCommand(const Command& command) {
  if (command.has_trace()) {
    trace_sender_.Obey(command.trace());
    return;
  }
  MutexLock lock(&mutex_);
  switch (command.kind_case()) {
    case Command::kHold:
      hold_ = true;
      dirty_ = true;
      break;
    case Command::kRelease:
      hold_ = false;
      dirty_ = true;
      break;
    case Command::kStop:
      Stop(StatusOf(command.stop()));
      break;
    case Command::kHeard:
      outbox_.OnHeard(command.heard());
      return;  // nobody waits for it
    case Command::kTakeSlot:
      // A worker that stops for another reason must not come back for a slot.
      if (!stop_.has_value() && !leave_.has_value()) {
        slot_to_take_ = SlotOffer{static_cast<int>(command.take_slot()),
                                  command.offer_high(), command.offer_low()};
        Leave(absl::CancelledError(absl::StrCat(
            "the chief gave slot ", command.take_slot(), " to this worker")));
      }
      break;
    case Command::kTrace:
      return;  // obeyed above, without the lock
    case Command::KIND_NOT_SET:
      LOG_WARN("chief: a command of a kind that this version does not know");
      break;
  }
  changed_.NotifyAll();
}

void ChiefClient::Stop(const absl::Status& why) {
  if (stop_.has_value()) {
    return;
  }
  stop_ = why;
  if (why != leave_) {
    slot_to_take_.reset();  // there is another reason now
  }
  changed_.NotifyAll();
  if (on_stop_) {
    on_stop_();
  }
}

void ChiefClient::SetCounters(std::function<ClientCounters()> counters) {
  MutexLock lock(&mutex_);
  counters_ = std::move(counters);
}

void ChiefClient::ForgetCallbacks() {
  MutexLock lock(&mutex_);
  on_stop_ = nullptr;
  counters_ = nullptr;
}

void ChiefClient::RequestStop(const absl::Status& why) {
  MutexLock lock(&mutex_);
  Leave(why);
}

void ChiefClient::Leave(const absl::Status& why) {
  if (!leave_.has_value()) {
    leave_ = why;
    leave_ns_ = Clock::Real()->NowNs() +
                std::chrono::nanoseconds(kLeaveWaitMax).count();
  }
  StopWhenFree();
}

// Called wherever time passes or a contribution ends.
void ChiefClient::StopWhenFree() {
  if (leave_.has_value() &&
      (!in_flight_ || Clock::Real()->NowNs() >= leave_ns_)) {
    Stop(*leave_);
  }
}

std::optional<SlotOffer> ChiefClient::slot_to_take() const {
  MutexLock lock(&mutex_);
  return stop_.has_value() ? slot_to_take_ : std::nullopt;
}

bool ChiefClient::stopping() const {
  MutexLock lock(&mutex_);
  return stop_.has_value();
}

absl::Status ChiefClient::stop_status() const {
  MutexLock lock(&mutex_);
  return stop_.value_or(absl::OkStatus());
}

bool ChiefClient::EnterContribution() {
  while (true) {
    if (const auto entered =
            EnterContributionWithin(std::chrono::seconds(10))) {
      return *entered;
    }
  }
}

std::optional<bool> ChiefClient::EnterContributionWithin(
    std::chrono::milliseconds timeout) {
  const auto deadline = MonotonicClock::now() + timeout;
  MutexLock lock(&mutex_);
  while (hold_ && !stop_.has_value()) {
    const auto now = MonotonicClock::now();
    if (now >= deadline) {
      return std::nullopt;
    }
    changed_.WaitFor(&mutex_, deadline - now);
  }
  // Under the same lock as `hold_`: a hold that comes now finds it in flight.
  in_flight_ = !stop_.has_value();
  return in_flight_;
}

void ChiefClient::AddContribution(uint64_t next_sequence,
                                  const ContributionResult& result) {
  in_flight_ = false;
  StopWhenFree();
  outbox_.AddContribution(next_sequence, result);
  // The chief waits for this worker, so it hears at once.
  if (hold_) {
    dirty_ = true;
    changed_.NotifyAll();
  }
}

void ChiefClient::LeaveContribution(uint64_t next_sequence,
                                    const ContributionResult& result) {
  MutexLock lock(&mutex_);
  AddContribution(next_sequence, result);
}

void ChiefClient::LeaveContribution(uint64_t next_sequence,
                                    const ContributionReport& report,
                                    const ContributionResult& result) {
  MutexLock lock(&mutex_);
  outbox_.AddReport(report);
  AddContribution(next_sequence, result);
  if (report.bad()) {  // the chief may end the job for it
    dirty_ = true;
    changed_.NotifyAll();
  }
}

void ChiefClient::AddPhases(const Phases& phases) {
  MutexLock lock(&mutex_);
  outbox_.AddPhases(phases);
}

void ChiefClient::AddHistograms(ContributionHistograms histograms) {
  MutexLock lock(&mutex_);
  outbox_.AddHistograms(std::move(histograms));
}

void ChiefClient::AddMetrics(const MetricSums& metrics) {
  MutexLock lock(&mutex_);
  outbox_.AddMetrics(metrics);
}

void ChiefClient::OutOfWork() {
  while (!OutOfWorkWithin(std::chrono::seconds(10))) {
  }
}

bool ChiefClient::OutOfWorkWithin(std::chrono::milliseconds timeout) {
  const auto deadline = MonotonicClock::now() + timeout;
  MutexLock lock(&mutex_);
  if (!out_of_work_) {
    out_of_work_ = true;
    dirty_ = true;
    changed_.NotifyAll();
  }
  // I4: the chief says when the job is over, and also if it restarts meanwhile.
  while (!stop_.has_value()) {
    const auto now = MonotonicClock::now();
    if (now >= deadline) {
      return false;
    }
    changed_.WaitFor(&mutex_, deadline - now);
  }
  return true;
}

void ChiefClient::Close(const absl::Status& error) {
  if (!thread_.joinable()) {
    return;
  }
  {
    MutexLock lock(&mutex_);
    error_ = error;
    closing_ = true;
    changed_.NotifyAll();
    const int64_t begin = Clock::Real()->NowNs();
    while (!closed_ && Clock::Real()->NowNs() - begin <
                           std::chrono::nanoseconds(kCloseWaitMax).count()) {
      changed_.WaitFor(&mutex_, std::chrono::milliseconds(100));
    }
    // A chief that hangs must not keep the process from ending.
    if (!closed_ && stream_ != nullptr) {
      stream_->Cancel();
    }
  }
  thread_.join();
}

}  // namespace weir
