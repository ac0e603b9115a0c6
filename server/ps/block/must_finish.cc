#include "server/ps/block/must_finish.h"

#include <cstdio>
#include <cstdlib>

#include "common/base/exit_code.h"

namespace weir {

void MustFinish::End() const {
  // As in WEIR_CHECK: the logger would ask for memory.
  std::fprintf(
      stderr,
      "this process has no more memory and stopped half-way: %s; start "
      "it again, with more memory\n",
      what_);
  std::quick_exit(kExitRetry);
}

}  // namespace weir
