#include "server/ps/service/ps_end.h"

#include <signal.h>

#include <chrono>

#include "common/base/exit_code.h"
#include "common/base/logging.h"
#include "common/base/plant.h"
#include "common/base/status.h"

namespace weir {
namespace {

constexpr std::chrono::milliseconds kPollEvery{50};

}  // namespace

void PsEnd::Tell(const absl::Status& why) {
  MutexLock lock(&mutex_);
  if (!why_.has_value()) {
    why_ = why;
  }
  changed_.NotifyAll();
}

bool PsEnd::told() const {
  MutexLock lock(&mutex_);
  return why_.has_value();
}

std::optional<absl::Status> PsEnd::WaitAWhile() {
  MutexLock lock(&mutex_);
  if (!why_.has_value()) {
    changed_.WaitFor(&mutex_, kPollEvery);
  }
  return why_;
}

absl::Status PsEnd::Wait(const Store& store, const std::function<int()>& signal,
                         Leaving* leaving) {
  std::optional<absl::Status> told;
  while (!(told = WaitAWhile()).has_value()) {
    const int came = signal();
    if (came == 0) {
      continue;
    }
    // After SIGTERM it serves on while a chief may want to save what is here.
    // An empty ps holds nothing to save.
    const bool has_chief = came == SIGTERM && store.Hello().state() != EMPTY &&
                           !Planted("ps.leaves_at_once");
    if (has_chief && !leaving->begun()) {
      leaving->Begin();
      LOG_INFO("SIGTERM: serving on until the chief has saved the job");
    }
    if (!has_chief || leaving->MayGo()) {
      return absl::CancelledError("no chief has work for this ps");
    }
  }
  // Whoever sent SIGTERM does not want to see this process started again.
  if (signal() == SIGTERM && IsTransientExit(ExitCodeFor(*told))) {
    told = absl::CancelledError(told->message());
  }
  return Annotate(*told, "shut down by the chief");
}

}  // namespace weir
