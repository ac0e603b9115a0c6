// A worker's part in a trace: it records for a while and sends the chief what
// was recorded.
//
// Place: ChiefClient has one, and hands it the chief's orders. See "Timelines"
// in docs/design_notes.md.
//
// Invariants
//   I1. One thread at a time, which lives from an order until the last part is
//       sent, or the first call fails: a timeline is worth no repeats.
// Threads: compatible; ChiefClient's heartbeat calls Obey.
// Owns/borrows: borrows the link, which outlives it.
#ifndef CLIENT_CC_JOB_TRACE_SENDER_H_
#define CLIENT_CC_JOB_TRACE_SENDER_H_

#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "client/cc/job/chief_link.h"
#include "common/base/mutex.h"
#include "common/threads/thread.h"
#include "common/trace/clock_offset.h"
#include "proto/trace.pb.h"

namespace weir {

class TraceSender {
 public:
  // Exchanges by which it learns how far its clock is ahead of the chief's.
  static constexpr int kClockExchanges = 8;
  // How long one call may take.
  static constexpr std::chrono::seconds kTimeout{5};

  TraceSender(ChiefLink* link, uint32_t rank) : link_(link), rank_(rank) {}
  // Ends a call under way; what was not sent is lost.
  ~TraceSender();

  // Begins to record, unless a trace is being taken.
  void Obey(const TraceOrder& order);

 private:
  void Run(const TraceOrder& order);
  absl::Status Send(const TraceOrder& order);
  // Waits until the recording has ended; false: the process ends.
  bool WaitForEnd(const TraceOrder& order);
  // One call, which also says what the chief's clock is.
  absl::Status Call(const PutTraceRequest& request, PutTraceReply* reply);

  ChiefLink* const link_;
  const uint32_t rank_;
  ClockOffset chief_clock_;  // used by the thread alone

  Mutex mutex_;
  CondVar changed_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace weir

#endif  // CLIENT_CC_JOB_TRACE_SENDER_H_
