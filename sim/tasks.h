// The processes of a simulated job: what a main function makes of the product's
// own parts, with the simulated network and store under them.
//
// Threads: for fibres. Each runs in a process of its own, which has joined the
//   network.
#ifndef SIM_TASKS_H_
#define SIM_TASKS_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/job_spec.pb.h"
#include "sim/network.h"
#include "sim/object_store.h"
#include "sim/world.h"

namespace weir::sim {

inline constexpr char kRunPlace[] = "s3://sim/run";  // as --checkpoints

// What all tasks of a job know.
struct JobPlace {
  JobSpec spec;  // resolved
  std::string spec_text;
  std::vector<std::string> ps_addresses;
  int worker_count = 0;
  Network* network = nullptr;
  SimObjectStore* objects = nullptr;
  WorldCounts* counts = nullptr;
};

// One process of a task.
struct ProcessRun {
  int process = 0;
  std::optional<int> exit_code;   // its main function has returned
  std::string words;              // why
  std::function<void()> on_term;  // for a fibre of the process
};

// They return when and why the process ends.
absl::Status RunPs(const JobPlace& place, int index, ProcessRun* run);
absl::Status RunChief(const JobPlace& place, ProcessRun* run);
absl::Status RunWorker(const JobPlace& place, int index, ProcessRun* run);

}  // namespace weir::sim

#endif  // SIM_TASKS_H_
