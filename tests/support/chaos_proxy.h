// A TCP proxy on loopback whose connections a test can reset.
//
// Threads: safe. One thread accepts, two copy per connection.
#ifndef TESTS_SUPPORT_CHAOS_PROXY_H_
#define TESTS_SUPPORT_CHAOS_PROXY_H_

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"

namespace weir {

class ChaosProxy {
 public:
  // Forwards to "127.0.0.1:port".
  explicit ChaosProxy(const std::string& target);
  ~ChaosProxy();

  const std::string& address() const { return address_; }
  // Ends every open connection with RST, wherever in a message it is.
  // Returns how many there were.
  int ResetAll();

 private:
  struct Connection {
    int client = -1;
    int server = -1;
    std::thread up, down;
  };

  void Accept();

  int target_port_ = 0;
  int listener_ = -1;
  std::string address_;
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  std::vector<std::unique_ptr<Connection>> connections_ ABSL_GUARDED_BY(mutex_);
  std::thread acceptor_;
};

}  // namespace weir

#endif  // TESTS_SUPPORT_CHAOS_PROXY_H_
