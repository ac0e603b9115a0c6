// Named places where a test can kill the process, as kill -9 would.
//
//   Failpoint("worker.mid_push");
//   WEIR_FAILPOINT=worker.mid_push:3       SIGKILL at the third hit
//   WEIR_FAILPOINT=ps.recv:1,chief.gc:2    two of them
//   WEIR_FAILPOINT=worker.before_push:5ms  sleeps at each hit
//   WEIR_FAILPOINT=count                   kills nobody; a process that ends by
//                                          itself says on stderr which ones it
//                                          reached, and how often
//
// tests/integration/failpoint_table_test.cc fires each of them.
//
// Names (any other name is refused at start, so that a misspelt one cannot pass
// for a test; names that begin with "test." are free):
//   files.before_rename, files.after_rename          in an atomic write
//   worker.before_register, worker.before_pull, worker.before_push,
//   worker.before_batch  a batch is to be made of the data, maybe ahead of time
//   worker.before_rows   the gradients of a contribution's rows are ready
//   worker.mid_push      some blocks of a contribution are sent, some are not
//   worker.mid_fanout    one shard has acknowledged the whole contribution, and
//                        another has not
//   worker.before_ack    everything is sent, and no receipt is read
//   worker.in_barrier    the worker waits for the next version
//   ps.recv              a chunk has come, and nothing of it is looked at
//   ps.before_apply, ps.mid_apply, ps.before_ack
//   ps.before_table_apply                            an update of rows is whole
//   ps.before_write, ps.mid_write, ps.before_restore, ps.mid_restore,
//   ps.before_table_write
//                        a shard's checkpoint files
//   chief.before_declare, chief.mid_declare
//   chief.before_hold, chief.before_snapshot, chief.before_manifest,
//   chief.after_manifest, chief.gc, chief.mid_restore, chief.before_done,
//   chief.before_shutdown
//   evaluator.mid_read   the dense values of a checkpoint are read, and its
//                        rows are not
//
// Threads: safe after InitFailpoints.
// Cost: one relaxed load when none is set.
#ifndef COMMON_BASE_FAILPOINT_H_
#define COMMON_BASE_FAILPOINT_H_

#include <atomic>
#include <string>

#include "absl/status/status.h"

namespace weir {

namespace failpoint_internal {
extern std::atomic<bool> armed;
void Hit(const char* name);
}  // namespace failpoint_internal

// Reads WEIR_FAILPOINT. Call once, in main, before any thread exists.
// Errors: those of InitFailpoints.
absl::Status InitFailpointsFromEnv();

// Arms the failpoints that `spec` names, in the form of WEIR_FAILPOINT above.
// An empty `spec` arms none.
// Errors: INVALID_ARGUMENT for an unknown name or a number below 1.
absl::Status InitFailpoints(const std::string& spec);

// Kills this process if `name` is armed and this is its nth hit.
inline void Failpoint(const char* name) {
  if (failpoint_internal::armed.load(std::memory_order_relaxed)) [[unlikely]] {
    failpoint_internal::Hit(name);
  }
}

}  // namespace weir

#endif  // COMMON_BASE_FAILPOINT_H_
