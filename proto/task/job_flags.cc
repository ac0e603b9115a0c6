#include "proto/task/job_flags.h"

#include <CLI/CLI.hpp>

#include "common/base/logging.h"

namespace weir {

void AddJobFlags(CLI::App* app, const std::string& job, std::string* path,
                 std::vector<std::string>* sets, std::string* data_dir) {
  app->add_option(job, *path, "job file")->required();
  app->add_option("--set", *sets,
                  "path=value, overrides a field of the job file");
  app->add_option("--data_dir", *data_dir, "where the job's data paths begin");
}

void AddLogFlags(CLI::App* app, LogOptions* options) {
  const auto check = [](std::string LogOptions::*value) {
    return [value](const std::string& text) {
      LogOptions given;
      given.*value = text;
      return std::string(given.Validate().message());
    };
  };
  app->add_option("--log_level", options->levels,
                  "what is logged: debug, info, warn or error, then if wanted "
                  "another level for a module: info,server/chief=debug; "
                  "default WEIR_LOG_LEVEL")
      ->check(check(&LogOptions::levels));
  app->add_option("--log_format", options->format,
                  "text, or json: each line an object; default "
                  "WEIR_LOG_FORMAT")
      ->check(check(&LogOptions::format));
}

void AddCheckpointsFlag(CLI::App* app, std::string* checkpoints) {
  app->add_option("--checkpoints", *checkpoints,
                  "where checkpoints, curves and DONE are, if not in the run's "
                  "directory: s3://BUCKET/PREFIX, the same for all tasks");
}

void AddDeviceFlags(CLI::App* app, std::string* device, std::string* plugin) {
  app->add_option("--device", *device,
                  "where to compute: auto (a GPU if there is one), cpu, cuda, "
                  "cuda:N, or for a worker several GPUs: cuda:N,M or cuda:all")
      ->capture_default_str();
  app->add_option("--device_plugin", *plugin,
                  "file of the GPU's plug-in; default beside the programs");
}

}  // namespace weir
