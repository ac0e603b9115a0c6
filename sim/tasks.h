// The processes of a simulated job: what a main function makes of the product's
// own parts, with the simulated network and store under them.
//
// Threads: for fibres. Each runs in a process of its own, which has joined the
//   network.
#ifndef SIM_TASKS_H_
#define SIM_TASKS_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/io/object_store.h"
#include "deploy/launcher/supervisor.h"
#include "proto/job_spec.pb.h"
#include "sim/job_plan.h"
#include "sim/network.h"
#include "sim/world.h"

namespace weir::sim {

inline constexpr char kChief[] = "chief:1";  // its address

// What the programs of a job of scripts do.
struct ScriptOptions {
  Mode mode = Mode::kAsync;
  uint64_t pushes = 0;  // of each rank
  bool table = false;   // each push has rows, too
  // Of JobPlan.
  int optimizer = 0;
  int row_optimizer = 0;
  std::chrono::nanoseconds rest{0};  // before each
  // Hears the pushes of a rank that its program knows to be taken.
  std::function<void(int rank, uint64_t pushes)> on_pushes;
};

// What all tasks of a job know.
struct JobPlace {
  JobSpec spec;  // resolved
  std::string spec_text;
  std::string run;  // as --workdir, or as --checkpoints
  std::vector<std::string> ps_addresses;
  int worker_count = 0;
  std::string data_dir;
  std::optional<ScriptOptions> script;  // else a job file
  bool has_evaluator = false;
  bool allow_older = false;  // as --allow_older
  Network* network = nullptr;
  ObjectStore* objects = nullptr;
  WorldCounts* counts = nullptr;
};

// With what the plan says of the job; the rest is for the caller.
JobPlace MakePlace(const JobPlan& plan, const std::string& data_dir);

// One process of a task.
struct ProcessRun {
  int process = 0;
  std::chrono::nanoseconds started{0};
  bool port_is_taken = false;    // on its host, by another process
  bool allows_older = false;     // --allow_older
  uint64_t rotten = 0;           // bits that had changed when it was started
  std::optional<int> exit_code;  // its main function has returned
  std::string words;             // why
  // On a fibre of the process: what SIGTERM does, also one that came before.
  void OnTerm(std::function<void()> stop) {
    on_term = std::move(stop);
    if (terminated && on_term) {
      on_term();
    }
  }

  std::function<void()> on_term;
  bool terminated = false;  // SIGTERM came
};

// One task of the job and its `weir task`, which starts it again.
struct Task {
  // With a new `weir task`, which has not started it yet.
  void StartWeirTask();
  bool runs() const { return run != nullptr && !run->exit_code.has_value(); }
  // With a code after which nobody starts it again.
  bool ended_for_good() const;

  std::string role;
  int index = 0;
  bool is_script = false;  // a program of a user
  std::string name;
  std::unique_ptr<Supervisor> supervisor;
  std::shared_ptr<ProcessRun> run;         // null: none runs
  std::optional<int> ended;                // with which code `weir task` ended
  std::chrono::nanoseconds again_at{0};    // when it is started once more
  std::chrono::nanoseconds away_until{0};  // not before, after SIGTERM
  // Its process was killed, and `weir task` hears of it then.
  std::optional<std::chrono::nanoseconds> back_at;
};

// A process that is there still, though another one has its task's place.
struct Stray {
  Task* task = nullptr;
  std::shared_ptr<ProcessRun> run;
  std::chrono::nanoseconds end{0};  // then it is killed
};

// They return when and why the process ends.
absl::Status RunPs(const JobPlace& place, int index, ProcessRun* run);
absl::Status RunChief(const JobPlace& place, ProcessRun* run);
absl::Status RunWorker(const JobPlace& place, int index, ProcessRun* run);
absl::Status RunEvaluator(const JobPlace& place, ProcessRun* run);

}  // namespace weir::sim

#endif  // SIM_TASKS_H_
