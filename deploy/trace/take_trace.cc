#include "deploy/trace/take_trace.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/limits.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "common/trace/clock_offset.h"

namespace weir {
namespace {

// Exchanges with a task, before and after each.
constexpr int kClockExchanges = 5;
constexpr std::chrono::milliseconds kPollEvery{100};
// Parts of one task: a chief's are those of all workers, within kTraceBytesMax,
// and its own. A peer that names more is not believed.
constexpr uint32_t kPartsMax = 1 << 16;

class Taker {
 public:
  Taker(std::vector<TraceSource> sources, const TakeTraceOptions& options)
      : options_(options) {
    for (TraceSource& source : sources) {
      sources_.push_back({std::move(source), {}});
    }
  }

  absl::StatusOr<ChromeTrace> Take() {
    WEIR_RETURN_IF_ERROR(
        ForEach("does not answer", [this](Source& s) { return ReadClock(s); }));
    TraceRequest begin;
    begin.set_trace(options_.trace);
    begin.set_start_ms(static_cast<uint32_t>(options_.duration.count()));
    ChromeTrace trace;
    trace.begin_ns = options_.clock->NowNs();
    WEIR_RETURN_IF_ERROR(ForEach(
        "does not begin", [&](Source& s) { return s.is.ask(begin).status(); }));
    options_.sleep(options_.duration);
    trace.end_ns = options_.clock->NowNs();
    WEIR_RETURN_IF_ERROR(
        ForEach("is gone", [this](Source& s) { return ReadClock(s); }));
    WEIR_RETURN_IF_ERROR(ForEach(
        "gave nothing", [&](Source& s) { return Collect(s, &trace.tasks); }));
    return trace;
  }

 private:
  struct Source {
    TraceSource is;
    ClockOffset clock;
  };

  // Runs `step` with every source, and goes on with those for which it was OK.
  // Returns the first error when none is left (I1).
  absl::Status ForEach(const char* failing,
                       const std::function<absl::Status(Source&)>& step) {
    absl::Status first;
    std::vector<Source> left;
    for (Source& source : sources_) {
      const absl::Status status = step(source);
      if (status.ok()) {
        left.push_back(std::move(source));
        continue;
      }
      Note(absl::StrCat(source.is.name, " ", failing, ", so it is left out: ",
                        Printable(status.message(), kPeerMessageBytesMax)));
      if (first.ok()) {
        first = Annotate(status, absl::StrCat(source.is.name, " ", failing));
      }
    }
    sources_ = std::move(left);
    return sources_.empty() ? first : absl::OkStatus();
  }

  // I2.
  absl::Status ReadClock(Source& source) const {
    for (int i = 0; i < kClockExchanges; ++i) {
      const int64_t asked_ns = options_.clock->NowNs();
      WEIR_ASSIGN_OR_RETURN(const TraceReply reply,
                            source.is.ask(TraceRequest()));
      source.clock.Add(asked_ns, reply.now_ns(), options_.clock->NowNs());
    }
    return absl::OkStatus();
  }

  // I3. The chief is ready kTraceLateWait after the end; a ps at once.
  absl::StatusOr<TraceReply> WaitUntilReady(const Source& source) const {
    TraceRequest request;
    request.set_trace(options_.trace);
    const int64_t late_ns =
        options_.clock->NowNs() +
        2 * std::chrono::nanoseconds(kTraceLateWait).count();
    for (;;) {
      WEIR_ASSIGN_OR_RETURN(TraceReply reply, source.is.ask(request));
      if (reply.ready()) {
        return reply;
      }
      if (options_.clock->NowNs() > late_ns) {
        return absl::DeadlineExceededError("its recording does not end");
      }
      options_.sleep(kPollEvery);
    }
  }

  absl::Status Collect(const Source& source, std::vector<TracedTask>* tasks) {
    WEIR_ASSIGN_OR_RETURN(const TraceReply ready, WaitUntilReady(source));
    if (ready.workers_heard() < ready.workers_told()) {
      Note(absl::StrCat("only ", ready.workers_heard(), " of ",
                        ready.workers_told(),
                        " workers have sent all of their timeline"));
    }
    TracedTask own;
    own.name = source.is.name;
    own.ahead_ns = source.clock.ns();
    own.delay_ns = static_cast<uint64_t>(source.clock.delay_ns());
    std::map<uint32_t, TracedTask> workers;  // by rank
    TraceRequest request;
    request.set_trace(options_.trace);
    const uint32_t count = std::min(ready.part_count(), kPartsMax);
    for (uint32_t i = 0; i < count; ++i) {
      request.set_part(i);
      WEIR_ASSIGN_OR_RETURN(TraceReply reply, source.is.ask(request));
      TracePart& part = *reply.mutable_part();
      TracedTask* task = &own;
      if (part.has_rank()) {
        task = &workers[part.rank()];
        task->name = absl::StrCat("worker ", part.rank());
        task->ahead_ns = Sum(own.ahead_ns, part.ahead_ns());
        task->delay_ns = own.delay_ns + part.delay_ns();
      } else if (part.also_rank_size() > 0 && i == 0) {
        own.name = absl::StrCat(source.is.name, " and worker ",
                                absl::StrJoin(part.also_rank(), ", "));
      }
      task->parts.push_back(std::move(part));
    }
    tasks->push_back(std::move(own));
    for (auto& [rank, task] : workers) {
      tasks->push_back(std::move(task));
    }
    request.clear_part();
    request.set_forget(true);
    // It frees what it kept at the next trace otherwise.
    source.is.ask(request).IgnoreError();
    return absl::OkStatus();
  }

  // A worker's word may be any number.
  static int64_t Sum(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) +
                                static_cast<uint64_t>(b));
  }

  void Note(const std::string& line) const {
    if (options_.note) {
      options_.note(line);
    }
  }

  const TakeTraceOptions& options_;
  std::vector<Source> sources_;
};

}  // namespace

absl::StatusOr<ChromeTrace> TakeTrace(std::vector<TraceSource> sources,
                                      const TakeTraceOptions& options) {
  return Taker(std::move(sources), options).Take();
}

}  // namespace weir
