#include "server/chief/state/job_source.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"

namespace weir {

std::unique_ptr<JobSource> JobSource::Create(const JobOptions& options) {
  return options.sdk_job ? MakeSdkJob(options) : MakeSpecJob(options);
}

absl::Status JobSource::Check(const RegisterRequest& request) {
  const std::string who =
      absl::StrCat("worker ", request.rank(), " (", request.host(), ")");
  if (request.rank() >= static_cast<uint32_t>(options_.worker_count)) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, ": the cluster has ", options_.worker_count,
                     " workers; compare TF_CONFIG of both tasks"));
  }
  // 0: the worker was told only a part of the cluster and takes the ps from
  // its grant.
  if (request.cluster_fingerprint() != 0 &&
      request.cluster_fingerprint() != options_.cluster_fingerprint) {
    return absl::InvalidArgumentError(absl::StrCat(
        who, " lists other ps, or in another order, than the chief (",
        absl::StrJoin(options_.ps_addresses, ","),
        "); compare TF_CONFIG of both tasks"));
  }
  // I1, I2: each kind keeps what it compares with, and only behind its checks.
  return CheckJob(request, who);
}

void JobSource::Hold(const Declaration& declaration) {
  held_ = declaration;
  Expect(declaration);
}

uint64_t JobSource::ContributionsPerStep(int slot) const {
  const auto w = static_cast<uint32_t>(slot);
  const auto count = static_cast<uint32_t>(options_.worker_count);
  if (w >= per_step()) {
    return 0;  // fewer contributions in a step than workers
  }
  return (per_step() - w + count - 1) / count;
}

uint64_t JobSource::StepOf(int slot, const Roster::Worker& worker) const {
  return held_.base_version() +
         worker.next_sequence /
             std::max(ContributionsPerStep(slot), uint64_t{1});
}

uint64_t JobSource::PushesBefore(int slot) const {
  return slot < held_.pushes_before_size() ? held_.pushes_before(slot) : 0;
}

uint64_t JobSource::ContinueCurve(uint64_t step, TrainLog::Options* log) const {
  log->base_step = step;
  log->begin_ns = options_.clock->NowNs();
  uint64_t logged = 0;
  for (const TrainLine& line : options_.train_lines) {
    // Lines beyond are of work that a restore threw away.
    if (line.step <= step) {
      logged = std::max(logged, line.step);
      log->base_seconds = line.seconds;
      log->base_examples = line.examples;
    }
  }
  return logged;
}

std::string JobSource::unit() const { return sync() ? "step " : async_unit(); }

}  // namespace weir
