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
//   I1. An update is applied once on every shard, however often it is sent
//       (row_exchange.h decides what is sent).
//   I2. Rows are written only before WaitLookup returns, and gradients read
//       only before WaitUpdate does, unless on_wait ended the wait.
// Threads: compatible; it has two threads of its own for each shard.
// Errors: FAILED_PRECONDITION  unreachable for lost_after, restarted, or
//                              refused; the message names shard and address.
//         INVALID_ARGUMENT     ids that do not ascend, or no such table.
//         others               as the ps answered, with the shard's name.
//   After an error of a shard every call returns it.
// Cost: rows are copied once more, and gradients once, where there are several
//   shards or several tables in a message.
#ifndef CLIENT_CC_PARAMETERS_TABLE_CLIENT_H_
#define CLIENT_CC_PARAMETERS_TABLE_CLIENT_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/parameters/contribution.h"
#include "client/cc/parameters/row_exchange.h"
#include "client/cc/parameters/row_pieces.h"
#include "client/cc/parameters/shard_client.h"
#include "client/cc/transport/transport.h"
#include "proto/ps.pb.h"

namespace weir {

class TableClient : public ShardClient {
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
  ~TableClient() override { StopThreads(); }

  // Starts to fetch rows. `want`'s encoding is not looked at, since each table
  // has its own. The spans must stay until WaitLookup returns.
  // REQUIRES: no lookup is under way.
  absl::Status StartLookup(const Sender& sender, const Want& want, bool train,
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

 private:
  // Each has one thread. `shard` and `link` are constant.
  struct PullLane : Lane {
    PullLane(const Exchange::ConnectionOptions& options,
             std::shared_ptr<KnownLists> lists)
        : Lane(&exchange), exchange(options, std::move(lists)) {}
    std::shared_ptr<DataCall> call() const override { return stream; }

    size_t shard = 0;
    DataLink* link = nullptr;
    RowPullExchange exchange;
    std::shared_ptr<PullRowsStream> stream;
  };
  struct PushLane : Lane {
    PushLane(const Exchange::ConnectionOptions& options,
             std::shared_ptr<KnownLists> lists)
        : Lane(&exchange), exchange(options, std::move(lists)) {}

    size_t shard = 0;
    DataLink* link = nullptr;
    RowPushExchange exchange;
  };

  explicit TableClient(Options options);

  absl::Status Check(int table, std::span<const uint64_t> ids) const;
  size_t dim(int table) const {
    return options_.tables[static_cast<size_t>(table)].dim();
  }
  // The pieces of each shard. A shard without ids gets one empty piece.
  std::vector<std::vector<RowPiece>> Cut(std::span<const RowList> lists,
                                         RowUse use) const;

  Exchange::Step DoNext(Lane* lane) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnInterrupt() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Exchange::Step DoNextPull(PullLane* lane)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Exchange::Step DoNextPush(PushLane* lane)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // These drop the lock around the I/O.
  void Connect(PullLane* lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Ask(PullLane* lane, const RowPullExchange::Action& action)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Receive(PullLane* lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Push(PushLane* lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes the rows of a piece where the caller wants them.
  // The flow of the newest update's rows on one shard; 0 while no timeline is
  // recorded.
  uint64_t FlowOfRows(size_t shard) const;
  void Store(const RowPiece& piece, Encoding encoding, const Payload& payload);
  // One try of the whole update of a shard; adds the bytes of its payloads.
  absl::StatusOr<PushRowsReply> SendUpdate(PushLane* lane, uint64_t* bytes);
  // The piece's gradients, one list after another. They are the caller's own if
  // they lie side by side there, else a copy in `gathered`.
  const float* GradientsOf(const RowPiece& piece,
                           std::unique_ptr<float[]>* gathered) const;
  // Asks the shard who it is; false if it does not answer within half of
  // lost_after.
  bool SaysHello(PushLane* lane);

  const Options options_;
  // Constant after Create.
  std::vector<std::unique_ptr<DataLink>> links_;  // of the shards
  std::vector<std::unique_ptr<PullLane>> pulls_;
  std::vector<std::unique_ptr<PushLane>> pushes_;

  // The lookup and the update under way. Start* sets them before it wakes the
  // threads, which only read them.
  Sender lookup_sender_;
  Want want_;
  bool train_ = false;
  std::vector<Wanted> wanted_;
  ContributionPush push_;
  Versions versions_;
  std::vector<Gradients> gradients_;
};

}  // namespace weir

#endif  // CLIENT_CC_PARAMETERS_TABLE_CLIENT_H_
