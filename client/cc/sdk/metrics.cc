#include "client/cc/sdk/metrics.h"

#include <algorithm>

#include "client/cc/job/metric_sums.h"
#include "common/base/limits.h"
#include "common/base/status.h"

namespace weir::sdk {

absl::StatusOr<MetricSums> ToMetricSums(const Metrics& metrics,
                                        std::set<std::string>* names) {
  if (metrics.values.size() > kMetricsPerReportMax) {
    return Invalid("a report of ", metrics.values.size(), " metrics; at most ",
                   kMetricsPerReportMax, " are taken");
  }
  MetricSums sums;
  sums.set_reports(1);
  sums.set_examples(metrics.examples);
  const double weight =
      static_cast<double>(std::max<uint64_t>(metrics.examples, 1));
  std::set<std::string> added;
  for (const auto& [name, value] : metrics.values) {
    for (const MetricSum& before : sums.metric()) {
      if (before.name() == name) {
        return Invalid("a report has the metric '", name, "' twice");
      }
    }
    if (names->count(name) == 0) {
      WEIR_RETURN_IF_ERROR(CheckMetricName(name));
      added.insert(name);
    }
    MetricSum* const sum = sums.add_metric();
    sum->set_name(name);
    sum->set_weighted_sum(value * weight);
    sum->set_weight(weight);
  }
  if (names->size() + added.size() > kMetricNamesMax) {
    return Invalid("the metric '", *added.begin(), "' would be number ",
                   names->size() + 1, ": a job has at most ", kMetricNamesMax,
                   " names of metrics, each for a whole curve");
  }
  names->merge(added);
  return sums;
}

}  // namespace weir::sdk
