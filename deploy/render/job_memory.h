// How much memory the tasks of a job take, from its job file.
//
// Place: `weir render` asks for as much. The numbers come from those who take
// the memory: ShardPlan of a ps, the model's graph and StepMemory of a worker.
//
// Terms
//   need    what a task takes in ordinary training, part by part.
//   shape   what the model must know of the data: the features of a sample, and
//           the names of those that are ids. Some sources say it in the job
//           file; the others only in their files.
//
// Threads: safe.
// Errors: INVALID_ARGUMENT, NOT_FOUND  the model or the data is wrong; the
//                                      message names the field.
// Cost: with `local_data` that of reading the whole data.
#ifndef DEPLOY_RENDER_JOB_MEMORY_H_
#define DEPLOY_RENDER_JOB_MEMORY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"

namespace weir {

struct MemoryPart {
  std::string what;
  double bytes = 0.0;
};

struct MemoryNeed {
  std::vector<MemoryPart> parts;

  double total() const;
  // "values 0.4 MiB + optimizer state 0.8 MiB"; parts below 0.05 MiB are left
  // out.
  std::string ToString() const;
};

struct JobMemory {
  // Why nothing is known; the rest is empty then.
  std::string unknown;
  MemoryNeed ps;  // of the shard that takes most
  MemoryNeed worker;
  MemoryNeed evaluator;
  double checkpoint_bytes = 0.0;  // of all shards
  // What was taken for granted, in sentences.
  std::vector<std::string> assumptions;
};

struct JobMemoryOptions {
  int ps_count = 1;
  int worker_count = 1;
  // Where the job's data is on this machine; "": it is not read.
  std::string local_data;
};

// REQUIRES: `spec` has its defaults (LoadJobSpec).
absl::StatusOr<JobMemory> EstimateJobMemory(const JobSpec& spec,
                                            const JobMemoryOptions& options);

}  // namespace weir

#endif  // DEPLOY_RENDER_JOB_MEMORY_H_
