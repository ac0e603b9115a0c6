// What is wrong with the options of `weir render` by themselves, or beside the
// job file.
//
// Place: the first step of plan.cc. What only one target cannot do, the target
// says (target.h).
//
// Threads: safe.
// Errors: INVALID_ARGUMENT  one line, which names the option and says what to
//                           do.
#ifndef DEPLOY_RENDER_PLAN_CHECKS_H_
#define DEPLOY_RENDER_PLAN_CHECKS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "deploy/render/options.h"
#include "deploy/render/plan.h"

namespace weir {

// `job` is null for a user's program.
absl::Status CheckRenderOptions(const RenderOptions& options,
                                const RenderJob* job);

// The port of an object store's endpoint, "http://HOST:PORT".
absl::StatusOr<int> PortOfUrl(absl::string_view url);

}  // namespace weir

#endif  // DEPLOY_RENDER_PLAN_CHECKS_H_
