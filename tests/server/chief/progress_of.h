// A heartbeat of the worker that holds a grant.
#ifndef TESTS_SERVER_CHIEF_PROGRESS_OF_H_
#define TESTS_SERVER_CHIEF_PROGRESS_OF_H_

#include "proto/chief.pb.h"

namespace weir {

inline Progress ProgressOf(const Grant& grant) {
  const Sender& sender = grant.sender();
  Progress progress;
  progress.set_slot(sender.slot());
  progress.set_generation(sender.generation());
  progress.set_capability_high(sender.capability_high());
  progress.set_capability_low(sender.capability_low());
  return progress;
}

}  // namespace weir

#endif  // TESTS_SERVER_CHIEF_PROGRESS_OF_H_
