#include "proto/task/job_flags.h"

#include "common/base/logging.h"
#include "common/flags/flags.h"

namespace weir {

void AddJobFlags(CLI::App* app, const std::string& job, std::string* path,
                 std::vector<std::string>* sets, std::string* data_dir) {
  AddOption(app, job, path, "job file").Required();
  AddOption(app, "--set", sets,
            "path=value, overrides a field of the job file");
  AddOption(app, "--data_dir", data_dir, "where the job's data paths begin");
}

void AddLogFlags(CLI::App* app, LogOptions* options) {
  const auto check = [](std::string LogOptions::*value) {
    return [value](const std::string& text) {
      LogOptions given;
      given.*value = text;
      return std::string(given.Validate().message());
    };
  };
  AddOption(app, "--log_level", &options->levels,
            "what is logged: debug, info, warn or error, then if wanted "
            "another level for a module: info,server/chief=debug; "
            "default WEIR_LOG_LEVEL")
      .Check(check(&LogOptions::levels));
  AddOption(app, "--log_format", &options->format,
            "text, or json: each line an object; default "
            "WEIR_LOG_FORMAT")
      .Check(check(&LogOptions::format));
}

void AddCheckpointsFlag(CLI::App* app, std::string* checkpoints) {
  AddOption(app, "--checkpoints", checkpoints,
            "where checkpoints, curves and DONE are, if not in the run's "
            "directory: s3://BUCKET/PREFIX, the same for all tasks");
}

void AddDeviceFlags(CLI::App* app, std::string* device, std::string* plugin) {
  AddOption(app, "--device", device,
            "where to compute: auto (a GPU if there is one), cpu, cuda, "
            "cuda:N, or for a worker several GPUs: cuda:N,M or cuda:all")
      .ShowDefault();
  AddOption(app, "--device_plugin", plugin,
            "file of the GPU's plug-in; default beside the programs");
}

}  // namespace weir
