// The threads of a client of the shards, and its waits.
//
// Place: the base of ParameterClient and TableClient. Each of them has lanes,
// one for each exchange with a shard; this class runs their threads, watches
// for shards that are lost, and ends waits.
//
// Invariants
//   I1. A lane's threads do what its exchange says next, and sleep while there
//       is nothing to do.
//   I2. The first error of any exchange is the client's, for good.
// Threads: Interrupt and counters may be called on any thread. Besides the
//   lanes' threads there is one that watches.
#ifndef CLIENT_CC_PARAMETERS_SHARD_CLIENT_H_
#define CLIENT_CC_PARAMETERS_SHARD_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/cc/parameters/contribution.h"
#include "client/cc/parameters/exchange.h"
#include "client/cc/transport/transport.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/threads/thread.h"

namespace weir {

class ShardClient {
 public:
  virtual ~ShardClient() = default;

  // Ends every wait for values, now and later, with `status`; a contribution in
  // flight still gets its receipts.
  void Interrupt(const absl::Status& status);
  ClientCounters counters() const;

 protected:
  // One exchange with a shard. All members but `wake` and `threads` are guarded
  // by mutex_; a thread that is blocked in the stream holds its own reference
  // to it.
  struct Lane {
    explicit Lane(Exchange* exchange) : decides(exchange) {}
    virtual ~Lane() = default;
    // What a thread may be blocked in; null without a stream.
    virtual std::shared_ptr<DataCall> call() const { return nullptr; }

    Exchange* const decides;
    std::string name;  // of its threads in timelines; constant
    bool sending = false;
    bool receiving = false;
    CondVar wake;
    std::vector<Thread> threads;
  };

  explicit ShardClient(ShardClientOptions options)
      : common_(std::move(options)) {}

  Exchange::ConnectionOptions ConnectionTo(int shard) const;
  // Starts `threads` threads for each lane, and the one that watches. `lanes`
  // must stay until StopThreads, which the destructor of the client calls.
  void StartThreads(std::vector<Lane*> lanes, int threads);
  void StopThreads();

  // Asks the lane's exchange for its next step and does it, without the lock
  // around I/O. Returns the step, for kIdle, kSleep and kFailed are left to the
  // caller.
  virtual Exchange::Step DoNext(Lane* lane)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Called by Interrupt.
  virtual void OnInterrupt() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {}

  // Counts a stream or call that ended with `status`, and logs damage.
  void NoteBreak(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Keeps the first error of any exchange, which ends every wait (I2).
  void NoteFailure(Lane* lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Says that an answer of `shard` has come: a wait that ends next waited for
  // it.
  void NoteAnswer(int shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    answered_ = static_cast<size_t>(shard);
  }
  // Waits until `done` holds; it is called with the lock held. Returns the
  // client's error, or that of on_wait. `variable` is what the caller waits
  // for, -1 for everything.
  template <typename Done>
  absl::Status WaitUntil(const Done& done, int variable = -1)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    absl::Status ended;
    if (!done()) {
      const int64_t begin = Clock::Real()->NowNs();
      do {
        ended = WaitOnce();
      } while (ended.ok() && !done());
      CountWait(Clock::Real()->NowNs() - begin, variable);
    }
    // A shard that is lost says more than that the caller wants to wait no
    // more.
    return status_.ok() ? ended : status_;
  }

  mutable Mutex mutex_;
  CondVar changed_;  // rung when something that a caller waits for happens
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  absl::Status interrupted_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  ClientCounters counters_ ABSL_GUARDED_BY(mutex_);

 private:
  void Run(Lane* lane);
  void Watch();
  // Drops the lock for a while.
  void Look(Lane* lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountWait(int64_t ns, int variable)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits for changed_, and asks on_wait about ten times a second.
  absl::Status WaitOnce() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ShardClientOptions common_;
  std::vector<Lane*> lanes_;                     // constant after StartThreads
  size_t answered_ ABSL_GUARDED_BY(mutex_) = 0;  // the shard of NoteAnswer
  CondVar watch_;
  Thread watcher_;
};

}  // namespace weir

#endif  // CLIENT_CC_PARAMETERS_SHARD_CLIENT_H_
