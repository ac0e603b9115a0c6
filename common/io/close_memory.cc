#include "common/io/close_memory.h"

#include <sys/prctl.h>
#include <sys/resource.h>

namespace weir {

void CloseMemory() {
  const rlimit none = {};
  setrlimit(RLIMIT_CORE, &none);
  prctl(PR_SET_DUMPABLE, 0);
}

}  // namespace weir
