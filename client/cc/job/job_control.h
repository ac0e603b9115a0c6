// The part of the job's control that the train loop needs.
//
// Place: between worker/train/train_loop and the chief; ChiefClient implements
// it over gRPC, tests with a few lines.
//
// Invariants
//   I1. Between EnterContribution (true) and LeaveContribution a contribution
//       is in flight: a hold waits for it.
// Threads: the loop calls from one thread.
#ifndef CLIENT_CC_JOB_JOB_CONTROL_H_
#define CLIENT_CC_JOB_JOB_CONTROL_H_

#include <cstdint>

#include "client/cc/parameters/contribution.h"
#include "proto/chief.pb.h"

namespace weir {

class JobControl {
 public:
  virtual ~JobControl() = default;

  // Waits while the job is held. False: stop; nothing is in flight.
  virtual bool EnterContribution() = 0;
  // The contribution below `next_sequence` is acknowledged by every shard.
  virtual void LeaveContribution(uint64_t next_sequence,
                                 const ContributionReport& report,
                                 const ContributionResult& result) = 0;
  // Where the time of the contribution under way went; called before its
  // LeaveContribution.
  virtual void AddPhases(const Phases& phases) = 0;
  // The same for its histograms, if it has any.
  virtual void AddHistograms(ContributionHistograms histograms) = 0;
  // Nothing is left to do for this slot; returns when the worker may end.
  virtual void OutOfWork() = 0;
};

}  // namespace weir

#endif  // CLIENT_CC_JOB_JOB_CONTROL_H_
