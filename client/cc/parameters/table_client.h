// The worker's side of tables: rows by id from every shard, and their gradients
// back.
//
// Place: beside ParameterClient, for the same contributions;
// worker/train/train_loop and the SDK call it. It deals ids to the shards and
// cuts them into pieces (row_pieces.h), repeats what a broken connection lost,
// and puts rows in order.
//
// Terms
//   lookup  fetches rows of some tables; one at a time. The lookup of the next
//           batch may be under way while the update of this one is.
//   update  brings one contribution's gradients; one at a time. Every
//           contribution needs one, which may be empty.
//
// Invariants
//   I1. An update is applied once on every shard, however often it is sent.
//   I2. A list of ids is sent to a shard once, as long as the shard keeps it;
//       after that only its name is sent.
// Threads: compatible; it has two threads of its own for each shard.
// Errors: FAILED_PRECONDITION  unreachable for lost_after, restarted, or
//                              refused; the message names shard and address.
//         INVALID_ARGUMENT     ids that do not ascend, or no such table.
//         others               as the ps answered, with the shard's name.
// Cost: rows are copied once more, and gradients once, where there are several
//   shards or several tables in a message.
#ifndef CLIENT_CC_PARAMETERS_TABLE_CLIENT_H_
#define CLIENT_CC_PARAMETERS_TABLE_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/parameters/contribution.h"
#include "client/cc/parameters/row_pieces.h"
#include "client/cc/transport/peer_watch.h"
#include "client/cc/transport/retry_policy.h"
#include "client/cc/transport/transport.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "proto/ps.pb.h"

namespace weir {

class TableClient {
 public:
  struct Options : ShardClientOptions {
    std::vector<EmbeddingTable> tables;  // as declared
    // How many bytes of rows, as float32, one request may ask for or bring.
    // More bytes are fewer requests; fewer keep client and ps busy together.
    int64_t piece_bytes = 1 << 20;
  };

  // Rows of one table, which are written to `rows` [ids, dim], row-major. Ids
  // ascend.
  struct Wanted {
    int table = 0;
    std::span<const uint64_t> ids;
    float* rows = nullptr;
  };
  // Gradients [ids, dim], row-major. Ids ascend.
  struct Gradients {
    int table = 0;
    std::span<const uint64_t> ids;
    const float* gradients = nullptr;
  };
  // The version that a lookup read, for each shard.
  using Versions = std::vector<uint64_t>;

  static absl::StatusOr<std::unique_ptr<TableClient>> Create(Options options);
  // Cancels what is under way.
  ~TableClient();

  // Starts to fetch rows. `want`'s encoding is not looked at, since each table
  // has its own. The spans must stay until WaitLookup returns.
  // REQUIRES: no lookup is under way.
  absl::Status StartLookup(const Want& want, bool train,
                           std::span<const Wanted> wanted);
  // Waits until all rows of the lookup are here.
  absl::StatusOr<Versions> WaitLookup();

  // Starts to send gradients, which come from rows that a lookup read in
  // `versions`. The spans must stay until WaitUpdate returns.
  // REQUIRES: no update is under way.
  absl::Status StartUpdate(const ContributionPush& push,
                           const Versions& versions,
                           std::span<const Gradients> gradients);
  // Waits until every shard has settled the update.
  absl::StatusOr<ContributionResult> WaitUpdate();

  // Ends every wait for rows, now and later, with `status`; an update under way
  // still gets its receipts.
  void Interrupt(const absl::Status& status);

  ClientCounters counters() const;

 private:
  using Part = RowPart;
  using Piece = RowPiece;
  enum class Kind : int { kLookup, kUpdate };
  // The work of one thread. Start hands it over, and the thread gives it back.
  struct Lane {
    bool busy = false;  // from Start until the thread has set `status`
    absl::Status status;
    CondVar wake;
    std::thread thread;
  };
  struct Shard {
    explicit Shard(std::chrono::milliseconds lost_after) : watch(lost_after) {}

    std::unique_ptr<DataLink> link;
    std::shared_ptr<PullRowsStream> stream;
    Lane lanes[2];      // by Kind
    PeerWatch watch;    // for the lookup
    bool lost = false;  // says `watch`
    uint64_t version = 0;
    PushRowsReply reply;
    uint64_t incarnation = 0;
    // Lists that the shard was sent: their names, each with its table.
    absl::flat_hash_set<std::pair<uint64_t, uint32_t>> known;
  };

  explicit TableClient(Options options);

  absl::Status Check(int table, std::span<const uint64_t> ids) const;
  int dim(int table) const {
    return static_cast<int>(options_.tables[static_cast<size_t>(table)].dim());
  }
  // The pieces of each shard. A shard without ids gets one empty piece.
  std::vector<std::vector<Piece>> Cut(std::span<const RowList> lists,
                                      RowUse use) const;
  void Start(Kind kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Wait(Kind kind);
  void Run(int shard, Kind kind);
  absl::Status RunLookup(int shard);
  absl::Status Ask(int shard, Piece* piece, uint32_t request);
  absl::Status Take(int shard, const RowChunk& header, const Payload& payload);
  absl::Status RunUpdate(int shard);
  absl::StatusOr<PushRowsReply> SendUpdate(int shard);
  // The piece's gradients, one list after another. They are the caller's own if
  // they lie side by side there, else a copy in `gathered`.
  const float* GradientsOf(const Piece& piece,
                           std::unique_ptr<float[]>* gathered) const;
  IdList ListOf(int shard, const Part& part);
  void Remember(int shard, const Part& part);
  absl::Status CheckIncarnation(int shard, uint64_t incarnation);
  // Ends a lookup's stream when its shard is lost. Drops the lock for a while.
  void Look(Shard* shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sleeps before another try, or says why there is no further one.
  absl::Status BeforeRetry(int shard, const absl::Status& status,
                           RetryPolicy* retry);
  // Asks the shard who it is; false if it does not answer within half of
  // lost_after.
  bool SaysHello(int shard);
  absl::Status Named(int shard, const absl::Status& status) const;

  const Options options_;

  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Shard>> shards_;  // constant after Create
  CondVar changed_;
  CondVar stopping_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status interrupted_ ABSL_GUARDED_BY(mutex_);
  ClientCounters counters_ ABSL_GUARDED_BY(mutex_);

  // The lookup and the update under way. Start* sets them before it wakes the
  // threads, and each thread uses its shard's part only.
  Want want_;
  bool train_ = false;
  std::vector<Wanted> wanted_;
  std::vector<std::vector<Piece>> lookup_pieces_;  // by shard
  ContributionPush push_;
  Versions versions_;
  std::vector<Gradients> gradients_;
  std::vector<std::vector<Piece>> update_pieces_;
};

}  // namespace weir

#endif  // CLIENT_CC_PARAMETERS_TABLE_CLIENT_H_
