// The recipe of an image for a user's program.
//
// Place: `weir render ... --containerfile FILE -- COMMAND` writes it.
//
// Threads: safe.
#ifndef DEPLOY_RENDER_CONTAINERFILE_H_
#define DEPLOY_RENDER_CONTAINERFILE_H_

#include <string>

#include "deploy/render/plan.h"

namespace weir {

// The wheel brings `weir` along with the SDK, so the image needs no other part
// of Weir. REQUIRES: plan.user_program().
std::string Containerfile(const RenderPlan& plan);

}  // namespace weir

#endif  // DEPLOY_RENDER_CONTAINERFILE_H_
