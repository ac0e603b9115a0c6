#include "server/chief/report/host_load.h"

#include <algorithm>

#include "server/chief/report/moving_window.h"

namespace weir {

HostReport HostLoad(const ProcessUsage& begin, const ProcessUsage& end,
                    double seconds) {
  HostReport load;
  load.set_processors(end.processors());
  load.set_resident_bytes(static_cast<double>(end.resident_bytes()));
  load.set_memory_bytes_max(static_cast<double>(end.memory_bytes_max()));
  if (seconds <= 0.0) {
    return load;
  }
  load.set_cpu_seconds_per_second(GrownSeconds(begin.cpu_ns(), end.cpu_ns()) /
                                  seconds);
  load.set_major_faults_per_second(
      Grown(begin.major_faults(), end.major_faults()) / seconds);
  const double wakes = Grown(begin.late_count(), end.late_count());
  if (wakes > 0.0) {
    load.set_wake_late_seconds(GrownSeconds(begin.late_ns(), end.late_ns()) /
                               wakes);
  }
  load.set_memory_stall_share(std::min(
      1.0,
      GrownSeconds(begin.memory_stall_ns(), end.memory_stall_ns()) / seconds));
  return load;
}

}  // namespace weir
