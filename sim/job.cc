#include "sim/job.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/failpoint.h"
#include "common/io/crc32c.h"
#include "common/io/files.h"
#include "common/threads/scheduler.h"
#include "sim/cluster.h"
#include "sim/job_plan.h"
#include "sim/troubles.h"

namespace weir::sim {
namespace {

constexpr int kRows = 64;  // samples of a job with a table
// Where the values of a model with a table begin, those that are not 0.
constexpr float kBegin = 0.5f;
// More than the order of sums changes, less than a contribution.
constexpr double kPartOfContribution = 0.1;
// One of each slot may be torn, and momentum carries it on. In a short job that
// is still less than this part of all.
constexpr double kTornContributions = 8;
constexpr double kTornPart = 0.5;

// All troubles and all waits for what is lost are far shorter.
constexpr auto kWorldMax = std::chrono::hours(4);

struct Values {
  std::vector<float> last;  // of CheckpointChecks::ReadLast
  std::map<uint64_t, uint32_t> of_steps;
};

// Runs a job until it has ended, or something does not hold; the values are
// empty if something is broken.
Values RunToTheEnd(const JobPlan& plan, Cluster* cluster, WorldCounts* counts) {
  Troubles troubles(plan, cluster, counts);
  while (!cluster->broken() && !cluster->AllEnded()) {
    if (Now() > kWorldMax) {
      cluster->Break("the job has not ended after four hours");
    }
    troubles.Make();
    cluster->Supervise(troubles.over());
    cluster->Check(cluster->checkpoints().Look());
    cluster->Check(cluster->health().CheckRate(troubles.store_is_slow()));
    cluster->WaitForEvent(troubles.Pause());
  }
  Values values;
  if (!cluster->broken()) {
    values = {cluster->CheckEnd(), cluster->checkpoints().values()};
  }
  counts->messages += cluster->network().arrived();
  counts->resets += cluster->network().resets();
  counts->unavailable += cluster->place().unavailable();
  counts->checkpoints += cluster->checkpoints().seen();
  return values;
}

// The same in a world of its own. `exact`: values are compared bit by bit.
Values RunPlan(uint64_t seed, const JobPlan& plan, bool exact,
               const std::string& data_dir, WorldResult* result) {
  Values values;
  std::string slow_data;  // a script rests by itself
  if (plan.batch_time.count() > 0) {
    slow_data =
        absl::StrCat("worker.before_batch:", plan.batch_time.count(), "ms");
  }
  WEIR_CHECK(InitFailpoints(slow_data).ok());
  result->outcome = RunWorld(seed, [&] {
    // Not destroyed: fibres that never end look at it until the world does.
    auto* const cluster = new Cluster(plan, data_dir, result);
    if (exact) {
      cluster->checkpoints().KeepValues();
    }
    values = RunToTheEnd(plan, cluster, &result->counts);
    Note(absl::StrCat("values ",
                      Crc32c(values.last.data(), values.last.size() * 4)));
  });
  if (result->broken.empty()) {
    result->broken = result->outcome.stuck;
  }
  return values;
}

double Norm(const std::vector<float>& values) {
  double sum = 0.0;
  for (const float value : values) {
    sum += static_cast<double>(value) * static_cast<double>(value);
  }
  return std::sqrt(sum);
}

// Whether the values of a job are those of the job alone: in sync, and those
// of scripts, every bit of them, else as near as no lack of a contribution
// would be.
std::string CompareLast(const JobPlan& plan, const std::vector<float>& values,
                        const std::vector<float>& alone) {
  if (values.size() != alone.size()) {
    return absl::StrCat("there are ", values.size(), " values and rows, and ",
                        alone.size(), " of the same job alone");
  }
  if ((plan.mode == Mode::kSync && !plan.MayTear()) || plan.script) {
    return values == alone ? ""
                           : "the values are not those of the same job alone";
  }
  std::vector<float> moved = alone;
  std::vector<float> differ = alone;
  for (size_t i = 0; i < values.size(); ++i) {
    differ[i] -= values[i];
    if (std::fabs(alone[i]) > kBegin / 2) {
      moved[i] -= kBegin;
    }
  }
  const double contributions =
      Norm(differ) / Norm(moved) * static_cast<double>(plan.steps);
  const double most =
      plan.MayTear() ? std::min(kTornContributions,
                                kTornPart * static_cast<double>(plan.steps))
                     : kPartOfContribution;
  return contributions < most
             ? ""
             : absl::StrCat(
                   "the values differ from those of the same job "
                   "alone by about ",
                   contributions, " of ", plan.steps, " contributions");
}

// The same, and in sync that each checkpoint is one of the job alone.
std::string Compare(const JobPlan& plan, const Values& values,
                    const Values& alone) {
  for (const auto& [step, crc] : values.of_steps) {
    const auto found = alone.of_steps.find(step);
    if (found != alone.of_steps.end() && found->second != crc) {
      return absl::StrCat("the checkpoint of step ", step,
                          " has not the values of the same job alone");
    }
  }
  return CompareLast(plan, values.last, alone.last);
}

}  // namespace

bool WriteJobData(const std::string& directory) {
  std::string text;
  for (int i = 0; i < kRows; ++i) {
    // Mostly of one kind, so that contributions add up and a single one is
    // never much more than what all have moved, divided by their number.
    absl::StrAppend(&text, i % 8 > 0 ? 1 : 0, ",", i % 7, ",b", i * 5 % 11,
                    ",c", i * 3 % 13, "\n");
  }
  return Files::Real()
      ->WriteAtomically(JoinPath(directory, "rows.csv"), text)
      .ok();
}

WorldResult RunJob(uint64_t seed, const std::string& data_dir,
                   LeftOut left_out) {
  WorldResult result;
  JobPlan plan;
  RunWorld(seed, [&plan] { plan = DrawJobPlan(); });
  result.can_leave_out = plan.CanLeaveOut();
  plan = plan.Without(left_out);
  result.job = plan.Words();
  const Values values = RunPlan(seed, plan, plan.IsExact(), data_dir, &result);
  if (!result.broken.empty() || result.lost) {
    return result;
  }
  WorldResult alone;
  const Values expected =
      RunPlan(seed, plan.Alone(), plan.IsExact(), data_dir, &alone);
  result.broken = alone.broken.empty()
                      ? Compare(plan, values, expected)
                      : absl::StrCat("the same job alone: ", alone.broken);
  return result;
}

}  // namespace weir::sim
