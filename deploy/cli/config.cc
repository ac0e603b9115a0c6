// weir config check: prints what TF_CONFIG, the environment, flags and a job
// file mean together.
// weir config explain: prints what a field of a job file means.
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "deploy/cli/command.h"
#include "deploy/render/data_shape.h"
#include "proto/job/job_spec_reference.h"
#include "proto/job/job_spec_text.h"
#include "proto/job/tf_config.h"
#include "proto/wire/declaration_io.h"
#include "worker/model/graph.h"

namespace weir {
namespace {

struct Options {
  std::string field;
  bool markdown = false;
  std::string job;
  std::vector<std::string> sets;
  ClusterSources sources = ClusterSources::FromEnv();
};

// Checks the layers as a worker will. Where the sizes of a sample are in files
// it returns a line that says so; else "".
absl::StatusOr<std::string> CheckModel(const JobSpec& spec) {
  WEIR_ASSIGN_OR_RETURN(const DataShape shape,
                        ShapeOfData(spec.data().train(), /*local_data=*/"",
                                    spec.seed(), "data.train"));
  if (!shape.unknown.empty()) {
    return absl::StrCat("model not checked: ", shape.unknown, "\n");
  }
  WEIR_RETURN_IF_ERROR(BuildGraph(spec.model(), shape.features,
                                  {TablesFromSpec(spec), shape.id_names})
                           .status());
  return std::string();
}

absl::Status Check(const Options& options) {
  ClusterSources sources = options.sources;
  // A cluster given by hand may be looked at from outside; TF_CONFIG is always
  // some task's.
  sources.task_required =
      sources.flag_cluster.empty() && sources.weir_cluster.empty();
  WEIR_ASSIGN_OR_RETURN(const ClusterSpec cluster, ResolveCluster(sources));
  if (options.job.empty()) {
    if (!options.sets.empty()) {
      return absl::InvalidArgumentError("--set needs --job FILE");
    }
    std::printf("%s", cluster.ToString().c_str());
    return absl::OkStatus();
  }
  WEIR_ASSIGN_OR_RETURN(const JobSpec spec,
                        LoadJobSpec(options.job, options.sets));
  WEIR_ASSIGN_OR_RETURN(const std::string unchecked, CheckModel(spec));
  std::printf("%sjob %s\nhash %s\n%s", cluster.ToString().c_str(),
              spec.name().c_str(), JobSpecHash(spec).c_str(),
              unchecked.c_str());
  return absl::OkStatus();
}

absl::Status Explain(const Options& options) {
  WEIR_ASSIGN_OR_RETURN(std::string text, ExplainField(options.field));
  if (options.markdown) {
    text = JobSpecPage();
  }
  std::printf("%s", text.c_str());
  return absl::OkStatus();
}

// Runs kRun. Whatever is wrong, the user who typed it has to mend it. So the
// exit code is 2 for every error, also for a job file that is not there.
template <absl::Status (*kRun)(const Options&)>
absl::StatusOr<int> RunForUser(const Options& options) {
  const absl::Status status = kRun(options);
  if (status.ok()) {
    return 0;
  }
  return absl::InvalidArgumentError(status.message());
}

}  // namespace

void AddConfigCommand(CLI::App* app, Command* command) {
  auto options = std::make_shared<Options>();
  CLI::App* config = AddCommandGroup(
      app, "config", "check the configuration, or explain a job file");
  CLI::App* check =
      AddSubcommand(config, "check",
                    "print the cluster and its fingerprint, or what is wrong",
                    options, RunForUser<Check>, command);
  AddOption(check, "--job", &options->job, "job file to check too");
  AddOption(check, "--set", &options->sets, "path=value, overrides the job");
  AddOption(check, "--cluster", &options->sources.flag_cluster,
            "ps=host:port,...;worker=...");
  AddOption(check, "--task_type", &options->sources.flag_task_type, "role");
  AddOption(check, "--task_index", &options->sources.flag_task_index, "index");
  CLI::App* explain = AddSubcommand(
      config, "explain", "print what a field of a job file means, or list all",
      options, RunForUser<Explain>, command);
  AddOption(explain, "field", &options->field,
            "path of the field, as in train.batch_size");
  AddFlag(explain, "--markdown", &options->markdown,
          "print docs/job_spec.md: all fields");
}

}  // namespace weir
