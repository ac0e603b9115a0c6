// Counts buffers that are lent to a transport until it gives them back.
//
// Threads: safe. What Add returns may be called on any thread, also after the
// Loans are gone.
#ifndef CLIENT_CC_TRANSPORT_LOANS_H_
#define CLIENT_CC_TRANSPORT_LOANS_H_

#include <chrono>
#include <functional>
#include <memory>

#include "common/base/mutex.h"

namespace weir {

class Loans {
 public:
  // Lends one; the caller calls the result once to give it back.
  std::function<void()> Add();
  // False when some are still out after `timeout`.
  bool WaitForNone(std::chrono::milliseconds timeout);

 private:
  struct State {
    Mutex mutex;
    CondVar changed;
    int out ABSL_GUARDED_BY(mutex) = 0;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace weir

#endif  // CLIENT_CC_TRANSPORT_LOANS_H_
