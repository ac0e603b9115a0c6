#include "server/chief/state/reports.h"

#include <cmath>

#include "client/cc/job/metric_sums.h"
#include "common/base/limits.h"
#include "common/base/status.h"

namespace weir {
namespace {

absl::Status CheckHistogram(const Histogram& histogram) {
  if (histogram.count_size() > kHistogramBucketsMax) {
    return Invalid("a histogram has ", histogram.count_size(),
                   " buckets, at most ", kHistogramBucketsMax, " are taken");
  }
  if (!std::isfinite(histogram.min()) || !std::isfinite(histogram.max()) ||
      histogram.min() > histogram.max()) {
    return Invalid("a histogram goes from ", histogram.min(), " to ",
                   histogram.max());
  }
  return absl::OkStatus();
}

absl::Status CheckHistograms(const ContributionHistograms& histograms,
                             int variable_count) {
  for (const VariableHistograms& of : histograms.variable()) {
    if (of.variable() >= static_cast<uint32_t>(variable_count)) {
      return Invalid("histograms of variable ", of.variable(), ": the job has ",
                     variable_count);
    }
    WEIR_RETURN_IF_ERROR(CheckHistogram(of.values()));
    WEIR_RETURN_IF_ERROR(CheckHistogram(of.gradients()));
  }
  return absl::OkStatus();
}

absl::Status CheckContribution(const char* what, uint64_t contribution,
                               uint64_t count) {
  if (count != 0 && contribution >= count) {
    return Invalid(what, " of contribution ", contribution, ": the job has ",
                   count);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckReports(const Progress& progress, uint64_t contribution_count,
                          int variable_count) {
  for (const ContributionReport& report : progress.report()) {
    WEIR_RETURN_IF_ERROR(CheckContribution("a report", report.contribution(),
                                           contribution_count));
  }
  int variables = 0;
  for (const ContributionHistograms& histograms : progress.histograms()) {
    WEIR_RETURN_IF_ERROR(CheckContribution(
        "histograms", histograms.contribution(), contribution_count));
    WEIR_RETURN_IF_ERROR(CheckHistograms(histograms, variable_count));
    variables += histograms.variable_size();
  }
  if (variables > kHistogramVariablesMax) {
    return Invalid("histograms of ", variables, " variables, at most ",
                   kHistogramVariablesMax, " are taken");
  }
  return CheckMetricSums(progress.metrics());
}

}  // namespace weir
