// Counts buffers that are lent to a transport until it gives them back.
//
// Place: ParameterClient and the calls of grpc_transport.cc wait with it before
// memory that was sent may change.
//
// Threads: safe. What Add returns may be called on any thread, also after the
// Loans object is gone.
#ifndef CLIENT_CC_TRANSPORT_LOANS_H_
#define CLIENT_CC_TRANSPORT_LOANS_H_

#include <chrono>
#include <functional>
#include <memory>

#include "common/base/mutex.h"

namespace weir {

class Loans {
 public:
  // Lends one buffer. Whoever gives it back calls the result, exactly once.
  std::function<void()> Add();
  // Waits until all are back; false if some are still lent after `timeout`.
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
