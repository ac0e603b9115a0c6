// Keeps what a worker still has to report to the chief, and decides which
// message carries it.
//
// Place: the decisions of ChiefClient's heartbeat without its I/O: it adds what
// happened, takes messages to send, and says what the chief acknowledged.
//
// Terms
//   pending   reports and counts that no message has carried yet.
//   unheard   messages that were sent and are not acknowledged; by number.
//
// Invariants
//   I1. A report is in pending or in unheard until the chief has acknowledged
//       its message.
//   I2. An unheard message is sent again on every new stream, unchanged and
//       under its own number, so that the chief can count it once.
//   I3. A message's next_sequence never passes a contribution whose report is
//       not in it or in an earlier message.
//   I4. At most kUnheardMax messages are unheard, and a message has at most
//       kReportsPerMessageMax reports, and histograms of at most
//       kHistogramVariablesMax variables.
// Threads: compatible; ChiefClient's lock guards it.
#ifndef CLIENT_CC_JOB_PROGRESS_OUTBOX_H_
#define CLIENT_CC_JOB_PROGRESS_OUTBOX_H_

#include <cstdint>
#include <deque>

#include "client/cc/parameters/contribution.h"
#include "proto/chief.pb.h"

namespace weir {

class ProgressOutbox {
 public:
  // Far below what the chief takes in one message (4 MiB).
  static constexpr int kReportsPerMessageMax = 10000;
  // A chief that is there acknowledges at once; beyond it reports wait.
  static constexpr size_t kUnheardMax = 64;

  // Begins with contribution `next_sequence`. `residuals_lost`: a process
  // before this one had residuals of compression, which are gone.
  void Start(uint64_t next_sequence, bool residuals_lost);

  // Adds what the next message says. The contribution below `next_sequence` is
  // acknowledged by every shard.
  void AddReport(const ContributionReport& report);
  void AddContribution(uint64_t next_sequence,
                       const ContributionResult& result);
  void AddPhases(const Phases& phases);
  // Leaves out what the next message has no room for.
  void AddHistograms(ContributionHistograms histograms);
  void AddMetrics(const MetricSums& metrics);

  // A stream was opened: whatever is unheard goes again, the oldest first.
  void OnStreamOpen() { send_again_ = unheard_.size(); }
  // The chief has acknowledged all messages up to `message_number`.
  void OnHeard(uint64_t message_number);

  // The next message: one to be sent again, or what is pending. It has no slot,
  // and no state of the worker.
  Progress Take();
  // Whether more is to be sent at once.
  bool more() const {
    return send_again_ > 0 ||
           (pending_.report_size() > 0 && unheard_.size() < kUnheardMax);
  }

 private:
  Progress TakePending();

  uint64_t next_sequence_ = 0;
  Progress pending_;
  std::deque<Progress> unheard_;
  size_t send_again_ = 0;        // the last so many of unheard_
  uint64_t message_number_ = 0;  // of the newest
};

}  // namespace weir

#endif  // CLIENT_CC_JOB_PROGRESS_OUTBOX_H_
