// What one slot's worker did lately, from its heartbeats.
//
// Place: the Reporter has one for each slot.
//
// Threads: compatible.
// Bounds: of a heartbeat it keeps as many shards as the job has, and
//   kVariableWaitsMax variables.
#ifndef SERVER_CHIEF_REPORT_WORKER_METER_H_
#define SERVER_CHIEF_REPORT_WORKER_METER_H_

#include <cstdint>
#include <vector>

#include "proto/chief.pb.h"
#include "proto/report.pb.h"
#include "server/chief/report/moving_window.h"

namespace weir {

class WorkerMeter {
 public:
  // Takes a heartbeat that was not counted before.
  void Add(const Progress& progress, int shards, int64_t now_ns);

  // Fills what follows from the heartbeats: rates, shares and the host's load.
  // Nothing before there were two.
  void Fill(WorkerReport* report) const;
  // Adds the seconds for which the window's steps took, and by variable those
  // for which they waited.
  void AddWaits(double* step_seconds, std::vector<double>* waits) const;

 private:
  // Since the chief began, but for `load`, which is since the worker took its
  // slot.
  struct Sums {
    Phases phases;
    uint64_t rows = 0;
    uint64_t bytes_pushed = 0;
    uint64_t bytes_pulled = 0;
  };

  Sums sums_;
  MovingWindow<Sums> window_;
  MovingWindow<WorkerLoad> loads_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_REPORT_WORKER_METER_H_
