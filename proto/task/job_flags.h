// Flags that many programs have.
//
// Place: mains and the commands of `weir` add them to their CLI11 app.
#ifndef PROTO_TASK_JOB_FLAGS_H_
#define PROTO_TASK_JOB_FLAGS_H_

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace weir {

struct LogOptions;

// Adds the job file, which is required, under the name `job`: "--job", or "job"
// for a word without a flag. Adds --set and --data_dir.
void AddJobFlags(CLI::App* app, const std::string& job, std::string* path,
                 std::vector<std::string>* sets, std::string* data_dir);

// Adds --log_level and --log_format.
void AddLogFlags(CLI::App* app, LogOptions* options);

// Adds --checkpoints: where a run keeps what outlives it, if that is not its
// work directory.
void AddCheckpointsFlag(CLI::App* app, std::string* checkpoints);

// Adds --device and --device_plugin; see worker/compute/factory.h.
void AddDeviceFlags(CLI::App* app, std::string* device, std::string* plugin);

}  // namespace weir

#endif  // PROTO_TASK_JOB_FLAGS_H_
