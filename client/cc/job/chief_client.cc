#include "client/cc/job/chief_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/plant.h"
#include "common/base/status.h"
#include "proto/wire/grpc_channel.h"
#include "proto/wire/grpc_deadline.h"
#include "proto/wire/grpc_status.h"
#include "proto/wire/wire_version.h"

namespace weir {
namespace {

constexpr std::chrono::milliseconds kBackoffMin{100};
constexpr std::chrono::milliseconds kBackoffMax{1000};
constexpr std::chrono::seconds kCloseWaitMax{2};
// A contribution that was cut in the middle keeps the job from being saved.
constexpr std::chrono::seconds kLeaveWaitMax{10};
constexpr int64_t kSayEveryNs = 10'000'000'000;
// How long a chief is away before DONE is looked for: a restart takes less.
constexpr int64_t kLookForDoneNs = 5'000'000'000;
// Far below what the chief takes in one message (4 MiB).
constexpr int kReportsPerMessageMax = 10000;
// A chief that is there acknowledges at once; beyond it reports wait.
constexpr size_t kUnheardMax = 64;

absl::Status StatusOf(const Stop& stop) {
  return stop.code() == 0
             ? absl::OkStatus()
             : absl::Status(static_cast<absl::StatusCode>(stop.code()),
                            stop.reason());
}

// Whether a message that is lost would take something along.
bool Tells(const Progress& progress) {
  return progress.report_size() > 0 || progress.has_phases() ||
         progress.staleness_count() > 0 || progress.bytes_pushed() > 0 ||
         progress.bytes_pulled() > 0 || progress.residuals_lost();
}

bool IsAway(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable ||
         code == absl::StatusCode::kDeadlineExceeded ||
         code == absl::StatusCode::kCancelled ||
         code == absl::StatusCode::kUnknown ||
         code == absl::StatusCode::kResourceExhausted;
}

}  // namespace

absl::Status ChiefClient::Options::Validate() const {
  if (address.empty()) {
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
      stub_(Chief::NewStub(grpc::CreateCustomChannel(
          options_.address, grpc::InsecureChannelCredentials(),
          CommonChannelArguments()))) {}

ChiefClient::~ChiefClient() { Close(absl::OkStatus()); }

absl::StatusOr<Grant> ChiefClient::Register(const Joining& joining) {
  return RegisterUntilGranted(nullptr, joining);
}

absl::Status ChiefClient::CallRegister(const RegisterRequest& request,
                                       RegisterReply* reply) {
  grpc::ClientContext context;
  // A call that waits keeps the channel connecting; between calls gRPC looks
  // at an idle channel only every 5 seconds.
  context.set_wait_for_ready(true);
  context.set_deadline(DeadlineAfter(options_.register_timeout));
  WEIR_RETURN_IF_ERROR(
      FromGrpcStatus(stub_->Register(&context, request, reply)));
  return CheckWireVersion("the chief", reply->wire_version());
}

absl::StatusOr<Grant> ChiefClient::RegisterUntilGranted(
    const Grant* held, const Joining& joining) {
  RegisterRequest request = options_.request;
  request.set_wire_version(kWireVersion);
  if (held != nullptr) {
    request.set_held_history(held->sender().history());
    request.set_held_generation(held->sender().generation());
  }
  const int64_t lost_ns = std::chrono::nanoseconds(options_.lost_after).count();
  int64_t heard_ns = Clock::Real()->NowNs();
  std::chrono::milliseconds pause = kBackoffMin;
  std::string waiting_for;
  int64_t said_ns = heard_ns;
  while (true) {
    RegisterReply reply;
    const absl::Status status = CallRegister(request, &reply);
    if (status.ok() && reply.has_grant()) {
      return reply.grant();
    }
    if (status.ok() && reply.has_assign() && joining.assign) {
      WEIR_RETURN_IF_ERROR(joining.assign(reply.assign()));
      request.set_assigned_history(reply.assign().history());
      continue;
    }
    if (status.ok() && reply.has_over()) {
      return StopRegistering(StatusOf(reply.over()));
    }
    if (joining.on_wait) {
      WEIR_RETURN_IF_ERROR(joining.on_wait());
    }
    if (status.ok()) {
      heard_ns = Clock::Real()->NowNs();
      pause = std::clamp(std::chrono::milliseconds(reply.wait().retry_ms()),
                         std::chrono::milliseconds(10), kBackoffMax);
      if (reply.wait().reason() != waiting_for) {
        waiting_for = reply.wait().reason();
        LOG_INFO("chief: {}", waiting_for);
      }
    } else if (!IsAway(status.code())) {
      return Annotate(status, absl::StrCat("chief (", options_.address, ")"));
    } else if (options_.job_is_done &&
               Clock::Real()->NowNs() - heard_ns >= kLookForDoneNs &&
               options_.job_is_done()) {
      LOG_INFO("the chief ({}) is away, and the job is done", options_.address);
      return StopRegistering(absl::OkStatus());
    } else if (Clock::Real()->NowNs() - heard_ns >= lost_ns) {
      return absl::FailedPreconditionError(absl::StrCat(
          "chief (", options_.address, ") unreachable for ",
          std::chrono::duration<double>(options_.lost_after).count(),
          " s: ", status.message()));
    } else {
      pause = std::min(pause * 2, kBackoffMax);
      if (Clock::Real()->NowNs() - said_ns >= kSayEveryNs) {
        said_ns = Clock::Real()->NowNs();
        LOG_WARN("waiting for the chief ({}): {}", options_.address,
                 std::string(status.message()));
      }
    }
    MutexLock lock(&mutex_);
    changed_.WaitFor(&mutex_, pause);
    StopWhenFree();
    if (stop_.has_value() || closing_) {
      return stop_.has_value() && !stop_->ok()
                 ? *stop_
                 : absl::CancelledError("the worker is stopping");
    }
  }
}

void ChiefClient::Start(const Grant& grant, std::function<void()> on_stop,
                        std::function<uint64_t()> moved) {
  grant_ = grant;
  {
    MutexLock lock(&mutex_);
    next_sequence_ = grant.next_sequence();
    pending_.set_residuals_lost(
        options_.request.job_spec().compression().push() != F32 &&
        (grant.next_sequence() > 0 || grant.applied_range_size() > 0));
    if (stop_.has_value()) {
      on_stop();
    }
    on_stop_ = std::move(on_stop);
    moved_ = std::move(moved);
  }
  thread_ = std::thread([this] { Run(); });
}

void ChiefClient::Run() {
  while (true) {
    const absl::Status status = RunStream();
    {
      MutexLock lock(&mutex_);
      // Whoever asked for a hold may be gone, and counts us as holding.
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
      Stop(absl::FailedPreconditionError(
          "the chief restored the job or gave this slot anew; start again"));
    }
    // A restarted chief holds nobody that it has not told.
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
  grpc::ClientContext context;
  {
    MutexLock lock(&mutex_);
    context_ = &context;
    stream_ended_ = false;
    dirty_ = true;
    send_again_ = unheard_.size();
  }
  auto stream = stub_->Heartbeat(&context);
  std::thread reader([this, &stream] {
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
  const absl::Status status = FromGrpcStatus(stream->Finish());
  MutexLock lock(&mutex_);
  context_ = nullptr;
  return status;
}

void ChiefClient::WriteProgress(
    grpc::ClientReaderWriter<Progress, Command>* stream) {
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
    const bool last = closing_ && !dirty_;
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

Progress ChiefClient::TakePending() {
  Progress progress;
  progress.set_next_sequence(next_sequence_);
  if (unheard_.size() >= kUnheardMax) {
    // The contributions that it does not tell of are not below it.
    progress.set_next_sequence(next_sequence_ -
                               static_cast<uint64_t>(pending_.report_size()));
    return progress;
  }
  std::swap(progress, pending_);
  const int left = std::max(progress.report_size() - kReportsPerMessageMax, 0);
  for (int i = progress.report_size() - left; i < progress.report_size(); ++i) {
    pending_.add_report()->Swap(progress.mutable_report(i));
  }
  progress.mutable_report()->DeleteSubrange(progress.report_size() - left,
                                            left);
  progress.set_next_sequence(next_sequence_ - static_cast<uint64_t>(left));
  if (Tells(progress)) {
    progress.set_message_number(++message_number_);
    unheard_.push_back(progress);
  }
  return progress;
}

void ChiefClient::OnHeard(uint64_t message_number) {
  while (!unheard_.empty() &&
         unheard_.front().message_number() <= message_number) {
    unheard_.pop_front();
  }
  send_again_ = std::min(send_again_, unheard_.size());
}

Progress ChiefClient::TakeProgress() {
  Progress progress = send_again_ > 0
                          ? unheard_[unheard_.size() - send_again_--]
                          : TakePending();
  dirty_ = send_again_ > 0 ||
           (pending_.report_size() > 0 && unheard_.size() < kUnheardMax);
  progress.set_slot(grant_.sender().slot());
  progress.set_generation(grant_.sender().generation());
  progress.set_holding(hold_ && !in_flight_);
  progress.set_out_of_work(out_of_work_ && !dirty_);
  progress.set_ending(closing_ || stop_.has_value());
  if (moved_) {
    progress.set_bytes_moved(moved_());
  }
  if (!error_.ok()) {
    progress.set_error(std::string(error_.message()));
    progress.set_error_code(static_cast<uint32_t>(error_.code()));
  }
  return progress;
}

void ChiefClient::OnCommand(const Command& command) {
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
      OnHeard(command.heard());
      return;
    case Command::kTakeSlot:
      if (!stop_.has_value() && !leave_.has_value()) {
        slot_to_take_ = static_cast<int>(command.take_slot());
        Leave(absl::CancelledError(absl::StrCat(
            "the chief gave slot ", command.take_slot(), " to this worker")));
      }
      break;
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

absl::Status ChiefClient::StopRegistering(const absl::Status& why) {
  MutexLock lock(&mutex_);
  Stop(why);
  return absl::CancelledError("the job is over");
}

void ChiefClient::ForgetCallbacks() {
  MutexLock lock(&mutex_);
  on_stop_ = nullptr;
  moved_ = nullptr;
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

void ChiefClient::StopWhenFree() {
  if (leave_.has_value() &&
      (!in_flight_ || Clock::Real()->NowNs() >= leave_ns_)) {
    Stop(*leave_);
  }
}

std::optional<int> ChiefClient::slot_to_take() const {
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
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(&mutex_);
  while (hold_ && !stop_.has_value()) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) {
      return std::nullopt;
    }
    changed_.WaitFor(&mutex_, deadline - now);
  }
  in_flight_ = !stop_.has_value();
  return in_flight_;
}

void ChiefClient::AddContribution(
    uint64_t next_sequence, const ParameterClient::ContributionResult& result) {
  in_flight_ = false;
  StopWhenFree();
  next_sequence_ = next_sequence;
  pending_.set_staleness_sum(pending_.staleness_sum() + result.staleness_sum);
  pending_.set_staleness_count(pending_.staleness_count() +
                               result.staleness_count);
  pending_.set_staleness_max(
      std::max(pending_.staleness_max(), result.staleness_max));
  pending_.set_bytes_pushed(pending_.bytes_pushed() + result.bytes_sent);
  pending_.set_bytes_pulled(pending_.bytes_pulled() + result.bytes_received);
  if (hold_) {
    dirty_ = true;
    changed_.NotifyAll();
  }
}

void ChiefClient::LeaveContribution(
    uint64_t next_sequence, const ParameterClient::ContributionResult& result) {
  MutexLock lock(&mutex_);
  AddContribution(next_sequence, result);
}

void ChiefClient::LeaveContribution(
    uint64_t next_sequence, const ContributionReport& report,
    const ParameterClient::ContributionResult& result) {
  MutexLock lock(&mutex_);
  *pending_.add_report() = report;
  AddContribution(next_sequence, result);
  if (report.bad()) {
    dirty_ = true;
    changed_.NotifyAll();
  }
}

void ChiefClient::AddPhases(const Phases& phases) {
  MutexLock lock(&mutex_);
  Phases* const sum = pending_.mutable_phases();
  sum->set_contributions(sum->contributions() + phases.contributions());
  sum->set_step_ns(sum->step_ns() + phases.step_ns());
  sum->set_data_wait_ns(sum->data_wait_ns() + phases.data_wait_ns());
  sum->set_pull_wait_ns(sum->pull_wait_ns() + phases.pull_wait_ns());
  sum->set_push_wait_ns(sum->push_wait_ns() + phases.push_wait_ns());
  sum->set_compute_ns(sum->compute_ns() + phases.compute_ns());
  sum->set_on_gpu(phases.on_gpu());
  sum->set_device_bytes_used(phases.device_bytes_used());
  sum->set_device_bytes_reserved(phases.device_bytes_reserved());
}

void ChiefClient::OutOfWork() {
  MutexLock lock(&mutex_);
  out_of_work_ = true;
  dirty_ = true;
  changed_.NotifyAll();
  while (!stop_.has_value()) {
    changed_.Wait(&mutex_);
  }
}

void ChiefClient::CloseFinished() {
  {
    MutexLock lock(&mutex_);
    out_of_work_ = true;
  }
  Close(absl::OkStatus());
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
    if (!closed_ && context_ != nullptr) {
      context_->TryCancel();
    }
  }
  thread_.join();
}

}  // namespace weir
