// What `weir render --explain` prints: every value that was chosen, and why.
//
// Threads: safe.
#ifndef DEPLOY_RENDER_EXPLAIN_H_
#define DEPLOY_RENDER_EXPLAIN_H_

#include <string>
#include <vector>

#include "deploy/render/plan.h"

namespace weir {

// A line "what: value" for each choice, with the reason below it, in at most 80
// columns where the words allow it; then the remarks.
std::string Explain(const std::vector<Choice>& choices,
                    const std::vector<std::string>& remarks);

}  // namespace weir

#endif  // DEPLOY_RENDER_EXPLAIN_H_
