// How a ChiefClient gets a slot: Register calls until the chief grants or
// refuses, or is away for too long.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cc/job/chief_client.h"
#include "client/cc/transport/retry_policy.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/logging.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "proto/wire/wire_version.h"

namespace weir {
namespace {

// A chief that lets a worker wait is asked again this often at most and at
// least.
constexpr std::chrono::milliseconds kWaitMin{10};
constexpr std::chrono::milliseconds kWaitMax{1000};
// How often the log says that the chief is waited for.
constexpr int64_t kSayEveryNs = 10'000'000'000;
// How long a chief is away before DONE is looked for (I4): a restart takes
// less.
constexpr int64_t kLookForDoneNs = 5'000'000'000;
constexpr std::chrono::milliseconds kProbeTimeout{500};

}  // namespace

absl::StatusOr<Grant> ChiefClient::Register(const Joining& joining) {
  return RegisterUntilGranted(nullptr, joining);
}

absl::Status ChiefClient::CallRegister(const RegisterRequest& request,
                                       RegisterReply* reply) {
  const absl::Status status =
      options_.link->Register(request, options_.register_timeout, reply);
  if (absl::IsDeadlineExceeded(status)) {
    // A call that waits for the connection does not say why there is none.
    const absl::Status why = options_.link->Probe(kProbeTimeout);
    if (absl::IsUnauthenticated(why)) {
      return why;
    }
  }
  WEIR_RETURN_IF_ERROR(status);
  return CheckWireVersion("the chief", reply->wire_version());
}

absl::StatusOr<Grant> ChiefClient::RegisterUntilGranted(
    const Grant* held, const Joining& joining) {
  RegisterRequest request = options_.request;
  request.set_wire_version(kWireVersion);
  if (held != nullptr) {
    // I2: a restarted chief knows from this which slot is taken, and by whom.
    request.set_held_history(held->sender().history());
    request.set_held_generation(held->sender().generation());
  }
  const int64_t lost_ns = std::chrono::nanoseconds(options_.lost_after).count();
  int64_t heard_ns = Clock::Real()->NowNs();
  RetryPolicy retry(options_.lost_after);
  std::chrono::milliseconds pause{0};
  std::string waiting_for;
  int64_t said_ns = heard_ns;
  while (true) {
    RegisterReply reply;
    const absl::Status status = CallRegister(request, &reply);
    if (status.ok() && reply.has_grant()) {
      return reply.grant();
    }
    if (status.ok() && reply.has_assign() && held != nullptr) {
      // I2: it has nothing of this history, and waits for a fresh process.
      return absl::FailedPreconditionError(
          "the chief begins the job anew; start this program again");
    }
    if (status.ok() && reply.has_assign() && joining.assign) {
      WEIR_RETURN_IF_ERROR(joining.assign(reply.assign()));
      // At once: the chief waits for these values before it grants to anybody.
      request.set_assigned_history(reply.assign().history());
      continue;
    }
    if (status.ok() && reply.has_over()) {  // I4
      return StopRegistering(StatusOf(reply.over()));
    }
    if (joining.on_wait) {
      WEIR_RETURN_IF_ERROR(joining.on_wait());
    }
    if (status.ok()) {
      heard_ns = Clock::Real()->NowNs();
      retry.OnAnswer();
      pause = std::clamp(std::chrono::milliseconds(reply.wait().retry_ms()),
                         kWaitMin, kWaitMax);
      if (reply.wait().reason() != waiting_for) {
        waiting_for = reply.wait().reason();
        LOG_INFO("chief: {}", Printable(waiting_for, kPeerMessageBytesMax));
      }
    } else if (!retry.MayRepeat(status, Clock::Real()->NowNs())) {
      return Annotate(status,
                      absl::StrCat("chief (", options_.link->address(), ")"));
    } else if (Clock::Real()->NowNs() - heard_ns >= kLookForDoneNs &&
               JobIsDone(&heard_ns)) {  // I4
      LOG_INFO("the chief ({}) is away, and the job is done",
               options_.link->address());
      return StopRegistering(absl::OkStatus());
    } else if (Clock::Real()->NowNs() - heard_ns >= lost_ns) {  // I1
      return LostError(absl::StrCat("chief (", options_.link->address(), ") ",
                                    UnreachableFor(options_.lost_after)),
                       status);
    } else {
      pause = retry.pause();
      if (Clock::Real()->NowNs() - said_ns >= kSayEveryNs) {
        said_ns = Clock::Real()->NowNs();
        LOG_WARN("waiting for the chief ({}): {}", options_.link->address(),
                 std::string(status.message()));
      }
    }
    WEIR_RETURN_IF_ERROR(RestUnlessStopping(pause));
  }
}

bool ChiefClient::JobIsDone(int64_t* heard_ns) const {
  if (!options_.job_is_done) {
    return false;
  }
  const int64_t looked_ns = Clock::Real()->NowNs();
  const bool done = options_.job_is_done();
  *heard_ns += Clock::Real()->NowNs() - looked_ns;
  return done;
}

absl::Status ChiefClient::RestUnlessStopping(std::chrono::milliseconds pause) {
  MutexLock lock(&mutex_);
  changed_.WaitFor(&mutex_, pause);  // RequestStop and Close wake it
  StopWhenFree();
  if (stop_.has_value() && !stop_->ok()) {
    return *stop_;
  }
  if (stop_.has_value() || closing_) {
    return absl::CancelledError("the worker is stopping");
  }
  return absl::OkStatus();
}

absl::Status ChiefClient::StopRegistering(const absl::Status& why) {
  MutexLock lock(&mutex_);
  Stop(why);
  return absl::CancelledError("the job is over");
}

}  // namespace weir
