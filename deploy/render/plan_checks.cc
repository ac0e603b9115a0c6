#include "deploy/render/plan_checks.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"
#include "common/job/cluster_spec.h"
#include "common/objects/any_store.h"
#include "deploy/render/data_shape.h"
#include "deploy/render/quantity.h"

namespace weir {
namespace {

// A ConfigMap holds 1 MiB, and the object has more than the file.
constexpr size_t kJobBytesMax = 1000000;
constexpr int kGraceSecondsMax = 3600;
constexpr int kGpusMax = 64;  // of one host

absl::Status CheckCounts(const RenderOptions& options) {
  const std::pair<const char*, int> counts[] = {
      {"--ps", options.ps_count}, {"--workers", options.worker_count}};
  for (const auto& [flag, count] : counts) {
    if (count < 1 || count > ClusterSpec::kMaxTasks) {
      return Invalid(flag, " ", count, ": a job has 1 to ",
                     ClusterSpec::kMaxTasks, " of them");
    }
  }
  if (options.port != 0 && (options.port < 1024 || options.port > 65535)) {
    return Invalid("--port ", options.port,
                   ": choose one from 1024 to 65535, which a task may open "
                   "that is not root");
  }
  if (options.grace_seconds < 1 || options.grace_seconds > kGraceSecondsMax) {
    return Invalid("--grace ", options.grace_seconds, ": choose 1 to ",
                   kGraceSecondsMax, " seconds");
  }
  if (options.gpus < 0 || options.gpus > kGpusMax) {
    return Invalid("--gpu ", options.gpus, ": choose 0 to ", kGpusMax);
  }
  return absl::OkStatus();
}

absl::Status CheckGpu(const RenderOptions& options) {
  const bool cuda = absl::StartsWith(options.device, "cuda");
  if (cuda && options.gpus == 0) {
    return Invalid("--device ", options.device,
                   ": say how many GPUs a worker has, with --gpu");
  }
  if (options.device == "cpu" && options.gpus > 0) {
    return Invalid("--device cpu --gpu ", options.gpus, ": leave one out");
  }
  if (options.gpus > 0 && options.target != "slurm" &&
      (options.image.empty() || options.image == options.weir_image)) {
    return Invalid("--gpu ", options.gpus, ": the image ", options.weir_image,
                   " has no CUDA libraries; name one that has them, such as ",
                   "--image ", options.weir_image, "-gpu of weir image --gpu");
  }
  return absl::OkStatus();
}

absl::Status CheckDataOptions(const RenderOptions& options) {
  const bool in_store = IsObjectUrl(options.data_dir);
  const int sources = static_cast<int>(in_store) +
                      static_cast<int>(!options.data_claim.empty()) +
                      static_cast<int>(!options.data_image_path.empty()) +
                      static_cast<int>(!options.data_bucket.empty());
  if (sources > 1) {
    return absl::InvalidArgumentError(
        "--data_claim, --data_image_path, --data_bucket and a URL of "
        "--data_dir: the data comes from one of them");
  }
  if (!options.data_bucket.empty() &&
      !absl::StartsWith(options.data_bucket, "s3://") &&
      !absl::StartsWith(options.data_bucket, "gs://")) {
    return Invalid("--data_bucket ", options.data_bucket,
                   ": write s3://BUCKET/FOLDER or gs://BUCKET/FOLDER");
  }
  if (options.data_bucket.empty() != options.data_copy_image.empty()) {
    return absl::InvalidArgumentError(
        "--data_bucket and --data_copy_image go together: the image has the "
        "program that copies, aws or gcloud");
  }
  if (in_store) {
    return Annotate(CheckObjectUrl(options.data_dir), "--data_dir");
  }
  for (const std::string& folder :
       {options.data_dir, options.data_image_path}) {
    if (!folder.empty() && folder[0] != '/' && options.target != "slurm") {
      return Invalid("the data's folder ", folder,
                     " is one of the container: write a path from / on");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckVolumes(const RenderOptions& options) {
  if (!options.run_claim.empty() &&
      (!options.storage.empty() || !options.storage_class.empty())) {
    return absl::InvalidArgumentError(
        "--run_claim names a volume that is there: leave --storage and "
        "--storage_class out");
  }
  if (!options.storage.empty()) {
    WEIR_RETURN_IF_ERROR(
        Annotate(ParseMemory(options.storage).status(), "--storage"));
  }
  if (options.tls && !options.secret.empty()) {
    return absl::InvalidArgumentError(
        "--tls and --secret: the tasks prove who they are by certificates or "
        "by a secret; leave one out");
  }
  if (options.tls && options.name_space.empty() &&
      options.target != "compose" && options.target != "slurm") {
    return absl::InvalidArgumentError(
        "--tls: add --namespace, which the names in the certificates hold");
  }
  return absl::OkStatus();
}

absl::Status CheckStore(const RenderOptions& options) {
  const std::pair<const char*, const std::string*> of_store[] = {
      {"--store_endpoint", &options.store_endpoint},
      {"--store_region", &options.store_region},
      {"--store_secret", &options.store_secret}};
  const bool data_in_store = IsObjectUrl(options.data_dir) ||
                             absl::StartsWith(options.data_bucket, "s3://");
  if (options.checkpoints.empty()) {
    for (const auto& [flag, value] : of_store) {
      if (!value->empty() && !data_in_store) {
        return Invalid(flag,
                       ": name the place as well, by --checkpoints, --data_dir "
                       "or --data_bucket, s3://BUCKET/PREFIX");
      }
    }
  } else if (!IsObjectUrl(options.checkpoints)) {
    return Invalid("--checkpoints ", options.checkpoints,
                   ": write s3://BUCKET/PREFIX; a directory is the run's "
                   "volume, which --run_claim names");
  } else {
    WEIR_RETURN_IF_ERROR(
        Annotate(CheckObjectUrl(options.checkpoints), "--checkpoints"));
  }
  if (!options.checkpoints.empty() &&
      (!options.run_claim.empty() || !options.storage.empty() ||
       !options.storage_class.empty())) {
    return absl::InvalidArgumentError(
        "--checkpoints takes the place of the run's volume: leave --run_claim, "
        "--storage and --storage_class out");
  }
  if (!options.store_endpoint.empty()) {
    WEIR_RETURN_IF_ERROR(PortOfUrl(options.store_endpoint).status());
  }
  return absl::OkStatus();
}

absl::Status CheckJob(const RenderOptions& options, const RenderJob& job) {
  const JobSpec& spec = job.spec;
  if (job.text.size() > kJobBytesMax) {
    return Invalid(options.job_path, " has ", job.text.size(),
                   " bytes, and a ConfigMap holds ", kJobBytesMax,
                   "; put the job into an image");
  }
  const uint32_t per_step = spec.update().sync().contributions();
  if (per_step > 0 && options.worker_count > static_cast<int>(per_step)) {
    return Invalid("--workers ", options.worker_count,
                   ": update.sync.contributions is ", per_step,
                   ", so no more than that many workers have work; lower "
                   "--workers or raise the other");
  }
  if (options.evaluator.value_or(false) && !spec.has_evaluation()) {
    return Invalid("--evaluator: ", options.job_path,
                   " has no evaluation section");
  }
  if (!options.evaluator_command.empty()) {
    return absl::InvalidArgumentError(
        "--evaluator_command is for a user's program; for a job file write "
        "--evaluator");
  }
  const bool reads_files =
      ReadsFiles(spec.data().train()) || ReadsFiles(spec.evaluation().source());
  const bool has_data =
      !options.data_claim.empty() || !options.data_image_path.empty() ||
      !options.data_bucket.empty() || IsObjectUrl(options.data_dir) ||
      (options.target == "slurm" && !options.data_dir.empty());
  if (reads_files && !has_data) {
    return Invalid(options.job_path, " reads files: say where its tasks find ",
                   "them, with ",
                   options.target == "slurm"
                       ? "--data_dir"
                       : "--data_claim, --data_image_path, --data_bucket or "
                         "--data_dir s3://BUCKET/FOLDER");
  }
  return absl::OkStatus();
}

absl::Status CheckProgram(const RenderOptions& options) {
  if (!options.sets.empty() || !options.local_data.empty()) {
    return absl::InvalidArgumentError(
        "--set and --local_data are for a job file, and a user's program has "
        "none");
  }
  if (options.image.empty() && options.target != "slurm") {
    return absl::InvalidArgumentError(
        "a user's program needs an image that holds it: name it with --image; "
        "--containerfile FILE writes how to build one");
  }
  if (options.evaluator.value_or(false) && options.evaluator_command.empty()) {
    return absl::InvalidArgumentError(
        "--evaluator: name the program with --evaluator_command 'python ...'");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> PortOfUrl(absl::string_view url) {
  absl::string_view host = url;
  const char* port = ":443";
  bool known = absl::ConsumePrefix(&host, "https://");
  if (!known) {
    port = ":80";
    known = absl::ConsumePrefix(&host, "http://");
  }
  if (absl::StrContains(host, ':') && !absl::EndsWith(host, "]")) {
    port = "";  // it is written
  }
  const absl::StatusOr<HostPort> parsed =
      ParseHostPort(absl::StrCat(host, port));
  if (!known || !parsed.ok()) {
    return Invalid("--store_endpoint ", url,
                   ": write https://HOST or http://HOST:PORT");
  }
  return parsed->port;
}

absl::Status CheckRenderOptions(const RenderOptions& options,
                                const RenderJob* job) {
  WEIR_RETURN_IF_ERROR(CheckCounts(options));
  WEIR_RETURN_IF_ERROR(CheckGpu(options));
  WEIR_RETURN_IF_ERROR(CheckDataOptions(options));
  WEIR_RETURN_IF_ERROR(CheckVolumes(options));
  WEIR_RETURN_IF_ERROR(CheckStore(options));
  return job == nullptr ? CheckProgram(options) : CheckJob(options, *job);
}

}  // namespace weir
