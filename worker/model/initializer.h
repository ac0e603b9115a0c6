// Resolves a JobSpec's initialiser to what the ps can do: a kind and a scale.
//
// Errors: INVALID_ARGUMENT  a negative or not finite scale; names the field.
// Source: Glorot and Bengio 2010, eq. 12 and 16; He et al. 2015, eq. 10.
#ifndef WORKER_MODEL_INITIALIZER_H_
#define WORKER_MODEL_INITIALIZER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/job/layout.h"
#include "proto/job_spec.pb.h"

namespace weir {

// `otherwise` stands in where `spec` sets no kind; `field` names it in errors.
// `fan_in`, `fan_out`: inputs that one output sums over, and the reverse.
// REQUIRES: `otherwise` is a kind without a value.
absl::StatusOr<InitSpec> ResolveInitializer(const std::string& field,
                                            const Initializer& spec,
                                            Initializer::KindCase otherwise,
                                            int64_t fan_in, int64_t fan_out);

}  // namespace weir

#endif  // WORKER_MODEL_INITIALIZER_H_
