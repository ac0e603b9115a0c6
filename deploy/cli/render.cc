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
  AddOption(render, "--name", &options->name,
            "of the objects; default the job's own");
  AddOption(render, "--namespace", &options->name_space,
            "of Kubernetes; default that of whoever applies the file");
  AddOption(render, "--ps", &options->ps_count, "parameter servers")
      .ShowDefault();
  AddOption(render, "--workers", &options->worker_count, "workers")
      .ShowDefault();
  AddFlag(render, "--chief,!--nochief", &options->chief,
          "a task of its own for the chief (default); else worker 0 "
          "hosts it");
  AddFlag(render, "--evaluator,!--noevaluator", &options->evaluator,
          "default: if the job has an evaluation section");
  AddOption(render, "--evaluator_command", &options->evaluator_command,
            "the evaluator of a user's program, in quotes");
  AddOption(render, "--port", &options->port,
            "of every task, 2222; of Slurm's tasks on a node: the "
            "first, by default from the job's number");
  AddOption(render, "--grace", &options->grace_seconds,
            "seconds that a task has to save the job after SIGTERM")
      .ShowDefault();
  AddFlag(render, "--allow_older", &options->allow_older,
          "as of `weir task`: if the newest checkpoint is damaged, go "
          "on from the one before");
}

void AddImageFlags(CLI::App* render, Flags* flags) {
  RenderOptions* const options = &flags->options;
  AddOption(render, "--image", &options->image,
            "of all tasks; of a user's program: of its tasks");
  AddOption(render, "--weir_image", &options->weir_image,
            "of the other tasks beside a user's program")
      .ShowDefault();
  AddOption(render, "--containerfile", &flags->containerfile,
            "write there how to build a user's image");
  AddOption(render, "--gpu", &options->gpus,
            "GPUs of each worker, and one of the evaluator; --image "
            "must have CUDA's libraries");
  AddOption(render, "--device", &options->device,
            "as of `weir train`; default by --gpu")
      .ShowDefault();
  AddOption(render, "--cpu", &options->cpus, "ROLE=CPUS, such as ps=2")
      .OneValueEach();
  AddOption(render, "--memory", &options->memories,
            "ROLE=AMOUNT, such as ps=4Gi; default computed")
      .OneValueEach();
}

void AddDataFlags(CLI::App* render, RenderOptions* options) {
  AddOption(render, "--data_dir", &options->data_dir,
            "where the data is in a container; default /data");
  AddOption(render, "--data_claim", &options->data_claim,
            "the data is in this volume claim (compose: volume or "
            "folder), mounted for reading");
  AddOption(render, "--data_image_path", &options->data_image_path,
            "the data is in the image, in this folder");
  AddOption(render, "--data_bucket", &options->data_bucket,
            "the data is copied from s3://... or gs://... at the "
            "start, by --data_copy_image");
  AddOption(render, "--data_copy_image", &options->data_copy_image,
            "an image with `aws` or `gcloud`");
  AddOption(render, "--local_data", &options->local_data,
            "where the data is here: read, to compute memory");
  AddOption(render, "--storage", &options->storage,
            "size of the run's volume; default computed");
  AddOption(render, "--storage_class", &options->storage_class,
            "of the run's volume; it must be ReadWriteMany");
  AddOption(render, "--run_claim", &options->run_claim,
            "a volume claim that is there, in place of a new one");
}

void AddStoreFlags(CLI::App* render, RenderOptions* options) {
  AddOption(render, "--checkpoints", &options->checkpoints,
            "s3://BUCKET/PREFIX, where the run's checkpoints and "
            "curves go in place of a volume");
  AddOption(render, "--store_endpoint", &options->store_endpoint,
            "of another store than AWS's: http://minio:9000");
  AddOption(render, "--store_region", &options->store_region,
            "of the bucket of --checkpoints or of the data");
  AddOption(render, "--store_secret", &options->store_secret,
            "the Secret whose key `credentials` is AWS's file of that "
            "name; default the service account's own rights");
  AddFlag(render, "--allow_unguarded", &options->allow_unguarded,
          "as of `weir task`: train even if the store lets two chiefs "
          "write over each other's checkpoints");
}

void AddKubernetesFlags(CLI::App* render, RenderOptions* options) {
  AddOption(render, "--queue", &options->queue,
            "of Kueue, of Volcano; Slurm's partition");
  AddOption(render, "--tolerate", &options->tolerations,
            "ROLE:KEY[=VALUE][:EFFECT], such as "
            "worker:spot=true:NoSchedule")
      .OneValueEach();
  AddOption(render, "--node", &options->node_selectors,
            "ROLE:LABEL=VALUE, such as worker:pool=gpu")
      .OneValueEach();
  AddOption(render, "--service_account", &options->service_account,
            "of the pods, for a bucket's permissions");
  AddOption(render, "--secret", &options->secret,
            "the Secret with the key WEIR_SECRET; default "
            "<name>-secret");
  AddFlag(render, "--tls", &options->tls,
          "certificates in place of a secret: from the Secrets "
          "<name>-<role>-tls");
  AddFlag(render, "--metrics", &options->metrics,
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
  AddOption(render, "target", &options->target,
            absl::StrJoin(TargetNames(), ", "))
      .Required();
  AddOption(render, "job", &options->job_path,
            "job file; none for a program after --");
  AddOption(render, "program", &flags->misplaced, "after --").Hidden();
  AddOption(render, "--set", &options->sets,
            "path=value, overrides a field of the job file")
      .OneValueEach();
  AddOption(render, "--out", &flags->out, "write there, not to stdout");
  AddFlag(render, "--explain", &flags->explain,
          "print why each value is as it is, in place of the file");
  AddTaskFlags(render, options);
  AddImageFlags(render, flags.get());
  AddDataFlags(render, options);
  AddStoreFlags(render, options);
  AddKubernetesFlags(render, options);
  SetFooter(
      render,
      "A secret's value is in no file: the first lines say how it is made.");
}

}  // namespace weir
