// The clients of one worker, for blocks and for rows, in step.
//
// Place: one grant's work. The train loop and the SDK's session each drive one:
// they push and pull blocks and rows through its clients, and ask it for what
// belongs to both. Both begin with a WorkerMemory.
//
// Invariants
//   I1. A contribution is settled when every shard has settled its blocks and
//       its rows; a checkpoint after that holds both or neither.
//   I2. In sync, what is wanted for a step is that step's version. Elsewhere it
//       is the latest, in bounded staleness with the slot's clock.
// Threads: one caller; Interrupt and counters may be called on any thread.
// Owns/borrows: owns both clients; what Options name is borrowed.
// Errors: those of ParameterClient and TableClient.
#ifndef CLIENT_CC_JOB_WORKER_SESSION_H_
#define CLIENT_CC_JOB_WORKER_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/parameters/contribution.h"
#include "client/cc/parameters/parameter_client.h"
#include "client/cc/parameters/table_client.h"
#include "client/cc/transport/transport.h"
#include "common/job/layout.h"
#include "proto/ps.pb.h"

namespace weir {

// A model's memory in a worker, in the flat space of its layout. A session in
// another slot of the same job may use it again.
struct WorkerMemory {
  // Zeroed. INVALID_ARGUMENT: Layout's. RESOURCE_EXHAUSTED: no memory.
  static absl::StatusOr<std::shared_ptr<WorkerMemory>> Create(
      std::vector<VariableSpec> variables, int shards, int64_t block_elements,
      Transport* transport);

  Layout layout;
  // This process's alone: a transport copies values in.
  std::shared_ptr<float> parameters;
  // The transport's: it need not copy what it sends from there.
  std::shared_ptr<float> gradients;
};

class WorkerSession {
 public:
  struct Options : ParameterClient::Options {
    std::vector<EmbeddingTable> tables;  // of the job; none: no rows
    bool bounded_staleness = false;      // send clocks with wants
  };

  static absl::StatusOr<std::unique_ptr<WorkerSession>> Create(Options options);

  ParameterClient* blocks() { return blocks_.get(); }
  TableClient* rows() { return rows_.get(); }  // null without tables

  bool bounded_staleness() const { return bounded_staleness_; }
  // What to pull for the contribution `sequence`; `version` is that of its
  // step, in sync.
  Want WantFor(uint64_t sequence, std::optional<uint64_t> version) const;

  // Waits until the contribution is settled. It may be called again after
  // on_wait ended it.
  // REQUIRES: blocks and rows of the contribution were pushed.
  absl::StatusOr<ContributionResult> WaitReceipts();

  // Ends every wait for values and rows, now and later, with `status`; a
  // contribution in flight still gets its receipts.
  void Interrupt(const absl::Status& status);
  ClientCounters counters() const;  // of both, but wait_ns of blocks alone

 private:
  explicit WorkerSession(bool bounded_staleness, Encoding pull)
      : bounded_staleness_(bounded_staleness), pull_encoding_(pull) {}

  const bool bounded_staleness_;
  const Encoding pull_encoding_;
  std::unique_ptr<ParameterClient> blocks_;
  std::unique_ptr<TableClient> rows_;
  ClientCounters reported_;  // by WaitReceipts
};

}  // namespace weir

#endif  // CLIENT_CC_JOB_WORKER_SESSION_H_
