#include "server/chief/shard_caller.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "client/cc/transport/retry_policy.h"
#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/logging.h"
#include "common/threads/thread.h"
#include "common/trace/trace.h"

namespace weir {
namespace {

using std::chrono::milliseconds;
using Options = ShardCaller::Options;

// Seldom enough to cost nothing while a ps is being started again.
constexpr milliseconds kRetryAfter{200};
// Loading, writing and waiting for a version take as long as they take. A ps
// that dies meanwhile breaks the call, and one that hangs shows in its Hellos.
constexpr milliseconds kLongTimeout{6 * 3600 * 1000};
constexpr milliseconds kShutdownTimeout{2000};

// Of ShardCall's requests, as timelines call them.
constexpr const char* kCallNames[] = {"Hello",    "GetStatus", "report",
                                      "Declare",  "Restore",   "Assign",
                                      "SetSlots", "Snapshot",  "Shutdown"};
static_assert(std::size(kCallNames) ==
              std::variant_size_v<decltype(ShardCall::request)>);

const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& value) {
  return value.status();
}

template <typename F>
auto Repeat(const Options& options, F call) {
  const auto deadline = MonotonicClock::now() + options.lost_after;
  for (;;) {
    auto result = call();
    const absl::Status& status = StatusOf(result);
    // DATA_LOSS is no damaged message here, but a damaged checkpoint.
    if (status.ok() || InstructionOf(status.code()) != Instruction::kRepeat ||
        MonotonicClock::now() > deadline) {
      return result;
    }
    Clock::Real()->SleepFor(kRetryAfter);
  }
}

milliseconds ShortTimeout(const Options& options) {
  return std::clamp(options.lost_after / 3, milliseconds(500),
                    milliseconds(5000));
}

void CallSnapshot(const Options& options, const SnapshotRequest& request) {
  const int shard = options.shard;
  std::optional<ShardFile> file;
  NameTraceLane(absl::StrCat("snapshot of ps ", shard));
  const TraceSpan span("Snapshot");
  Failpoint("chief.before_snapshot");
  const absl::Status status = options.link->Snapshot(
      request, kLongTimeout, [&](const SnapshotReply& reply) {
        if (reply.frozen()) {
          options.report(
              [shard, reply, name = request.checkpoint()](JobState* state) {
                state->checkpoint().OnFrozen(shard, name, reply);
              });
        }
        if (reply.has_file()) {
          file = reply.file();
        }
      });
  options.report([shard, status, file,
                  name = request.checkpoint()](JobState* state) {
    if (!status.ok()) {
      state->OnWritten(shard, name, status);
    } else if (!file.has_value()) {
      state->OnWritten(shard, name, absl::InternalError("it wrote no file"));
    } else {
      state->OnWritten(shard, name, *file);
    }
  });
}

// One overload for each kind of call. Each reports exactly once, or JobState
// would wait for ever; a Snapshot reports FROZEN and WRITTEN.
struct Caller {
  const Options& options;

  void operator()(const HelloCall&) const {
    const auto reply = options.link->Hello(ShortTimeout(options));
    options.report([shard = options.shard, reply](JobState* state) {
      state->OnHello(shard, reply);
    });
  }

  void operator()(const StatusCall&) const {
    const auto reply = Repeat(options, [&] {
      return options.link->GetStatus({}, ShortTimeout(options));
    });
    options.report([shard = options.shard, reply](JobState* state) {
      state->start().OnStatus(shard, reply);
    });
  }

  void operator()(const ReportCall&) const {
    GetStatusRequest request;
    request.set_without_declaration(true);
    const auto reply = options.link->GetStatus(request, ShortTimeout(options));
    options.report([shard = options.shard, reply](JobState* state) {
      state->OnReportStatus(shard, reply);
    });
  }

  void operator()(const DeclareRequest& request) const {
    Failpoint("chief.before_declare");
    const auto reply = Repeat(
        options, [&] { return options.link->Declare(request, kLongTimeout); });
    Failpoint("chief.mid_declare");
    options.report([shard = options.shard, reply](JobState* state) {
      state->start().OnDeclared(shard, reply);
    });
  }

  void operator()(const RestoreRequest& request) const {
    const auto reply = Repeat(
        options, [&] { return options.link->Restore(request, kLongTimeout); });
    Failpoint("chief.mid_restore");
    options.report([shard = options.shard, reply](JobState* state) {
      state->start().OnDeclared(shard, reply);
    });
  }

  void operator()(const AssignCall& call) const {
    absl::Status status = absl::InternalError("there are no initial values");
    if (options.initial != nullptr) {
      status = Repeat(options, [&] {
        return options.initial->Assign(call.declaration, call.sender,
                                       options.shard, options.link.get());
      });
    }
    options.report([shard = options.shard, status](JobState* state) {
      state->start().OnAssigned(shard, status);
    });
  }

  void operator()(const SetSlotsRequest& request) const {
    const absl::Status status = Repeat(options, [&] {
      return options.link->SetSlots(request, ShortTimeout(options));
    });
    options.report([shard = options.shard, status](JobState* state) {
      state->OnSlotsSet(shard, status);
    });
  }

  void operator()(const SnapshotRequest&) const {}  // Call() runs it beside

  void operator()(const ShutdownRequest& request) const {
    Failpoint("chief.before_shutdown");
    // Once: a ps that took it is gone, so a repeat could only fail. Of a job
    // that was done before JobEnd asks again.
    const absl::Status status =
        options.link->Shutdown(request, kShutdownTimeout);
    if (absl::IsPermissionDenied(status)) {
      LOG_WARN("ps {} goes on: {}", options.shard,
               std::string(status.message()));
    }
    options.report([shard = options.shard, status](JobState* state) {
      state->end().OnShutdown(shard, status);
    });
  }
};

}  // namespace

void ShardCaller::Call(ShardCall call) {
  // Detached, with a share of the options: it may wait for hours, and must not
  // keep the chief from ending.
  if (auto* snapshot = std::get_if<SnapshotRequest>(&call.request)) {
    Thread([options = options_, request = std::move(*snapshot)] {
      CallSnapshot(*options, request);
    }).detach();
    return;
  }
  queue_.Post([options = options_, call = std::move(call)] {
    const TraceSpan span(kCallNames[call.request.index()]);
    std::visit(Caller{*options}, call.request);
  });
}

}  // namespace weir
