#include "common/threads/host_clocks.h"

#include <map>

#include "common/threads/scheduler.h"

namespace weir::sim {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kWorldBegins = std::chrono::seconds(1'800'000'000);

struct Clocks {
  nanoseconds monotonic{0};
  nanoseconds wall{0};
};
struct Hosts {
  std::map<int, Clocks> of_process;
  nanoseconds wall_steps{0};
};

Hosts& TheHosts() {
  static Hosts hosts;
  return hosts;
}

Clocks Own() {
  const auto found = TheHosts().of_process.find(Process());
  return found == TheHosts().of_process.end() ? Clocks() : found->second;
}

}  // namespace

void SetHostClocks(int process, nanoseconds monotonic, nanoseconds wall) {
  TheHosts().of_process[process] = {monotonic, wall};
}

void StepWall(nanoseconds by) { TheHosts().wall_steps += by; }

nanoseconds MonotonicTime() { return Now() + Own().monotonic; }

nanoseconds WallTime() {
  return kWorldBegins + Now() + TheHosts().wall_steps + Own().wall;
}

void ResetHostClocks() { TheHosts() = Hosts(); }

}  // namespace weir::sim
