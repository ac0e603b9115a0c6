// What every task says of its process on its page of metrics.
//
// Place: AdminServer adds it to each scrape.
// Threads: safe.
// Cost: reads some files of /proc and of the control groups, and the list of
//       open descriptors.
#ifndef PROTO_ADMIN_PROCESS_METRICS_H_
#define PROTO_ADMIN_PROCESS_METRICS_H_

#include <string>

#include "proto/admin/metric_page.h"

namespace weir {

// Who a task is, as the labels of weir_task_info say it.
struct TaskInfo {
  std::string role;
  int index = 0;
  std::string host;
};

// Adds weir_build_info and weir_task_info.
void AddTaskMetrics(const TaskInfo& task, MetricPage* page);

// Adds process_*, under the names that Prometheus's own clients use, and the
// memory that the process may use. What the system does not say is left out.
void AddProcessMetrics(MetricPage* page);

}  // namespace weir

#endif  // PROTO_ADMIN_PROCESS_METRICS_H_
