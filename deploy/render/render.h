// `weir render`: from the options to the text of the files.
//
// Place: the command line calls it. It reads the job file, and the data where
// --local_data names it, and writes nothing.
//
// Threads: safe.
// Errors: INVALID_ARGUMENT  a wrong option, job file or data: one line that
//                           names it and says what to do.
//         NOT_FOUND         the data is not where --local_data says.
#ifndef DEPLOY_RENDER_RENDER_H_
#define DEPLOY_RENDER_RENDER_H_

#include <string>

#include "absl/status/statusor.h"
#include "deploy/render/options.h"

namespace weir {

struct RenderedFiles {
  std::string manifest;       // what the target is to be given
  std::string containerfile;  // of a user's program; else ""
  std::string explanation;    // every value that was chosen, and why
};

absl::StatusOr<RenderedFiles> RenderFiles(const RenderOptions& options);

}  // namespace weir

#endif  // DEPLOY_RENDER_RENDER_H_
