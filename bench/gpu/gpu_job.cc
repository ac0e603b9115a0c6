#include "bench/gpu/gpu_job.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/gpu/gpu_models.h"
#include "bench/support/cluster.h"
#include "bench/support/timing.h"
#include "common/base/status.h"
#include "common/math/random.h"
#include "proto/job/job_spec_text.h"

namespace weir {
namespace {

using Json = nlohmann::json;

constexpr char kLog[] = "/tmp/weir_gpu_bench.log";
constexpr int64_t kStepsDefault = 200;
constexpr int64_t kBatchesOfData = 2;  // that differ

void AppendBigEndian(uint32_t value, std::string* bytes) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes->push_back(static_cast<char>(value >> shift));
  }
}

// Random bytes below `bound` as an IDX file of that shape.
absl::Status WriteIdx(const std::string& path,
                      const std::vector<int64_t>& shape, uint32_t bound) {
  std::string bytes = {0, 0, 8, static_cast<char>(shape.size())};
  int64_t elements = 1;
  for (const int64_t dimension : shape) {
    AppendBigEndian(static_cast<uint32_t>(dimension), &bytes);
    elements *= dimension;
  }
  RandomStream random(elements);
  for (int64_t i = 0; i < elements; ++i) {
    bytes.push_back(static_cast<char>(random.NextBelow(bound)));
  }
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  return file.flush() ? absl::OkStatus()
                      : absl::UnavailableError("cannot write " + path);
}

absl::Status WriteData(const GpuModel& model, const std::string& folder) {
  const int64_t samples = kBatchesOfData * model.batch;
  std::vector<int64_t> shape = model.sample_shape;
  shape.insert(shape.begin(), samples);
  WEIR_RETURN_IF_ERROR(WriteIdx(folder + "/images", shape, 256));
  return WriteIdx(folder + "/labels", {samples},
                  static_cast<uint32_t>(std::min<int64_t>(256, model.classes)));
}

JobSpec MakeJob(const GpuModel& model, const std::string& precision, bool sync,
                int64_t steps) {
  JobSpec job;
  job.set_name(absl::StrCat("gpu_bench_", model.name));
  job.set_seed(1);
  *job.mutable_model() = model.spec;
  IdxSource* const idx = job.mutable_data()->mutable_train()->mutable_idx();
  idx->set_images("images");
  idx->set_labels("labels");
  idx->set_mean(0.5f);
  idx->set_stddev(0.3f);
  job.mutable_train()->set_batch_size(static_cast<uint32_t>(model.batch));
  job.mutable_train()->set_steps(static_cast<uint64_t>(steps));
  job.mutable_optimizer()->mutable_sgd();
  job.mutable_schedule()->set_learning_rate(1e-4);
  if (sync) {
    job.mutable_update()->mutable_sync();
  } else {
    job.mutable_update()->mutable_async();
  }
  job.mutable_compute()->set_precision(JobPrecisionOf(precision));
  return job;
}

// Runs the job whose data is in `folder`; returns its summary's phases.
absl::StatusOr<Json> RunJob(const GpuFlags& flags, const JobSpec& job,
                            const std::string& folder) {
  const std::string workdir = folder + "/run";
  std::error_code ignored;
  std::filesystem::remove_all(workdir, ignored);
  WEIR_RETURN_IF_ERROR(
      Say(folder + "/job.textproto", CanonicalJobSpecText(job)));
  std::vector<std::string> argv = {flags.bin_dir + "/deploy/cli/weir_cli",
                                   "train",
                                   folder + "/job.textproto",
                                   "--data_dir",
                                   folder,
                                   "--ps",
                                   "1",
                                   "--workers",
                                   "1",
                                   "--max_restarts",
                                   "0",
                                   "--workdir",
                                   workdir,
                                   "--device",
                                   flags.device};
  if (flags.channels > 0) {
    argv.insert(argv.end(),
                {"--channels_per_peer", absl::StrCat(flags.channels)});
  }
  if (!flags.device_plugin.empty()) {
    argv.insert(argv.end(), {"--device_plugin", flags.device_plugin});
  }
  std::filesystem::remove(kLog, ignored);
  WEIR_ASSIGN_OR_RETURN(const auto child, Child::Start(argv, kLog));
  child->Wait();
  std::ifstream file(workdir + "/summary.json");
  const Json summary = Json::parse(file, nullptr, false);
  if (!summary.is_object() || summary.value("status", "") != "done" ||
      !summary["phases"].is_object()) {
    return absl::UnavailableError(
        absl::StrCat(job.name(), " did not train; see ", kLog));
  }
  return summary["phases"];
}

void PrintJob(const Json& json) {
  const Json& phases = json["phases"];
  const auto ms = [&phases](const std::string& name) {
    return phases.value(name + "_ms", 0.0);
  };
  std::printf("%-8s %-4s %-5s %8.2f", json["model"].get<std::string>().c_str(),
              json["precision"].get<std::string>().c_str(),
              json["mode"].get<std::string>().c_str(), ms("step"));
  const char* largest = "data";
  double largest_ms = 0;
  for (const char* name : {"compute", "data_wait", "pull_wait", "push_wait"}) {
    std::printf(" %10.2f", ms(name));
    if (ms(name) > largest_ms) {
      largest = name;
      largest_ms = ms(name);
    }
  }
  if (phases.contains("gpu_busy_share")) {
    std::printf(" %8.0f%%", 100 * phases["gpu_busy_share"].get<double>());
  } else {
    std::printf(" %9s", "-");
  }
  std::printf("  %s\n", largest);
  std::fflush(stdout);
}

}  // namespace

absl::StatusOr<Json> MeasureJobs(const GpuFlags& flags) {
  std::printf("%-8s %-4s %-5s %8s %10s %10s %10s %10s %9s  %s\n", "model", "",
              "mode", "step, ms", "compute", "data wait", "pull wait",
              "push wait", "GPU busy", "largest");
  Json results = Json::array();
  WEIR_ASSIGN_OR_RETURN(const auto folder, RunDirectory::Create());
  for (const std::string& name : flags.models) {
    WEIR_ASSIGN_OR_RETURN(GpuModel model, MakeGpuModel(name));
    model.batch = flags.batch > 0 ? flags.batch : model.batch;
    WEIR_RETURN_IF_ERROR(WriteData(model, folder->path()));
    for (const std::string& precision : flags.precisions) {
      for (const bool sync : {false, true}) {
        const JobSpec job =
            MakeJob(model, precision, sync,
                    flags.steps > 0 ? flags.steps : kStepsDefault);
        WEIR_ASSIGN_OR_RETURN(Json phases, RunJob(flags, job, folder->path()));
        Json json = {{"model", name},
                     {"precision", precision},
                     {"batch", model.batch},
                     {"mode", sync ? "sync" : "async"},
                     {"phases", std::move(phases)}};
        PrintJob(json);
        results.push_back(std::move(json));
      }
    }
  }
  return results;
}

}  // namespace weir
