// The worker's side of the parameters: it pulls values in place and pushes
// gradients.
//
// Place: worker/train/train_loop and the public SDK (client/cc/weir.h) call it;
// it speaks to every ps through a Transport. Blocks come and go while the
// caller computes: a block of gradients leaves when its last variable is ready,
// and values arrive in the order in which forward needs them.
//
// Terms
//   contribution  pushed by BeginContribution, GradientReady...,
//                 FinishContribution and WaitReceipts; one at a time.
//   pull          a set of blocks on its way into `parameters`; one at a time.
//   want          which values: the latest, or exactly version v
//                 (proto/ps.proto).
//
// Invariants
//   I1. Every block of a contribution is applied exactly once per (slot,
//       sequence), however often connections break: it is repeated until its
//       receipt is in.
//   I2. No block of a contribution leaves before every value of the pull before
//       it is here, on every shard.
//   I3. The caller may change gradients only between WaitReceipts and
//       GradientReady. Only a pull changes `parameters`, or stores values. With
//       ContributionPush::then, the pull of a block starts when the last
//       gradient in it is ready, in every mode, so no value that backward may
//       still read is overwritten. (then_at_once is for those who compute from
//       a copy.)
// Threads: one caller, plus two threads per stream, so that gradients leave
//   while answers are waited for, and one that watches for lost shards.
//   Interrupt may be called on any thread.
// Owns/borrows: transport, layout and both buffers are borrowed.
// Errors: FAILED_PRECONDITION  a shard is lost, restarted, or of another job,
//                              history or layout; the message names it.
//         PERMISSION_DENIED    a newer process has this slot.
//         others               as the ps answered, with its name.
//   After an error every call returns it.
#ifndef CLIENT_CC_PARAMETERS_PARAMETER_CLIENT_H_
#define CLIENT_CC_PARAMETERS_PARAMETER_CLIENT_H_

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/parameters/block_map.h"
#include "client/cc/parameters/contribution.h"
#include "client/cc/parameters/gradient_encoder.h"
#include "client/cc/parameters/shard_client.h"
#include "client/cc/parameters/shard_exchange.h"
#include "client/cc/transport/loans.h"
#include "client/cc/transport/transport.h"
#include "common/base/mutex.h"
#include "common/job/layout.h"
#include "proto/ps.pb.h"

namespace weir {

class ParameterClient : public ShardClient {
 public:
  struct Options : ShardClientOptions {
    const Layout* layout = nullptr;
    // Flat space, layout->flat_elements() floats each. `gradients` may be null
    // for a reader; its padding must be finite.
    float* parameters = nullptr;
    float* gradients = nullptr;
    // Stores a block's values, floats in pieces, which begin at `begin` of the
    // flat space, in place of `parameters`, which may then be null. It is
    // called by several threads at one time, for different blocks; what it
    // returns becomes the client's error. Empty: `parameters` gets them.
    std::function<absl::Status(int64_t begin,
                               std::span<const std::span<const char>> values)>
        store_values;
    // How gradients are encoded; the caller's wants name the encoding of
    // values.
    Compression compression;
    // Per shard and direction; see ShardExchange.
    int64_t in_flight_bytes_max = ShardExchange::kInFlightBytesMax;
    // Streams to each ps, each with a range of its blocks: more threads and
    // bytes in flight, for links that one connection does not fill. 0: as many
    // as the transport takes for the best.
    int channels_per_peer = 0;

    absl::Status Validate() const;
  };

  static absl::StatusOr<std::unique_ptr<ParameterClient>> Create(
      Options options);
  // Cancels what is under way.
  ~ParameterClient() override;

  // Starts to read all variables. FAILED_PRECONDITION while another pull is
  // under way.
  // REQUIRES: no contribution between BeginContribution and FinishContribution;
  //   before its receipts are here, `sender` is the contribution's.
  absl::Status StartPull(const Sender& sender, const Want& want);
  // Waits until the values of `v` are here, if a pull brings them.
  absl::Status WaitVariable(int v);
  absl::Status WaitPull();
  // Whether WaitVariable(v) would return at once, and OK. From
  // BeginContribution with `then` on it is about the values that `then` asks
  // for, once those of the pull before are here.
  bool HasVariable(int v);

  // Starts a contribution, once the receipts of the one before are here.
  absl::Status BeginContribution(const ContributionPush& contribution);
  // Says that the gradient of `v` (for a buffer, the sample) is final. A
  // repeat changes nothing, nor does a variable that BeginContribution left
  // out.
  void GradientReady(int v);
  // The same for several variables, whose gradients lie where the pairs say, in
  // their variables' shapes. Only parts that do not fill a block are copied.
  // The memory may change after WaitReceipts.
  void GradientsReady(std::span<const std::pair<int, const float*>> gradients);
  // Leaves out the variables that never became ready.
  absl::Status FinishContribution();
  // Waits until every shard has settled every block and nothing reads
  // `gradients` any more.
  absl::StatusOr<ContributionResult> WaitReceipts();

 private:
  // One stream to a ps. It carries all blocks of that shard, or a range of them
  // when there are several channels to a peer.
  // Both threads run the same loop: each takes the next action that the other
  // is not already doing. So one thread does all the work on a fast link while
  // the other sleeps, and no work is handed from one to the other.
  struct Channel : Lane {
    explicit Channel(ShardExchange::Options options)
        : Lane(&exchange), exchange(std::move(options)) {}
    std::shared_ptr<DataCall> call() const override { return stream; }

    int number = 0;  // in channels_; constant, as are the next two
    int ps = 0;      // the number of its shard
    std::unique_ptr<DataLink> link;
    ShardExchange exchange;
    std::shared_ptr<PushPullStream> stream;
  };
  // One block of the contribution under way. A `block` below is a
  // block of map_.
  struct BlockPush {
    int not_ready = 0;  // variables
    std::vector<uint32_t> left_out;
    const float* from = nullptr;  // null: `gradients` has it
  };
  using Part = BlockMap::Part;

  explicit ParameterClient(Options options);
  void MakeChannels();
  // These run on the threads of a channel (parameter_client_channels.cc).
  Exchange::Step DoNext(Lane* lane) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // These three drop the lock around the I/O.
  void Connect(Channel* channel) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(Channel* channel, ShardExchange::Action action)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Receive(Channel* channel) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The bytes that a chunk with a payload sends; names their encoding in it.
  std::span<const char> PayloadOf(int ps, const float* from,
                                  GradientChunk* header) const;
  // Puts the values of an answer where the caller wants them.
  absl::Status StoreValues(const Payload& payload, Encoding encoding,
                           const FlatRange& range) const;
  void BeginWants(const Sender& sender, const Want& want, bool at_once = false)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WantWithContribution() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteWanted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnStored(int block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void VariableReady(int v, bool left_out)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Hits the failpoints that say where a push stands.
  void HitFailpoints(Channel* channel) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The flow of one of the channel's blocks in the newest contribution; 0 while
  // no timeline is recorded.
  uint64_t TraceFlowOfBlock(const Channel& channel, uint32_t block) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool ContributionDone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a pull waits for the one under way.
  bool PullWaits() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool ValuesHere(int v) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  std::unique_ptr<GradientEncoder> encoder_;  // null: F32 from `gradients`
  BlockMap map_;                              // constant after Create

  std::vector<BlockPush> blocks_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Channel>> channels_;  // constant after Create
  // Pull.
  std::vector<int> values_missing_ ABSL_GUARDED_BY(mutex_);  // per variable
  int values_left_ ABSL_GUARDED_BY(mutex_) = 0;              // blocks
  // Contribution.
  bool contribution_open_ ABSL_GUARDED_BY(mutex_) = false;
  // Of the newest one, for timelines.
  uint64_t history_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t slot_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<bool> variable_ready_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> left_out_ ABSL_GUARDED_BY(mutex_);  // by BeginContribution
  // The values to be read after the contribution. Set only while the pull
  // before it is still under way.
  std::optional<Want> then_ ABSL_GUARDED_BY(mutex_);
  int failpoints_hit_ ABSL_GUARDED_BY(mutex_) = 0;  // bits
  Loans loans_;  // payloads that the transport still reads
};

}  // namespace weir

#endif  // CLIENT_CC_PARAMETERS_PARAMETER_CLIENT_H_
