// Says in one sentence what a step's time is lost to, and what to try next.
//
// Place: the Reporter asks it for each report. It compares tasks with each
// other and sees nothing but the report.
//
// Terms
//   cost      the share of the workers' time that would be gone without the
//             cause, 0 to 1. The largest one is named.
//   straggler a worker for which the others wait (sync), or that is slower than
//             the others (else).
//
// Invariants
//   I1. No task is named unless it is far worse than the others of its role:
//       on a loaded host all are slow.
// Threads: safe; a pure function.
#ifndef SERVER_CHIEF_REPORT_DIAGNOSIS_H_
#define SERVER_CHIEF_REPORT_DIAGNOSIS_H_

#include "proto/report.pb.h"

namespace weir {

// Reads all of `report` but its cause.
Cause Diagnose(const JobReport& report);

}  // namespace weir

#endif  // SERVER_CHIEF_REPORT_DIAGNOSIS_H_
