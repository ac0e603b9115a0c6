#include "proto/admin/metric_page.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/printable.h"
#include "prometheus/text_serializer.h"

namespace weir {
namespace {

bool IsLowerCase(absl::string_view name) {
  return !name.empty() && absl::ascii_islower(name.front()) &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_';
         });
}

bool IsMetricName(absl::string_view name, prometheus::MetricType type) {
  const bool is_counter = type == prometheus::MetricType::Counter;
  return IsLowerCase(name) &&
         (absl::StartsWith(name, "weir_") ||
          absl::StartsWith(name, "process_")) &&
         absl::EndsWith(name, "_total") == is_counter;
}

bool IsLabelName(absl::string_view name) {
  return IsLowerCase(name) && name != "job" && name != "instance" &&
         name != "le";
}

// Whether `help` is one line that needs no escapes.
bool IsHelp(absl::string_view help) {
  return !help.empty() && !absl::StrContains(help, '\n') &&
         !absl::StrContains(help, '\\');
}

}  // namespace

prometheus::ClientMetric* MetricPage::Add(const std::string& name,
                                          const std::string& help,
                                          const MetricLabels& labels,
                                          prometheus::MetricType type) {
  WEIR_CHECK(IsMetricName(name, type));
  WEIR_CHECK(IsHelp(help));
  auto family = std::find_if(
      families_.begin(), families_.end(),
      [&name](const auto& candidate) { return candidate.name == name; });
  if (family == families_.end()) {
    families_.push_back(
        {.name = name, .help = help, .type = type, .metric = {}});
    family = families_.end() - 1;
  }
  WEIR_CHECK(family->type == type);
  prometheus::ClientMetric& metric = family->metric.emplace_back();
  for (const auto& [label, value] : labels) {
    WEIR_CHECK(IsLabelName(label));
    metric.label.push_back({label, Printable(value)});
  }
  return &metric;
}

void MetricPage::AddCounter(const std::string& name, const std::string& help,
                            const MetricLabels& labels, double value) {
  Add(name, help, labels, prometheus::MetricType::Counter)->counter.value =
      value;
}

void MetricPage::AddGauge(const std::string& name, const std::string& help,
                          const MetricLabels& labels, double value) {
  Add(name, help, labels, prometheus::MetricType::Gauge)->gauge.value = value;
}

void MetricPage::AddHistogram(const std::string& name, const std::string& help,
                              const MetricLabels& labels,
                              const HistogramSnapshot& histogram) {
  WEIR_CHECK(histogram.counts.size() == histogram.bounds.size() + 1);
  auto& written =
      Add(name, help, labels, prometheus::MetricType::Histogram)->histogram;
  written.sample_count = histogram.count;
  written.sample_sum = histogram.sum;
  uint64_t below = 0;
  for (size_t i = 0; i < histogram.bounds.size(); ++i) {
    below += histogram.counts[i];
    written.bucket.push_back(
        {.cumulative_count = below, .upper_bound = histogram.bounds[i]});
  }
}

std::string MetricPage::Text() const {
  return prometheus::TextSerializer().Serialize(families_);
}

}  // namespace weir
