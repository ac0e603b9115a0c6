// Writes metrics as the text that Prometheus reads.
//
// Place: AdminServer makes one for each scrape of /metrics, and every part of a
// task adds its families. Nothing is kept between two scrapes: a task counts in
// its own fields.
//
// Terms
//   family  all metrics of one name. Its members differ in their labels.
//
// Rules for names, which WEIR_CHECKs hold, since a name is never made of what a
// peer says: "weir_" or "process_" first, lower case, the base unit at the end
// (_seconds, _bytes, _ratio), a counter ends in _total. No label is called job
// or instance, which are Prometheus's own. The values of labels may come from
// peers: they are made printable.
//
// Threads: compatible.
// Source: Prometheus's text format, version 0.0.4.
#ifndef PROTO_ADMIN_METRIC_PAGE_H_
#define PROTO_ADMIN_METRIC_PAGE_H_

#include <string>
#include <utility>
#include <vector>

#include "common/metrics/histogram.h"
#include "prometheus/metric_family.h"

namespace weir {

// Names and values, in this order on the page.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

class MetricPage {
 public:
  static constexpr char kContentType[] =
      "text/plain; version=0.0.4; charset=utf-8";

  // Each adds a member to the family `name`, which stands where its first
  // member was added. `help` is one line, the same for all members.
  // REQUIRES: no member of the family has the same labels.
  void AddCounter(const std::string& name, const std::string& help,
                  const MetricLabels& labels, double value);
  void AddGauge(const std::string& name, const std::string& help,
                const MetricLabels& labels, double value);
  void AddHistogram(const std::string& name, const std::string& help,
                    const MetricLabels& labels,
                    const HistogramSnapshot& histogram);

  std::string Text() const;

 private:
  prometheus::ClientMetric* Add(const std::string& name,
                                const std::string& help,
                                const MetricLabels& labels,
                                prometheus::MetricType type);

  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace weir

#endif  // PROTO_ADMIN_METRIC_PAGE_H_
