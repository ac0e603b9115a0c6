// A TCP proxy on loopback whose connections a test can reset, slow down, hold
// up, damage and record.
//
// Threads: safe. One thread accepts, two copy per connection.
#ifndef TESTS_SUPPORT_CHAOS_PROXY_H_
#define TESTS_SUPPORT_CHAOS_PROXY_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"

namespace weir {

class ChaosProxy {
 public:
  struct Options {
    // The rate of each direction of each connection; 0 for as fast as it goes.
    // A slow link buffers little, so that its ends see what has passed.
    double bytes_per_s = 0;
    bool record = false;  // keep all that passes, for Recorded
  };

  // Forwards to "127.0.0.1:port".
  explicit ChaosProxy(const std::string& target)
      : ChaosProxy(target, Options()) {}
  ChaosProxy(const std::string& target, Options options);
  ~ChaosProxy();

  const std::string& address() const { return address_; }
  // Ends every open connection with RST, wherever in a message it is.
  // Returns how many there were.
  int ResetAll();
  // While it is held, nothing passes in either direction; connections stay
  // open, so that neither end is told.
  void SetHeld(bool held);
  // Flips one bit about every so many bytes of a connection, in each direction;
  // 0 for never. It flips only within runs of equal floats, so only payloads of
  // such are damaged.
  void FlipBits(int64_t every_up, int64_t every_down) {
    flip_up_ = every_up;
    flip_down_ = every_down;
  }
  int flipped() const { return flipped_; }
  // Bytes that have passed from clients to the target.
  int64_t bytes_up() const { return bytes_up_; }
  // Ends every open connection and returns what all there were have carried, a
  // text for each direction of each. REQUIRES: the options ask for it.
  std::deque<std::string> Recorded();

 private:
  struct Connection {
    int client = -1;
    int server = -1;
    std::thread up, down;
  };

  void Accept();
  // Returns where one direction of a connection is kept; null: it is not.
  std::string* NewRecord();
  // Copies until either side ends, then passes the end on.
  void Copy(int from, int to, bool up);
  // Waits while held. Returns false when the proxy ends.
  bool Pass();
  void Flip(char* bytes, int64_t count, bool up, int64_t* passed);

  const Options options_;
  int target_port_ = 0;
  int listener_ = -1;
  std::string address_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> flip_up_{0};
  std::atomic<int64_t> flip_down_{0};
  std::atomic<int> flipped_{0};
  std::atomic<int64_t> bytes_up_{0};
  Mutex mutex_;
  CondVar released_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Connection>> connections_ ABSL_GUARDED_BY(mutex_);
  // Each is written by one thread, as long as its connection is open.
  std::deque<std::string> recorded_ ABSL_GUARDED_BY(mutex_);
  std::thread acceptor_;
};

}  // namespace weir

#endif  // TESTS_SUPPORT_CHAOS_PROXY_H_
