// Options of `weir render` for tests: of a small job, and of a user's program.
#ifndef TESTS_DEPLOY_RENDER_RENDER_TESTER_H_
#define TESTS_DEPLOY_RENDER_RENDER_TESTER_H_

#include <string>

#include "deploy/render/options.h"

namespace weir {

inline constexpr char kSmallJob[] =
    "tests/deploy/render/goldens/small_job.textproto";

// Two ps and two workers.
inline RenderOptions JobOptionsFor(const std::string& target) {
  RenderOptions options;
  options.target = target;
  options.job_path = kSmallJob;
  options.ps_count = 2;
  options.worker_count = 2;
  options.version = "1.2.3";
  options.weir_image = "weir:1.2.3";
  return options;
}

inline RenderOptions ProgramOptionsFor(const std::string& target) {
  RenderOptions options = JobOptionsFor(target);
  options.job_path = "";
  options.image = "registry.example/train:7";
  options.command = {"python", "train.py", "--name", "it's"};
  return options;
}

}  // namespace weir

#endif  // TESTS_DEPLOY_RENDER_RENDER_TESTER_H_
