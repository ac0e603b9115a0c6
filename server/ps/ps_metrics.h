// The metrics of a ps, from its status.
//
// Place: ps_main.cc adds them to the page of its admin port.
#ifndef SERVER_PS_PS_METRICS_H_
#define SERVER_PS_PS_METRICS_H_

#include "proto/admin/metric_page.h"
#include "proto/ps.pb.h"

namespace weir {

void AddPsMetrics(const PsStatus& status, MetricPage* page);

}  // namespace weir

#endif  // SERVER_PS_PS_METRICS_H_
