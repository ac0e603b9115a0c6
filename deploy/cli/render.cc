// weir render TARGET JOB: see deploy/render/render.h.
#include "deploy/render/render.h"

#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/exit_code.h"
#include "common/base/status.h"
#include "common/base/version_text.h"
#include "common/io/files.h"
#include "deploy/cli/command.h"
#include "deploy/render/options.h"
#include "deploy/render/target.h"

namespace weir {
namespace {

struct Flags {
  RenderOptions options;
  std::string out;
  std::string containerfile;
  bool explain = false;
  std::vector<std::string> misplaced;  // words that are not behind --
};

absl::Status WriteText(const std::string& path, const std::string& text) {
  WEIR_ASSIGN_OR_RETURN(const auto writer, Files::Real()->Create(path));
  WEIR_RETURN_IF_ERROR(writer->Append(text.data(), text.size()));
  return writer->Close();
}

absl::StatusOr<int> Render(const Flags& flags) {
  if (!flags.misplaced.empty()) {
    return Invalid("write -- before a program: weir render ",
                   flags.options.target, " --image IMAGE -- ",
                   flags.misplaced[0], " ...");
  }
  if (!flags.containerfile.empty() && flags.options.command.empty()) {
    return absl::InvalidArgumentError(
        "--containerfile is for a user's program; Weir's own image is there "
        "for a job file");
  }
  WEIR_ASSIGN_OR_RETURN(const RenderedFiles files, RenderFiles(flags.options));
  if (flags.explain) {
    std::fputs(files.explanation.c_str(), stdout);
    return kExitOk;
  }
  if (!flags.containerfile.empty()) {
    WEIR_RETURN_IF_ERROR(WriteText(flags.containerfile, files.containerfile));
  }
  if (!flags.out.empty()) {
    WEIR_RETURN_IF_ERROR(WriteText(flags.out, files.manifest));
  } else {
    std::fputs(files.manifest.c_str(), stdout);
  }
  return kExitOk;
}

void AddTaskFlags(CLI::App* render, RenderOptions* options) {
  render->add_option("--name", options->name,
                     "of the objects; default the job's own");
  render->add_option("--namespace", options->name_space,
                     "of Kubernetes; default that of whoever applies the file");
  render->add_option("--ps", options->ps_count, "parameter servers")
      ->capture_default_str();
  render->add_option("--workers", options->worker_count, "workers")
      ->capture_default_str();
  render->add_flag("--chief,!--nochief", options->chief,
                   "a task of its own for the chief (default); else worker 0 "
                   "hosts it");
  // CLI11 would set an optional to 0 where nobody gives the flag.
  render->add_flag_function(
      "--evaluator,!--noevaluator",
      [options](int64_t count) { options->evaluator = count > 0; },
      "default: if the job has an evaluation section");
  render->add_option("--evaluator_command", options->evaluator_command,
                     "the evaluator of a user's program, in quotes");
  render->add_option("--port", options->port,
                     "of every task, 2222; of Slurm's tasks on a node: the "
                     "first, by default from the job's number");
  render
      ->add_option("--grace", options->grace_seconds,
                   "seconds that a task has to save the job after SIGTERM")
      ->capture_default_str();
  render->add_flag("--allow_older", options->allow_older,
                   "as of `weir task`: if the newest checkpoint is damaged, go "
                   "on from the one before");
}

void AddImageFlags(CLI::App* render, Flags* flags) {
  RenderOptions* const options = &flags->options;
  render->add_option("--image", options->image,
                     "of all tasks; of a user's program: of its tasks");
  render
      ->add_option("--weir_image", options->weir_image,
                   "of the other tasks beside a user's program")
      ->capture_default_str();
  render->add_option("--containerfile", flags->containerfile,
                     "write there how to build a user's image");
  render->add_option("--gpu", options->gpus,
                     "GPUs of each worker, and one of the evaluator; --image "
                     "must have CUDA's libraries");
  render
      ->add_option("--device", options->device,
                   "as of `weir train`; default by --gpu")
      ->capture_default_str();
  render->add_option("--cpu", options->cpus, "ROLE=CPUS, such as ps=2")
      ->allow_extra_args(false);
  render
      ->add_option("--memory", options->memories,
                   "ROLE=AMOUNT, such as ps=4Gi; default computed")
      ->allow_extra_args(false);
}

void AddDataFlags(CLI::App* render, RenderOptions* options) {
  render->add_option("--data_dir", options->data_dir,
                     "where the data is in a container; default /data");
  render->add_option("--data_claim", options->data_claim,
                     "the data is in this volume claim (compose: volume or "
                     "folder), mounted for reading");
  render->add_option("--data_image_path", options->data_image_path,
                     "the data is in the image, in this folder");
  render->add_option("--data_bucket", options->data_bucket,
                     "the data is copied from s3://... or gs://... at the "
                     "start, by --data_copy_image");
  render->add_option("--data_copy_image", options->data_copy_image,
                     "an image with `aws` or `gcloud`");
  render->add_option("--local_data", options->local_data,
                     "where the data is here: read, to compute memory");
  render->add_option("--storage", options->storage,
                     "size of the run's volume; default computed");
  render->add_option("--storage_class", options->storage_class,
                     "of the run's volume; it must be ReadWriteMany");
  render->add_option("--run_claim", options->run_claim,
                     "a volume claim that is there, in place of a new one");
}

void AddStoreFlags(CLI::App* render, RenderOptions* options) {
  render->add_option("--checkpoints", options->checkpoints,
                     "s3://BUCKET/PREFIX, where the run's checkpoints and "
                     "curves go in place of a volume");
  render->add_option("--store_endpoint", options->store_endpoint,
                     "of another store than AWS's: http://minio:9000");
  render->add_option("--store_region", options->store_region,
                     "of the bucket of --checkpoints or of the data");
  render->add_option("--store_secret", options->store_secret,
                     "the Secret whose key `credentials` is AWS's file of that "
                     "name; default the service account's own rights");
  render->add_flag("--allow_unguarded", options->allow_unguarded,
                   "as of `weir task`: train even if the store lets two chiefs "
                   "write over each other's checkpoints");
}

void AddKubernetesFlags(CLI::App* render, RenderOptions* options) {
  render->add_option("--queue", options->queue,
                     "of Kueue, of Volcano; Slurm's partition");
  render
      ->add_option("--tolerate", options->tolerations,
                   "ROLE:KEY[=VALUE][:EFFECT], such as "
                   "worker:spot=true:NoSchedule")
      ->allow_extra_args(false);
  render
      ->add_option("--node", options->node_selectors,
                   "ROLE:LABEL=VALUE, such as worker:pool=gpu")
      ->allow_extra_args(false);
  render->add_option("--service_account", options->service_account,
                     "of the pods, for a bucket's permissions");
  render->add_option("--secret", options->secret,
                     "the Secret with the key WEIR_SECRET; default "
                     "<name>-secret");
  render->add_flag("--tls", options->tls,
                   "certificates in place of a secret: from the Secrets "
                   "<name>-<role>-tls");
  render->add_flag("--metrics", options->metrics,
                   "show health and metrics of every task of Weir to the "
                   "cluster's Prometheus, at port 9464");
}

}  // namespace

void AddRenderCommand(CLI::App* app, const std::vector<std::string>& words,
                      Command* command) {
  auto flags = std::make_shared<Flags>();
  RenderOptions* const options = &flags->options;
  options->version = kVersionText;
  options->weir_image = absl::StrCat("weir:", kVersionText);
  options->command = words;
  CLI::App* const render = AddSubcommand(
      app, "render",
      "write the files with which a cluster runs a job, or your own program:\n"
      "  weir render k8s job.textproto --ps 2 --workers 4 | kubectl apply -f "
      "-\n"
      "  weir render k8s --workers 4 --image my/image -- python train.py",
      flags, Render, command);
  render
      ->add_option("target", options->target,
                   absl::StrJoin(TargetNames(), ", "))
      ->required();
  render->add_option("job", options->job_path,
                     "job file; none for a program after --");
  render->add_option("program", flags->misplaced, "after --")->group("");
  render
      ->add_option("--set", options->sets,
                   "path=value, overrides a field of the job file")
      ->allow_extra_args(false);
  render->add_option("--out", flags->out, "write there, not to stdout");
  render->add_flag("--explain", flags->explain,
                   "print why each value is as it is, in place of the file");
  AddTaskFlags(render, options);
  AddImageFlags(render, flags.get());
  AddDataFlags(render, options);
  AddStoreFlags(render, options);
  AddKubernetesFlags(render, options);
  render->footer(
      "A secret's value is in no file: the first lines say how it is made.");
}

}  // namespace weir
