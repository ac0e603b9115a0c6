#include "common/base/identity.h"

#include <unistd.h>

#include <random>

#include "absl/strings/str_cat.h"

#ifdef WEIR_SIM
#include "common/threads/scheduler.h"
#endif

namespace weir {

#ifdef WEIR_SIM
std::string HostName() { return "host"; }

int64_t ProcessId() { return sim::Process(); }

#else
int64_t ProcessId() { return getpid(); }

std::string HostName() {
  char name[256] = {};  // one byte more than is asked for, so it ends with 0
  if (gethostname(name, sizeof(name) - 1) != 0) {
    return "unknown";
  }
  return name;
}
#endif

uint64_t RandomId() {
#ifdef WEIR_SIM
  return sim::Random();
#else
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
#endif
}

std::string RandomHex(size_t digits) {
  std::string text;
  while (text.size() < digits) {
    absl::StrAppend(&text, absl::Hex(RandomId(), absl::kZeroPad16));
  }
  return text;
}

}  // namespace weir
