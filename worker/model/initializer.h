// Resolves a JobSpec's initialiser to a kind and a scale, which is all that a
// ps knows about initial values.
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

// Resolves `spec`, or `otherwise` where it sets no kind. `field` names the
// field in errors. `fan_in` is the number of inputs that one output sums over,
// and `fan_out` the number of outputs that one input goes to.
// REQUIRES: `otherwise` is a kind without a value.
absl::StatusOr<InitSpec> ResolveInitializer(const std::string& field,
                                            const Initializer& spec,
                                            Initializer::KindCase otherwise,
                                            int64_t fan_in, int64_t fan_out);

}  // namespace weir

#endif  // WORKER_MODEL_INITIALIZER_H_
