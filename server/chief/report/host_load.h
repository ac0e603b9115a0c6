// How a task's process fared on its host between two readings.
#ifndef SERVER_CHIEF_REPORT_HOST_LOAD_H_
#define SERVER_CHIEF_REPORT_HOST_LOAD_H_

#include "proto/ps.pb.h"
#include "proto/report.pb.h"

namespace weir {

// `seconds` lie between the readings; with 0 only the states are known.
HostReport HostLoad(const ProcessUsage& begin, const ProcessUsage& end,
                    double seconds);

}  // namespace weir

#endif  // SERVER_CHIEF_REPORT_HOST_LOAD_H_
