// How a Session comes to its slot, with a chief and without one, and how it
// waits.

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "client/cc/job/start_plan.h"
#include "client/cc/sdk/session.h"
#include "client/cc/transport/retry_policy.h"
#include "common/base/clock.h"
#include "common/base/identity.h"
#include "common/base/logging.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "proto/wire/declaration_io.h"

namespace weir::sdk {
namespace {

constexpr std::chrono::milliseconds kPollEvery{50};
// How often the log says what is waited for.
constexpr int64_t kSayEveryNs = 10'000'000'000;
// How long one Register call may take: a caller that is to wait no longer ends
// within it.
constexpr std::chrono::milliseconds kRegisterTimeout{500};

// Why the chief has ended the job, for a message.
std::string Reason(const absl::Status& why) {
  if (why.ok()) {
    return "every worker has finished";
  }
  return std::string(why.message());
}

}  // namespace

Session::Session(Options options, Wire wire)
    : options_(std::move(options)),
      process_(RandomId()),
      wire_(std::move(wire)) {}

absl::Status Session::OnWait() const {
  if (options_.keep_waiting && !options_.keep_waiting()) {
    return absl::CancelledError("the wait was ended");
  }
  if (chief_ == nullptr || !chief_->stopping()) {
    return absl::OkStatus();
  }
  const absl::Status why = chief_->stop_status();
  // Replaced: the program must end, while an ABORTED one may start again.
  if (why.code() == absl::StatusCode::kPermissionDenied) {
    return why;
  }
  return absl::AbortedError(
      absl::StrCat("the job is over for this worker: ", Reason(why)));
}

absl::Status Session::Repeated(
    const std::function<absl::Status()>& call) const {
  const int64_t deadline_ns = StartDeadlineNs();
  for (;;) {
    const absl::Status status = call();
    if (status.ok() || InstructionOf(status.code()) != Instruction::kRepeat ||
        Clock::Real()->NowNs() >= deadline_ns) {
      return status;
    }
    WEIR_RETURN_IF_ERROR(OnWait());
    Clock::Real()->SleepFor(kPollEvery);
  }
}

absl::StatusOr<HelloReply> Session::Hello(size_t s, int64_t deadline_ns,
                                          bool active) {
  const int64_t begin_ns = Clock::Real()->NowNs();
  int64_t said_ns = begin_ns;
  while (true) {
    absl::StatusOr<HelloReply> reply = links_[s]->Hello(kCallTimeout);
    const int64_t now_ns = Clock::Real()->NowNs();
    // Worker 0 made the shards; the others wait until it opened them.
    if (reply.ok() && (!active || reply->state() == ACTIVE ||
                       (options_.rank == 0 && reply->state() == LOADED))) {
      return reply;
    }
    absl::Status why = reply.status();
    if (reply.ok()) {
      why = absl::UnavailableError(absl::StrCat(
          NameOf(s), " holds nothing: worker 0 has not declared its tensors"));
    } else if (InstructionOf(why.code()) != Instruction::kRepeat) {
      return Annotate(why, NameOf(s));
    } else {
      // The last error and its code: it says why the ps cannot be reached.
      why = absl::Status(why.code(),
                         absl::StrCat(NameOf(s), " did not answer for ",
                                      (now_ns - begin_ns) / 1'000'000'000,
                                      " s: ", why.message()));
    }
    if (now_ns >= deadline_ns) {
      return why;
    }
    if (now_ns - said_ns >= kSayEveryNs) {
      said_ns = now_ns;
      LOG_WARN("waiting: {}", std::string(why.message()));
    }
    WEIR_RETURN_IF_ERROR(OnWait());
    Clock::Real()->SleepFor(kPollEvery);
  }
}

// Does what a chief does at its start, for shards that are all empty.
absl::Status Session::MakeShards(const std::vector<Tensor>& tensors) {
  declaration_.set_history(RandomId());
  // All shards are declared before the first one gets values, and Join opens
  // them only when all have theirs. So a worker that dies in between leaves
  // shards that PlanStart can tell from those in training.
  for (const StartingShard& shard : Shards()) {
    WEIR_RETURN_IF_ERROR(DeclareShard(
        shard, declaration_, Milliseconds(options_.start_wait_seconds)));
  }
  sender_.set_history(declaration_.history());
  return AssignValues(sender_, tensors);
}

absl::Status Session::AssignValues(const Sender& sender,
                                   const std::vector<Tensor>& tensors) const {
  const SegmentValues values = [&](const Segment& segment,
                                   std::vector<float>*) {
    const std::span<const float> all = tensors[segment.variable].values;
    // A tensor without values begins with its initialiser.
    return all.empty()
               ? all
               : all.subspan(static_cast<size_t>(segment.variable_offset),
                             static_cast<size_t>(segment.count));
  };
  for (const StartingShard& shard : Shards()) {
    WEIR_RETURN_IF_ERROR(Repeated(
        [&] { return AssignShard(shard, memory_->layout, sender, values); }));
  }
  return absl::OkStatus();
}

std::vector<StartingShard> Session::Shards() const {
  std::vector<StartingShard> shards;
  for (size_t s = 0; s < links_.size(); ++s) {
    shards.push_back({static_cast<int>(s), links_[s].get(), kCallTimeout,
                      [this] { return OnWait(); }});
  }
  return shards;
}

absl::Status Session::DeclareAlone(const std::vector<Tensor>& tensors) {
  sender_ = JobSender(declaration_, memory_->layout.fingerprint());
  if (options_.rank == 0) {
    std::vector<std::string> names;
    std::vector<HelloReply> hellos;
    for (size_t s = 0; s < links_.size(); ++s) {
      names.push_back(NameOf(s));
      WEIR_ASSIGN_OR_RETURN(hellos.emplace_back(),
                            links_[s]->Hello(kCallTimeout));
    }
    // Join compares the job and the order of the ps, so that every rank says
    // the same of a mistake.
    const StartPlan plan = PlanStart(/*job=*/"", names, hellos);
    if (absl::IsFailedPrecondition(plan.status)) {
      return absl::Status(plan.status.code(),
                          absl::StrCat(plan.status.message(),
                                       "; shut all ps down and start anew"));
    }
    if (plan.kind == StartPlan::Kind::kLoad) {
      WEIR_RETURN_IF_ERROR(MakeShards(tensors));
    }
  }
  return Join();
}

absl::Status Session::DeclareWithChief(const std::vector<Tensor>& tensors) {
  ChiefClient::Options options;
  options.link = wire_.chief;
  options.register_timeout = kRegisterTimeout;
  options.lost_after = Milliseconds(options_.start_wait_seconds);
  options.request.set_rank(static_cast<uint32_t>(options_.rank));
  options.request.set_process(process_);
  options.request.set_host(HostName());
  host_meter_ = std::make_unique<HostMeter>();
  options.host = host_meter_.get();
  *options.request.mutable_declaration() = declaration_;
  WEIR_ASSIGN_OR_RETURN(auto chief, ChiefClient::Create(std::move(options)));
  ChiefClient::Joining joining;
  joining.assign = [&](const Sender& sender) {
    return AssignValues(sender, tensors);
  };
  joining.on_wait = [this] { return OnWait(); };
  const absl::StatusOr<Grant> granted = chief->Register(joining);
  if (!granted.ok() && chief->stopping()) {
    const absl::Status why = chief->stop_status();
    return absl::AbortedError(absl::StrCat("the job is over: ", Reason(why)));
  }
  // The chief is away or has another history. For weir.h that is ABORTED:
  // FAILED_PRECONDITION says there that a ps is lost.
  if (absl::IsFailedPrecondition(granted.status())) {
    return absl::AbortedError(granted.status().message());
  }
  WEIR_RETURN_IF_ERROR(granted.status());
  const Grant& grant = *granted;
  sender_ = grant.sender();
  for (size_t s = 0; s < links_.size(); ++s) {
    WEIR_ASSIGN_OR_RETURN(const HelloReply hello,
                          Hello(s, StartDeadlineNs(), /*active=*/false));
    WEIR_RETURN_IF_ERROR(CheckDeclared(s, hello));
  }
  sequence_ = grant.next_sequence();
  pushes_before_ = grant.pushes_before();
  base_version_ = grant.base_version();
  chief_ = std::move(chief);
  // Nobody needs on_stop: every call that waits asks OnWait, which asks the
  // chief.
  chief_->Start(grant, [] {});
  return absl::OkStatus();
}

absl::Status Session::CheckDeclared(size_t s, const HelloReply& hello) {
  // From the coarsest difference to the finest, so that the message names the
  // mistake and not its consequence.
  if (hello.job() != options_.job) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(s), " holds job '", Printable(hello.job()),
                     "', this is '", options_.job, "'; start other ps for it"));
  }
  if (hello.shard() != s) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(s), " holds shard ", hello.shard(),
                     ": name the ps in the same order everywhere"));
  }
  PsStatus status;
  const absl::Status asked = Repeated([&]() -> absl::Status {
    WEIR_ASSIGN_OR_RETURN(status, links_[s]->GetStatus({}, kCallTimeout));
    return absl::OkStatus();
  });
  WEIR_RETURN_IF_ERROR(Annotate(asked, NameOf(s)));
  if (status.hello().incarnation() != hello.incarnation()) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(s), " was restarted and has lost its tensors"));
  }
  const std::string difference =
      FirstDeclarationDifference(status.declaration(), declaration_);
  if (!difference.empty()) {
    return absl::AlreadyExistsError(
        absl::StrCat(difference, "; every worker must declare the same"));
  }
  if (hello.layout_fingerprint() != memory_->layout.fingerprint()) {
    return absl::InternalError(absl::StrCat(
        NameOf(s), " computed another layout: its version of Weir differs"));
  }
  // They may differ from those given here, and say which momentum a push may
  // bring.
  *declaration_.mutable_group() = status.declaration().group();
  return absl::OkStatus();
}

// Takes this worker's slot on every shard, under the next generation.
absl::Status Session::Join() {
  const int64_t deadline_ns = StartDeadlineNs();
  for (size_t s = 0; s < links_.size(); ++s) {
    WEIR_ASSIGN_OR_RETURN(const HelloReply hello,
                          Hello(s, deadline_ns, /*active=*/true));
    WEIR_RETURN_IF_ERROR(CheckDeclared(s, hello));
    sender_.set_history(hello.history());  // the same on every shard
  }
  const uint32_t slot = static_cast<uint32_t>(options_.rank);
  WEIR_ASSIGN_OR_RETURN(const TakenSlot taken,
                        TakeSlot(Shards(), sender_, slot, process_));
  sender_.set_slot(slot);
  sender_.set_generation(taken.generation);
  sender_.set_capability_high(taken.capability_high);
  sender_.set_capability_low(taken.capability_low);
  sequence_ = taken.next_sequence;
  return absl::OkStatus();
}

absl::Status Session::RetireSlot() {
  SetSlotsRequest request;
  *request.mutable_sender() = sender_;
  SetSlotsRequest::Slot* const entry = request.add_slot();
  entry->set_slot(static_cast<uint32_t>(options_.rank));
  entry->set_generation(sender_.generation());
  entry->set_retired(true);
  entry->set_process(process_);
  for (size_t s = 0; s < links_.size(); ++s) {
    const absl::Status retired =
        Repeated([&] { return links_[s]->SetSlots(request, kCallTimeout); });
    WEIR_RETURN_IF_ERROR(Annotate(retired, NameOf(s)));
  }
  return absl::OkStatus();
}

}  // namespace weir::sdk
