// What the chief's decisions are told once, when the chief starts.
//
// Place: the mains fill in what they know of the job from flags and job file
// (ChiefRunner::Options), chief_runner.cc adds what the work directory says,
// and JobState keeps a copy.
#ifndef SERVER_CHIEF_STATE_JOB_OPTIONS_H_
#define SERVER_CHIEF_STATE_JOB_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "proto/checkpoint.pb.h"
#include "proto/chief.pb.h"
#include "server/chief/state/train_log.h"

namespace weir {

struct JobOptions {
  // The workers bring the job; of `spec` only checkpoint and limits count.
  bool sdk_job = false;
  JobSpec spec;  // resolved
  std::vector<std::string> ps_addresses;
  int worker_count = 1;
  uint64_t cluster_fingerprint = 0;
  bool resume = false;
  std::string init_from;  // a safetensors file; empty: initialisers
  bool evaluator_expected = false;
  Clock* clock = Clock::Real();

  // What the work directory says.
  std::string checkpoint_directory;    // absolute
  std::string chief_secret;            // the work directory's; may be empty
  std::vector<TrainLine> train_lines;  // in train.jsonl already
  std::optional<Manifest> newest;      // committed by an earlier chief
  bool newest_finished = false;        // it has kFinishedName
  // An earlier chief had this very directory and committed nothing in it.
  bool never_saved = false;
  std::optional<std::string> done_job;  // the job is done: its name
  // The same of a job that its workers may go on with, if they come.
  std::optional<std::string> finished_job;
  std::function<uint64_t()> random;  // history ids

  // How long the chief waits for each of these, in seconds.
  double start_wait = 180.0;   // for the ps, at the first start
  double worker_wait = 300.0;  // for any progress at all
  double torn_wait = 60.0;     // a checkpoint, for a dead worker's successor
  double hold_wait = 10.0;     // a checkpoint, for workers to hold
  double end_wait = 10.0;      // for workers to hear of the end and leave
  double fail_wait = 2.0;      // for the same, after an error
  double shutdown_wait = 5.0;  // for the ps to take Shutdown
};

}  // namespace weir

#endif  // SERVER_CHIEF_STATE_JOB_OPTIONS_H_
