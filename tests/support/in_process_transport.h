// A Transport straight onto stores in this process, with faults on demand.
//
// Place: tests of the client and the chief without sockets. Like gRPC it does
// not split, join or check messages, and like a network it copies payloads
// once. It gives a stream's payloads back late, and checks that their bytes
// have not changed until then. Values arrive in two pieces, of which the first
// ends inside a float.
//
// Terms
//   fault   what happens to a request; it is drawn for each request from the
//           seed. With one caller the same seed gives the same faults.
//   fate    what a test decides to happen to a request for blocks.
//
// No thread ends waits that took too long, so callers that are blocked do it:
// they call Store::ExpireWaits every few milliseconds.
//
// Threads: safe.
// Borrows: the stores, until Stop has returned or the transport has ended.
#ifndef TESTS_SUPPORT_IN_PROCESS_TRANSPORT_H_
#define TESTS_SUPPORT_IN_PROCESS_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "client/cc/transport/transport.h"
#include "common/base/mutex.h"
#include "common/math/random.h"
#include "server/ps/store/store.h"

namespace weir {

// The probability of each fault, for one request and its answers.
struct WireFaults {
  double lost_before = 0;  // UNAVAILABLE, and the store never saw it
  double lost_after = 0;   // UNAVAILABLE, and the store took it
  double no_answer = 0;    // PushPull: the store took it, silence
  double duplicated = 0;   // a push reaches the store twice
  double delayed = 0;      // PushPull: the answers come after later ones
};

namespace in_process_internal {
class StreamEnd;
}

class InProcessTransport : public Transport {
 public:
  enum class Fate { kNormal, kLostBefore, kLostAfter, kNoAnswer };
  using DecideFate = std::function<Fate(const std::string& address,
                                        const GradientChunk& request)>;

  explicit InProcessTransport(uint64_t seed = 1) : random_(seed) {}

  // From now on `store` answers at `address`.
  void Serve(const std::string& address, Store* store);
  // From now on nobody answers at `address`: its streams break, calls fail.
  // Waits until no call is inside the store, which may be destroyed then.
  void Stop(const std::string& address);
  void SetFaults(const WireFaults& faults);
  // From now on `decide` is asked about each request of PushPull for which no
  // fault was drawn; null: nobody is. It may be called by several threads at
  // once, and the request waits until it returns.
  void SetFate(DecideFate decide);
  // The next `requests` requests to `address` end with `status`, and the store
  // never sees them.
  void FailNext(const std::string& address, int requests,
                const absl::Status& status);
  // Returns whether Shutdown was called there and granted.
  bool was_shut_down(const std::string& address) const;

  std::unique_ptr<ControlLink> Connect(const std::string& address) override;
  std::unique_ptr<DataLink> ConnectData(const std::string& address) override;

  // For links and streams.
  struct Draw {
    Fate fate = Fate::kNormal;
    absl::Status lost;  // what the caller of a lost request sees
    bool duplicated = false;
    bool delayed = false;
  };
  Draw DrawFault(const std::string& address);
  // The same for a request of PushPull, which a test may decide about.
  Draw DrawFault(const std::string& address, const GradientChunk& request);
  // Returns the store that answers at `address`, or UNAVAILABLE. Stop waits
  // for the pointer, so it is kept for one call and not longer.
  absl::StatusOr<std::shared_ptr<Store>> Find(const std::string& address) const;
  void AddStream(const std::string& address,
                 std::weak_ptr<in_process_internal::StreamEnd> stream);
  void MarkShutDown(const std::string& address);

 private:
  mutable Mutex mutex_;
  RandomStream random_ ABSL_GUARDED_BY(mutex_);
  WireFaults faults_ ABSL_GUARDED_BY(mutex_);
  DecideFate decide_fate_ ABSL_GUARDED_BY(mutex_);
  struct Failing {
    int requests = 0;
    absl::Status status;
  };
  std::map<std::string, Failing> failing_ ABSL_GUARDED_BY(mutex_);
  struct Served {
    std::shared_ptr<Store> store;
    std::shared_ptr<absl::Notification> left;  // by the last call
  };
  std::map<std::string, Served> stores_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, bool> shut_down_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string,
           std::vector<std::weak_ptr<in_process_internal::StreamEnd>>>
      streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // TESTS_SUPPORT_IN_PROCESS_TRANSPORT_H_
