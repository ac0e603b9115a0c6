// Fills in what a JobSpec leaves unset.
//
// Place: LoadJobSpec calls it before it checks the spec (job_spec_checks.h), so
// every task of a job works from one resolved spec, and later code never
// repeats a default.
//
// Defaults are rules of the fields in job_spec.proto (field_rules.h); only
// those that follow from other fields are here. Two kinds are filled in
// elsewhere: those of optimizers and tables (server/ps), and
// update.sync.contributions = 0, which the chief replaces by the number of
// workers.
//
// Threads: safe.
#ifndef PROTO_JOB_JOB_SPEC_DEFAULTS_H_
#define PROTO_JOB_JOB_SPEC_DEFAULTS_H_

#include "proto/job_spec.pb.h"

namespace weir {

// Writes every default that job_spec.proto names into `spec`. Idempotent; what
// is set stays.
void ResolveDefaults(JobSpec* spec);

}  // namespace weir

#endif  // PROTO_JOB_JOB_SPEC_DEFAULTS_H_
