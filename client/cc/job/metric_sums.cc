#include "client/cc/job/metric_sums.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/base/printable.h"

namespace weir {
namespace {

// What the chief writes (server/chief/state/train_log.h).
constexpr std::array<absl::string_view, 10> kReserved = {
    "step",          "examples",       "examples_per_second",
    "seconds",       "bytes_pulled",   "bytes_pushed",
    "phases",        "residuals_lost", "staleness_max",
    "staleness_mean"};

bool IsNameByte(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
         c == '.' || c == '/' || c == '-';
}

}  // namespace

absl::Status CheckMetricName(absl::string_view name) {
  if (name.empty() || name.size() > kMetricNameBytesMax ||
      !std::all_of(name.begin(), name.end(), IsNameByte)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the metric '", Printable(std::string(name), kPeerNameBytesMax),
        "' needs a name of 1 to ", kMetricNameBytesMax,
        " letters, digits, '_', '.', '/' or '-'"));
  }
  if (std::count(kReserved.begin(), kReserved.end(), name) > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the metric '", name,
        "' has a name that Weir writes itself: choose another name"));
  }
  return absl::OkStatus();
}

absl::Status CheckMetricSums(const MetricSums& sums) {
  if (sums.metric_size() > static_cast<int>(kMetricNamesMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat(sums.metric_size(), " metrics in a message, at most ",
                     kMetricNamesMax, " are taken"));
  }
  for (const MetricSum& metric : sums.metric()) {
    const absl::Status status = CheckMetricName(metric.name());
    if (!status.ok()) {
      return status;
    }
    if (!(metric.weight() > 0.0) || !std::isfinite(metric.weight())) {
      return absl::InvalidArgumentError(
          absl::StrCat("the metric '", metric.name(), "' has the weight ",
                       metric.weight(), ", which must be positive"));
    }
  }
  return absl::OkStatus();
}

void MergeMetrics(const MetricSums& more, MetricSums* sums) {
  sums->set_reports(sums->reports() + more.reports());
  sums->set_examples(sums->examples() + more.examples());
  for (const MetricSum& metric : more.metric()) {
    auto* const list = sums->mutable_metric();
    auto found = std::find_if(list->begin(), list->end(), [&](const auto& one) {
      return one.name() == metric.name();
    });
    if (found != list->end()) {
      found->set_weighted_sum(found->weighted_sum() + metric.weighted_sum());
      found->set_weight(found->weight() + metric.weight());
    } else if (list->size() < static_cast<int>(kMetricNamesMax)) {
      *list->Add() = metric;
    }
  }
}

}  // namespace weir
