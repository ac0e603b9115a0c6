// Sums where the workers' time went: the field "phases" of train.jsonl.
//
//   {"contributions":640,"step_seconds":4.1,"data_wait_seconds":0.01,
//    "pull_wait_seconds":0.2,"compute_seconds":3.8,"push_wait_seconds":0.05,
//    "gpu_busy_share":0.93,"device_bytes_used":1288490188,
//    "device_bytes_reserved":1503238553,"device_bytes_total":85899345920,
//    "nvml_gpu_percent":91,"nvml_watts":412}
//
// Terms
//   *_seconds          over all workers and contributions since this chief
//                      began (Phases in proto/chief.proto).
//   gpu_busy_share     seconds of compute divided by seconds of step, over the
//                      workers on a GPU.
//   device_bytes_*     the largest that any worker reported.
//   nvml_*             means over the workers' readings, about one a second.
//
// From gpu_busy_share on, a field is left out while its value is not known.
// Threads: compatible.
#ifndef SERVER_CHIEF_STATE_PHASE_TOTALS_H_
#define SERVER_CHIEF_STATE_PHASE_TOTALS_H_

#include <cstdint>
#include <string>

#include "proto/chief.pb.h"

namespace weir {

class PhaseTotals {
 public:
  void Add(const Phases& phases);

  // Returns the object above, or "" before the first contribution.
  std::string Json() const;

 private:
  Phases sum_;  // bytes: the largest; nvml_*: sums over readings_
  uint64_t gpu_step_ns_ = 0;
  uint64_t gpu_busy_ns_ = 0;
  uint64_t readings_ = 0;
};

}  // namespace weir

#endif  // SERVER_CHIEF_STATE_PHASE_TOTALS_H_
