// One contribution as a worker pushes it, and what became of it.
//
// Place: ParameterClient pushes its blocks and TableClient its rows; both take
// the same push and answer with the same result. client/cc/job/worker_session.h
// joins the two.
//
// Threads: compatible; values.
#ifndef CLIENT_CC_PARAMETERS_CONTRIBUTION_H_
#define CLIENT_CC_PARAMETERS_CONTRIBUTION_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cc/transport/transport.h"
#include "common/base/clock.h"
#include "proto/ps.pb.h"

namespace weir {

// What every client of the shards is given.
struct ShardClientOptions {
  Transport* transport = nullptr;
  std::vector<std::string> addresses;  // of the shards, in order
  std::chrono::milliseconds lost_after{10000};
  // Called about ten times a second while a call waits, on its thread and
  // without a lock; an error ends the call, which may then be repeated. May
  // be null.
  std::function<absl::Status()> on_wait;
  Clock* clock = Clock::Real();
};

// A client has no slot of its own: each contribution, and each pull, says who
// sends it.
struct ContributionPush {
  Sender sender = {};
  uint64_t sequence = 0;
  uint32_t index_in_step = 0;  // sync
  float weight = 1.0f;
  // Of blocks.
  std::vector<int> left_out = {};  // variables
  std::vector<Hyper> hyper = {};
  // Reads the values of all variables after the contribution, for the same
  // sender. From GradientReady(v) on, the values of `v` may change.
  std::optional<Want> then = std::nullopt;
  // Asks for `then` now, not as gradients leave; nothing may compute from
  // `parameters` any more. BeginContribution then waits for the pull before.
  bool then_at_once = false;
  // Of rows.
  std::vector<TableRate> rates = {};
};

struct ContributionResult {
  bool bad = false;  // NaN or Inf: some block, or a shard's rows, left out
  uint32_t bad_number = 0;     // of a variable or table that had them
  std::string bad_name;        // its name, where a client knows it
  uint64_t duplicates = 0;     // blocks, and shards that had the rows
  uint64_t staleness_sum = 0;  // over blocks, and shards for rows
  uint64_t staleness_count = 0;
  uint64_t staleness_max = 0;
  uint64_t rows_not_admitted = 0;
  // Bytes of payloads since the previous result; WorkerSession counts them.
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;

  // Adds a receipt that settles `count` blocks, or the rows of a shard.
  void AddReceipt(const Receipt& receipt, uint64_t count = 1);
  void Add(const ContributionResult& other);
};

// A model of more variables tells no more of them: the slowest are what helps.
inline constexpr int kVariableWaitsMax = 256;

// What a client has done since it was made.
struct ClientCounters {
  uint64_t bytes_sent = 0;  // payloads
  uint64_t bytes_received = 0;
  int64_t wait_ns = 0;      // the caller's, in calls that wait
  uint64_t reconnects = 0;  // streams and calls that broke
  // Of wait_ns: by the shard whose answer came last; and by the variable that
  // was waited for, the first kVariableWaitsMax of them. Either may be empty.
  std::vector<int64_t> shard_wait_ns;
  std::vector<int64_t> variable_wait_ns;

  uint64_t bytes() const { return bytes_sent + bytes_received; }
};

}  // namespace weir

#endif  // CLIENT_CC_PARAMETERS_CONTRIBUTION_H_
