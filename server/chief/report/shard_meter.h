// What one shard did lately, from its status.
//
// Place: the Reporter has one for each shard. The chief asks every ps for its
// status about once a second.
//
// Threads: compatible.
#ifndef SERVER_CHIEF_REPORT_SHARD_METER_H_
#define SERVER_CHIEF_REPORT_SHARD_METER_H_

#include <cstdint>
#include <vector>

#include "proto/ps.pb.h"
#include "proto/report.pb.h"
#include "server/chief/report/moving_window.h"

namespace weir {

class ShardMeter {
 public:
  // Takes an answer of GetStatus, of a job with `slots` slots.
  void Add(const PsStatus& status, int slots, int64_t now_ns);

  // Fills what follows from the answers.
  void Fill(ShardReport* report) const;

  // Sync, in the window: blocks' steps that contributions completed, by slot,
  // and for how many seconds each was the only one that lacked. Adds to both.
  void AddLast(std::vector<double>* count, std::vector<double>* seconds) const;

  const PsStatus& newest() const { return newest_; }

 private:
  PsStatus newest_;
  MovingWindow<PsStatus> window_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_REPORT_SHARD_METER_H_
