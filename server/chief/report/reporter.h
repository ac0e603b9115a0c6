// Makes the report of a job (proto/report.proto) from what its tasks say.
//
// Place: JobState has one and tells it of every heartbeat, every answer of a
// ps, every line of the log and every checkpoint; the chief's service, its
// admin port and its metrics ask for the report.
//
// Invariants
//   I1. What is kept is bounded by the number of workers, shards and variables,
//       whatever peers send.
// Threads: compatible.
#ifndef SERVER_CHIEF_REPORT_REPORTER_H_
#define SERVER_CHIEF_REPORT_REPORTER_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "proto/chief.pb.h"
#include "proto/ps.pb.h"
#include "proto/report.pb.h"
#include "server/chief/report/curve.h"
#include "server/chief/report/shard_meter.h"
#include "server/chief/report/worker_meter.h"

namespace weir {

class Reporter {
 public:
  static constexpr size_t kEventsMax = 100;
  static constexpr size_t kLayersMax = 64;

  Reporter(int workers, int shards) : workers_(workers), shards_(shards) {}

  // A heartbeat of the slot that it names, which was not counted before.
  void AddProgress(const Progress& progress, int64_t now_ns);
  void AddShard(int shard, const PsStatus& status, int64_t now_ns);
  void AddEvent(bool warning, const std::string& text, int64_t wall_ns);
  void CheckpointCommitted(const std::string& name, double bytes,
                           double seconds, int64_t now_ns);
  void CheckpointFailed() { ++checkpoint_failures_; }

  Curve& curve() { return curve_; }
  const Curve& curve() const { return curve_; }

  // Fills all that follows from these, and the cause. `report` has the job's
  // own figures, and one worker and one shard for each, with their states.
  // `variables` are the names, in forward order.
  void Fill(const std::vector<std::string>& variables, int64_t now_ns,
            JobReport* report) const;

  // The newest status of a shard, without its declaration.
  const PsStatus& shard(int s) const {
    return shards_[static_cast<size_t>(s)].newest();
  }

 private:
  void FillLast(JobReport* report) const;
  void FillLayers(const std::vector<std::string>& variables,
                  JobReport* report) const;
  void FillTables(JobReport* report) const;

  std::vector<WorkerMeter> workers_;
  std::vector<ShardMeter> shards_;
  std::deque<EventReport> events_;
  Curve curve_;
  CheckpointReport checkpoint_;
  int64_t checkpoint_committed_ns_ = 0;
  uint64_t checkpoint_failures_ = 0;
};

}  // namespace weir

#endif  // SERVER_CHIEF_REPORT_REPORTER_H_
