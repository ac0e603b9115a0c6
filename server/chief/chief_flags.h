// The flags of whoever runs the chief: weir_chief, or worker 0 that hosts it.
#ifndef SERVER_CHIEF_CHIEF_FLAGS_H_
#define SERVER_CHIEF_CHIEF_FLAGS_H_

#include <string>

#include "client/cc/transport/transport.h"
#include "proto/job_spec.pb.h"
#include "proto/task/task_main.h"
#include "server/chief/chief_server.h"

namespace CLI {
class App;
}  // namespace CLI

namespace weir {

struct ChiefFlags {
  std::string workdir;
  std::string checkpoints;  // "": in workdir
  bool allow_unguarded = false;
  std::string init_from;
  bool resume = false;
  bool allow_older = false;
  bool evaluator_expected = false;
};

void AddChiefFlags(CLI::App* app, ChiefFlags* flags);

// Returns how the chief of the task's cluster is to run the job `spec`.
ChiefServer::Options ChiefOptions(const ChiefFlags& flags, const JobSpec& spec,
                                  const Task& task, Transport* transport);

}  // namespace weir

#endif  // SERVER_CHIEF_CHIEF_FLAGS_H_
