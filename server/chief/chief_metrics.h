// The metrics of a job, from its report.
//
// Place: whoever runs the chief adds them to the page of its admin port.
#ifndef SERVER_CHIEF_CHIEF_METRICS_H_
#define SERVER_CHIEF_CHIEF_METRICS_H_

#include "proto/admin/metric_page.h"
#include "proto/report.pb.h"

namespace weir {

void AddChiefMetrics(const JobReport& report, MetricPage* page);

}  // namespace weir

#endif  // SERVER_CHIEF_CHIEF_METRICS_H_
