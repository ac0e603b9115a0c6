// Waits for the reason to end a ps.
//
// Place: weir_ps has one: a Shutdown that was taken tells it, and main waits.
// Threads: safe.
#ifndef SERVER_PS_SERVICE_PS_END_H_
#define SERVER_PS_SERVICE_PS_END_H_

#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "server/ps/service/leaving.h"
#include "server/ps/store/store.h"

namespace weir {

class PsEnd {
 public:
  // The chief's Shutdown said so; the first one counts.
  void Tell(const absl::Status& why);
  // Whether the chief has said so.
  bool told() const;

  // Blocks until the chief's Shutdown, or a signal to which a chief has nothing
  // more to say, and returns why the process is to end. `signal` returns the
  // first signal that came; 0: none did. After SIGTERM begins `leaving`.
  absl::Status Wait(const Store& store, const std::function<int()>& signal,
                    Leaving* leaving);

 private:
  std::optional<absl::Status> WaitAWhile();

  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<absl::Status> why_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // SERVER_PS_SERVICE_PS_END_H_
