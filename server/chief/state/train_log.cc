#include "server/chief/state/train_log.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cc/job/metric_sums.h"
#include "common/base/limits.h"
#include "nlohmann/json.hpp"

namespace weir {
namespace {

constexpr char kLoss[] = "loss";

// JSON has no NaN.
std::string Number(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.9g", value) : "null";
}

}  // namespace

TrainLog::TrainLog(Options options)
    : options_(std::move(options)),
      next_step_(options_.base_step),
      step_done_(options_.base_step),
      line_ns_(options_.begin_ns),
      rate_begin_ns_(options_.begin_ns),
      line_step_(options_.base_step),
      count_(options_.base_step) {
  newest_.set_examples(options_.base_examples);
}

void TrainLog::AddContribution(const ContributionReport& report,
                               int64_t now_ns) {
  if (options_.contributions_per_step > 0) {
    // A repeat from before the restore: its step has its line.
    if (report.contribution() < options_.first_contribution) {
      return;
    }
    const uint64_t element =
        report.contribution() - options_.first_contribution;
    const uint64_t step =
        options_.first_step + element / options_.contributions_per_step;
    // I2: a repeat has the same index, and emplace keeps the first one.
    if (step >= next_step_ && InReach(step)) {
      steps_[step].emplace(
          static_cast<uint32_t>(element % options_.contributions_per_step),
          Report{report.loss(), report.weight(), report.rows(), now_ns});
    }
    return;
  }
  // Async: contributions count in the order in which the chief hears of them.
  AddRows(report.rows());
  ++count_;
  if (report.weight() > 0.0f && !report.bad()) {
    loss_sum_ += static_cast<double>(report.loss()) * report.weight();
    weight_sum_ += report.weight();
  }
  if (count_ / options_.every_steps > line_step_ / options_.every_steps) {
    AddLine(count_, loss_sum_ / weight_sum_, now_ns);
  }
}

// I3.
bool TrainLog::InReach(uint64_t step) const {
  const uint64_t steps = std::max(
      kReportsAheadMax / options_.contributions_per_step, kReportStepsMin);
  // Steps before `step_done_` are kept for reports that come late; they get
  // their lines in a moment (SettleSteps).
  const uint64_t begin = step_done_ - std::min(step_done_, steps);
  return step >= begin && step - begin < 2 * steps;
}

void TrainLog::AddRows(uint64_t rows) {
  rate_rows_ += rows;
  newest_.set_examples(newest_.examples() + rows);
}

void TrainLog::AddUnreported(uint64_t count) {
  if (options_.contributions_per_step == 0) {
    count_ += count;
  }
}

void TrainLog::AddCounts(const Progress& progress) {
  staleness_sum_ += progress.staleness_sum();
  staleness_count_ += progress.staleness_count();
  staleness_max_window_ =
      std::max(staleness_max_window_, progress.staleness_max());
  bytes_pushed_ += progress.bytes_pushed();
  bytes_pulled_ += progress.bytes_pulled();
  if (progress.residuals_lost()) {
    ++residuals_lost_;
  }
  phases_.Add(progress.phases());
  if (options_.of_scripts && progress.has_metrics()) {
    AddMetrics(progress.metrics());
  }
}

double TrainLog::seconds(int64_t now_ns) const {
  return options_.base_seconds +
         static_cast<double>(now_ns - options_.begin_ns) * 1e-9;
}

uint64_t TrainLog::StepOf(uint64_t contribution) const {
  if (options_.contributions_per_step == 0) {
    return contribution + 1;
  }
  if (contribution < options_.first_contribution) {
    return 0;
  }
  return options_.first_step + 1 +
         (contribution - options_.first_contribution) /
             options_.contributions_per_step;
}

std::string TrainLog::RestOfLine(uint64_t step, int64_t now_ns) const {
  std::string rest;
  if (options_.learning_rate) {  // updates count from 0
    absl::StrAppend(
        &rest, ",\"learning_rate\":", Number(options_.learning_rate(step - 1)));
  }
  const bool examples = !options_.of_scripts || newest_.examples() > 0;
  if (examples) {
    absl::StrAppend(&rest, ",\"examples_per_second\":",
                    Number(newest_.examples_per_second()));
  }
  absl::StrAppend(&rest,
                  ",\"staleness_mean\":", Number(newest_.staleness_mean()),
                  ",\"staleness_max\":", newest_.staleness_max(),
                  ",\"seconds\":", Number(seconds(now_ns)));
  if (examples) {
    absl::StrAppend(&rest, ",\"examples\":", newest_.examples());
  }
  absl::StrAppend(&rest, ",\"bytes_pushed\":", bytes_pushed_,
                  ",\"bytes_pulled\":", bytes_pulled_,
                  ",\"residuals_lost\":", residuals_lost_);
  if (const std::string phases = phases_.Json(); !phases.empty()) {
    absl::StrAppend(&rest, ",\"phases\":", phases);
  }
  for (const MetricSum& metric : metrics_.metric()) {
    if (metric.name() != kLoss) {
      absl::StrAppend(&rest, ",\"", metric.name(),
                      "\":", Number(metric.weighted_sum() / metric.weight()));
    }
  }
  return rest + "}";
}

void TrainLog::AddMetrics(const MetricSums& metrics) {
  AddRows(metrics.examples());
  MetricSums known;
  known.set_reports(metrics.reports());
  for (const MetricSum& metric : metrics.metric()) {
    // Each name is a curve for ever, so there is no end of peers' names here.
    if (metric_names_.size() < kMetricNamesMax) {
      metric_names_.insert(metric.name());
    }
    if (metric_names_.count(metric.name()) > 0) {
      *known.add_metric() = metric;
    }
  }
  MergeMetrics(known, &metrics_);
}

void TrainLog::AddScriptLine(uint64_t step, int64_t now_ns) {
  if (metrics_.reports() == 0) {
    return;
  }
  std::optional<double> loss;
  for (const MetricSum& metric : metrics_.metric()) {
    if (metric.name() == kLoss) {
      loss = metric.weighted_sum() / metric.weight();
    }
  }
  AddLine(std::max(step, line_step_), loss, now_ns);
  metrics_.Clear();
}

void TrainLog::AddLine(uint64_t step, std::optional<double> loss,
                       int64_t now_ns) {
  // Reports of several workers come in any order; "seconds" must not go back.
  now_ns = line_ns_ = std::max(now_ns, line_ns_);
  if (loss.has_value()) {
    newest_.set_loss(*loss);
  }
  const int64_t elapsed_ns = now_ns - rate_begin_ns_;
  // The first lines of a job have a speed, too, however rough.
  if (elapsed_ns >= kRateWindowNs || (!rate_known_ && elapsed_ns > 0)) {
    newest_.set_examples_per_second(static_cast<double>(rate_rows_) * 1e9 /
                                    static_cast<double>(elapsed_ns));
  }
  if (elapsed_ns >= kRateWindowNs) {
    rate_known_ = true;
    rate_rows_ = 0;
    rate_begin_ns_ = now_ns;
  }
  if (staleness_count_ > 0) {
    newest_.set_staleness_mean(static_cast<double>(staleness_sum_) /
                               static_cast<double>(staleness_count_));
    newest_.set_staleness_max(staleness_max_window_);
  }
  std::string head = absl::StrCat("{\"step\":", step);
  if (loss.has_value()) {
    absl::StrAppend(&head, ",\"loss\":", Number(*loss));
  }
  due_.push_back(head + RestOfLine(step, now_ns));
  line_step_ = step;  // I1: callers add a line only beyond it
  loss_sum_ = weight_sum_ = 0.0;
  staleness_sum_ = staleness_count_ = staleness_max_window_ = 0;
}

void TrainLog::SettleSteps(uint64_t step_done, int64_t wait_ns,
                           int64_t now_ns) {
  while (next_step_ < step_done) {
    // I1: steps are settled one after the other, so a step whose reports are
    // complete waits for those before it.
    const StepReports& reports = steps_[next_step_];
    if (reports.size() < options_.contributions_per_step) {
      // Reports follow within a heartbeat, unless their worker died. All steps
      // that are done by now share one wait: it does not add up.
      if (next_step_ >= waiting_until_step_) {
        waiting_since_ns_ = now_ns;
        waiting_until_step_ = step_done;
      }
      if (now_ns - waiting_since_ns_ < wait_ns) {
        return;
      }
    }
    double loss_sum = 0.0;
    double weight_sum = 0.0;
    int64_t done_ns = 0;
    // I2: the map is ordered by the index in the step, so the sum has the same
    // bits whoever reported first.
    for (const auto& [index, report] : reports) {
      done_ns = std::max(done_ns, report.done_ns);
      AddRows(report.rows);
      if (report.weight > 0.0f) {
        loss_sum += static_cast<double>(report.loss) * report.weight;
        weight_sum += report.weight;
      }
    }
    ++next_step_;
    steps_.erase(steps_.begin(), steps_.lower_bound(next_step_));
    if (weight_sum > 0.0) {
      last_step_loss_ = loss_sum / weight_sum;
      if (next_step_ % options_.every_steps == 0) {
        AddLine(next_step_, *last_step_loss_, done_ns);
      }
    }
  }
}

std::vector<std::string> TrainLog::Advance(uint64_t step_done, int64_t now_ns) {
  step_done_ = std::max(step_done_, step_done);
  if (options_.of_scripts) {
    if (now_ns - line_ns_ >= kScriptLineNs) {
      AddScriptLine(step_done, now_ns);
    }
  } else if (options_.contributions_per_step > 0) {
    SettleSteps(step_done, kReportWaitNs, now_ns);
  }
  return std::exchange(due_, {});
}

std::vector<std::string> TrainLog::End(uint64_t step_done, int64_t now_ns) {
  if (options_.of_scripts) {
    AddScriptLine(step_done, now_ns);
  } else if (options_.contributions_per_step > 0) {
    SettleSteps(step_done, 0, now_ns);
    if (step_done > line_step_ && last_step_loss_.has_value()) {
      AddLine(step_done, *last_step_loss_, now_ns);
    }
  } else if (step_done > line_step_ && weight_sum_ > 0.0) {
    AddLine(step_done, loss_sum_ / weight_sum_, now_ns);
  }
  return std::exchange(due_, {});
}

std::optional<TrainLine> ParseTrainLine(const std::string& line) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("step") ||
      !json["step"].is_number_unsigned()) {
    return std::nullopt;
  }
  TrainLine parsed;
  parsed.step = json["step"].get<uint64_t>();
  const auto read = [&json](const char* key, double* number) {
    if (json.contains(key) && json[key].is_number()) {
      *number = json[key].get<double>();
    }
  };
  parsed.loss = std::numeric_limits<double>::quiet_NaN();
  read("seconds", &parsed.seconds);
  read("loss", &parsed.loss);
  read("examples_per_second", &parsed.examples_per_second);
  read("staleness_mean", &parsed.staleness_mean);
  if (json.contains("examples") && json["examples"].is_number_unsigned()) {
    parsed.examples = json["examples"].get<uint64_t>();
  }
  return parsed;
}

}  // namespace weir
