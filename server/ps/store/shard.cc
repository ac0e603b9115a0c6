#include "server/ps/store/shard.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/failpoint.h"
#include "common/base/status.h"
#include "common/trace/trace.h"
#include "proto/wire/measures.h"
#include "proto/wire/value_encoding.h"
#include "server/ps/block/block_contents.h"
#include "server/ps/block/snapshot_job.h"

namespace weir {
namespace {

// How much of the caller's attention a receipt asks for. DEFERRED must be sent
// again, so it must not be hidden by another outcome of the same run.
int Urgency(Receipt::Outcome outcome) {
  switch (outcome) {
    case Receipt::DEFERRED:
      return 3;
    case Receipt::ACCEPTED:
      return 2;
    default:
      return 1;
  }
}

}  // namespace

Shard::Shard(std::shared_ptr<const ShardPlan> plan, Arena* arena, Clock* clock)
    : plan_(*plan),
      clock_(clock),
      context_(std::move(plan), arena),
      mode_(CreateConsistencyMode(&context_)) {
  for (const BlockPlan& block : plan_.blocks()) {
    blocks_.push_back(std::make_unique<Block>(
        &block, plan_.declaration().base_version(), plan_.slot_count(),
        &context_.counters.waits_parked));
  }
}

absl::StatusOr<std::shared_ptr<Shard>> Shard::Make(
    std::shared_ptr<const ShardPlan> plan, Arena* arena, Clock* clock) {
  std::shared_ptr<Shard> shard(new Shard(std::move(plan), arena, clock));
  WEIR_ASSIGN_OR_RETURN(
      shard->tables_,
      TableGroup::Create(&shard->context_, shard->mode_.get(), arena, clock));
  return shard;
}

absl::StatusOr<std::shared_ptr<Shard>> Shard::Initialise(
    std::shared_ptr<const ShardPlan> plan, Arena* arena, Clock* clock) {
  WEIR_ASSIGN_OR_RETURN(const std::shared_ptr<Shard> shard,
                        Make(std::move(plan), arena, clock));
  for (const std::unique_ptr<Block>& block : shard->blocks_) {
    MutexLock lock(&block->mutex);
    InitialiseBlock(shard->plan_, arena, *block);
  }
  return shard;
}

absl::StatusOr<std::shared_ptr<Shard>> Shard::FromCheckpoint(
    std::shared_ptr<const ShardPlan> plan, Arena* arena, Clock* clock,
    ObjectStore* files, CheckpointReader& reader) {
  WEIR_RETURN_IF_ERROR(CheckSameVariables(plan->layout(), reader));
  WEIR_ASSIGN_OR_RETURN(const std::shared_ptr<Shard> shard,
                        Make(std::move(plan), arena, clock));
  for (const std::unique_ptr<Block>& block : shard->blocks_) {
    MutexLock lock(&block->mutex);
    WEIR_RETURN_IF_ERROR(RestoreBlock(shard->plan_, arena, reader, *block));
    Failpoint("ps.mid_restore");
  }
  // Nobody knows the new shard yet: an error here leaves the old one serving.
  WEIR_RETURN_IF_ERROR(
      RestoreTables(*shard->tables_, files, shard->plan_, reader));
  return shard;
}

absl::StatusOr<Payload> Shard::Decoded(const GradientChunk& chunk,
                                       Payload payload) {
  const int64_t elements = plan_.blocks()[chunk.block()].range.count;
  const auto count = static_cast<size_t>(elements);
  // float32 of the right size is applied where the transport put it. All else
  // goes through DecodeFloats, which also refuses a wrong size.
  if (payload.empty() || (chunk.encoding() == F32 &&
                          payload.bytes() == EncodedBytes(F32, count))) {
    return payload;
  }
  const auto values =
      std::make_shared<BlockRef>(BlockRef::Make(context_.arena, elements));
  WEIR_RETURN_IF_ERROR(
      Annotate(DecodeFloats(payload, chunk.encoding(), count, values->data()),
               absl::StrCat("block ", chunk.block())));
  return Payload(
      {{reinterpret_cast<const char*>(values->data()), values->bytes()}},
      values);
}

absl::StatusOr<Receipt> Shard::Push(const GradientChunk& chunk,
                                    Payload payload) {
  // I1: nothing of the shard is touched before both checks have passed.
  WEIR_RETURN_IF_ERROR(CheckPusher(context_.slots, active_, chunk.sender()));
  WEIR_RETURN_IF_ERROR(CheckPush(plan_, chunk, payload));
  WEIR_ASSIGN_OR_RETURN(payload, Decoded(chunk, std::move(payload)));
  const auto first = static_cast<int>(chunk.block());
  if (chunk.block_count() <= 1) {
    return PushBlock(chunk, first, std::move(payload));
  }
  // One receipt for the run: the outcome that asks most of the caller. A run
  // that is sent again finds its settled blocks as duplicates.
  Receipt all;
  for (uint32_t i = 0; i < chunk.block_count(); ++i) {
    WEIR_ASSIGN_OR_RETURN(
        Receipt receipt,
        PushBlock(chunk, first + static_cast<int>(i), Payload()));
    if (i == 0 || Urgency(receipt.outcome()) > Urgency(all.outcome())) {
      all = std::move(receipt);
    }
  }
  return all;
}

absl::StatusOr<Receipt> Shard::PushBlock(const GradientChunk& chunk, int index,
                                         Payload payload) {
  const TraceSpan span("apply", [&](TraceDetails* details) {
    DescribeApply(plan_, chunk.sender().slot(), chunk.push().sequence(),
                  static_cast<uint32_t>(index), details);
  });
  const int64_t begin_ns = clock_->NowNs();
  Failpoint("ps.before_apply");
  Block& block = *blocks_[index];
  BlockGradient gradient = {static_cast<int>(chunk.sender().slot()),
                            &chunk.push(), std::move(payload), begin_ns};
  DueList due;
  WEIR_ASSIGN_OR_RETURN(const Receipt receipt,
                        mode_->Push(block, std::move(gradient), due));
  ShardCounters& counters = context_.counters;
  counters.apply.Record(clock_->NowNs() - begin_ns);
  switch (receipt.outcome()) {
    case Receipt::DUPLICATE:
      ++counters.duplicate;
      break;
    case Receipt::LEFT_OUT:
      ++counters.left_out;
      break;
    case Receipt::DEFERRED:
      ++counters.deferred;
      break;
    default:
      ++counters.accepted;
  }
  Finish(block, due);
  return receipt;
}

void Shard::Finish(Block& block, const DueList& due) {
  // The mode has dropped the block's lock: a continuation may take the locks
  // of its stream, and may come back with the next pull.
  for (const std::function<void()>& run : due) {
    run();
  }
  Wake(block, kNoDeadlinePassed);
}

void Shard::Pull(const Sender& sender, int index, const Want& want,
                 PullDone done) {
  absl::Status status = CheckGeneration(sender);
  if (status.ok()) {
    status = CheckBlock(index);
  }
  if (status.ok() && want.when_case() == Want::WHEN_NOT_SET) {
    status = absl::InvalidArgumentError(
        "want names neither `latest` nor a `version`");
  }
  if (!status.ok()) {
    done(std::move(status));
    return;
  }
  Block& block = *blocks_[index];
  absl::StatusOr<std::optional<PulledBlock>> answer = std::nullopt;
  {
    MutexLock lock(&block.mutex);
    // Under one lock: a push between Answer and parking would be missed.
    answer = mode_->Answer(block, want);
    if (answer.ok() && !answer->has_value()) {
      // I3: Close takes this lock, so it finds the pull that is parked now, or
      // the pull finds the place closed.
      const int64_t now_ns = clock_->NowNs();
      ParkedPull pull = {want, TracedWait("parked", index, std::move(done)),
                         now_ns};
      status = block.parked.Park(sender, want, now_ns, std::move(pull));
      if (status.ok()) {
        return;
      }
      // After an error Park has not taken it.
      done = std::move(pull.done);  // NOLINT(bugprone-use-after-move)
      answer = std::move(status);
    }
  }
  if (!answer.ok()) {
    done(answer.status());
  } else {
    done(**std::move(answer));
  }
}

void Shard::Wake(Block& block, int64_t now_ns) {
  // Whoever parked before our change released the lock before we took it.
  if (block.NobodyParked()) {
    return;
  }
  Parking<ParkedPull>::Ended<PulledBlock> ended;
  PulledBlock not_yet = {block.plan.index, 0, true, BlockRef()};
  {
    MutexLock lock(&block.mutex);
    std::vector<absl::StatusOr<std::optional<PulledBlock>>> answers;
    for (const auto& parked : block.parked.waits()) {
      answers.push_back(mode_->Answer(block, parked.wait.want));
    }
    // I2: under the lock, so no other thread can end one a second time.
    ended = block.parked.Take(now_ns, std::move(answers));
    not_yet.version = block.order.version;
  }
  // Without the lock: `done` writes to a stream, which may ask for more.
  const int64_t ended_ns = ended.empty() ? 0 : clock_->NowNs();
  for (auto& [pull, answer] : ended) {
    context_.counters.park.Record(ended_ns - pull.parked_ns);
    if (answer.ok()) {
      pull.done((*std::move(answer)).value_or(not_yet));
    } else {
      pull.done(answer.status());
    }
  }
}

void Shard::PullRows(const PullRowsChunk& request, PullRowsDone done) {
  if (const absl::Status status = CheckGeneration(request.sender());
      !status.ok()) {
    done(status);
    return;
  }
  tables_->PullRows(request, std::move(done));
}

absl::Status Shard::StagePush(const PushRowsChunk& chunk,
                              const Payload& payload, StagedPush* update) {
  WEIR_RETURN_IF_ERROR(CheckPusher(context_.slots, active_, chunk.sender()));
  return tables_->Stage(chunk, payload, update);
}

void Shard::ApplySlots() {
  for (const std::unique_ptr<Block>& block : blocks_) {
    DueList due;
    mode_->SlotsChanged(*block, due);
    Finish(*block, due);
  }
  tables_->SlotsChanged();
  // After all blocks: a slot that has just retired may have let the last
  // version through that a snapshot waits for.
  CancelHopelessSnapshot();
}

void Shard::ExpireWaits() {
  tables_->ExpireWaits();  // their clocks move, whether or not anyone waits
  if (context_.counters.waits_parked == 0) {
    return;
  }
  const int64_t now_ns = clock_->NowNs();
  for (const std::unique_ptr<Block>& block : blocks_) {
    Wake(*block, now_ns);
  }
}

absl::Status Shard::Assign(const AssignChunk& header, const Payload& payload) {
  if (active_) {
    return absl::FailedPreconditionError(
        "the shard is ACTIVE: values are assigned before slots are set");
  }
  WEIR_RETURN_IF_ERROR(CheckBlock(header.block()));
  const int64_t elements = plan_.blocks()[header.block()].range.count;
  if (payload.bytes() % sizeof(float) != 0 ||
      header.offset() + payload.bytes() / sizeof(float) >
          static_cast<uint64_t>(elements)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "block ", header.block(), " has ", elements, " elements; ",
        payload.bytes(), " bytes do not fit at element ", header.offset()));
  }
  Block& block = *blocks_[header.block()];
  MutexLock lock(&block.mutex);
  // A reader's pull may still hold the buffer, so the values move to a new one
  // first (Block, I1).
  BlockWriter writer(context_.arena);
  writer.Open(&block.values);
  writer.Replace();
  writer.CopyUpTo(elements);
  payload.CopyTo(reinterpret_cast<char*>(block.values.data()) +
                 size_t{header.offset()} * sizeof(float));
  return absl::OkStatus();
}

absl::Status Shard::CheckBlock(int64_t block) const {
  if (block < 0 || block >= block_count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("block ", block, " of a shard of ", blocks_.size()));
  }
  return absl::OkStatus();
}

void Shard::SetSlots(const SetSlotsRequest& request) {
  weir::SetSlots(request, &context_.slots);
  // Last: whoever sees an ACTIVE shard sees the slots that made it so.
  active_ = true;
}

void Shard::Close(const absl::Status& status) {
  std::shared_ptr<SnapshotJob> job;
  {
    MutexLock lock(&snapshot_mutex_);
    closed_ = status;
    job = snapshot_.lock();
    DropAwaiting();
  }
  if (job != nullptr) {
    job->Cancel(status);
  }
  tables_->Close(status);
  for (const std::unique_ptr<Block>& block : blocks_) {
    std::vector<Parking<ParkedPull>::Parked> parked;
    {
      // I2: whoever takes a pull out under the lock answers it.
      MutexLock lock(&block->mutex);
      parked = block->parked.Close(status);
    }
    for (const auto& one : parked) {
      one.wait.done(status);
    }
  }
}

void Shard::FillHello(HelloReply* reply) const {
  reply->set_state(active_ ? ACTIVE : LOADED);
  reply->set_job(plan_.declaration().job());
  reply->set_history(plan_.declaration().history());
  reply->set_layout_fingerprint(plan_.layout().fingerprint());
  reply->set_shard(static_cast<uint32_t>(plan_.shard()));
  reply->set_shard_count(plan_.declaration().shard_count());
  std::vector<SlotStatus> table = SlotTable(context_.slots);
  // Block by block: a push may land in between. The smallest and the largest
  // mark then tell the chief that a contribution may be torn.
  for (const std::unique_ptr<Block>& block : blocks_) {
    MutexLock lock(&block->mutex);
    AddMarks(block->order.marks, &table);
  }
  if (tables_->count() > 0) {
    AddMarks(tables_->marks(), &table);
  }
  reply->mutable_slot()->Assign(table.begin(), table.end());
}

void Shard::FillStatus(const GetStatusRequest& request,
                       PsStatus* status) const {
  if (!request.without_declaration()) {
    *status->mutable_declaration() = plan_.declaration();
  }
  uint64_t version_min = UINT64_MAX;
  uint64_t version_max = 0;
  int64_t bytes = 0;
  for (const std::unique_ptr<Block>& block : blocks_) {
    MutexLock lock(&block->mutex);
    version_min = std::min(version_min, block->order.version);
    version_max = std::max(version_max, block->order.version);
    bytes += block->resident_bytes();
  }
  if (tables_->count() > 0) {
    version_min = std::min(version_min, tables_->version());
    version_max = std::max(version_max, tables_->version());
    tables_->FillStatus(static_cast<int>(request.hot_ids()), status);
    for (const TableStatus& table : status->table()) {
      bytes += static_cast<int64_t>(table.bytes());
    }
  }
  if (blocks_.empty() && tables_->count() == 0) {
    version_min = version_max = plan_.declaration().base_version();
  }
  status->set_version_min(version_min);
  status->set_version_max(version_max);
  status->set_bytes_resident(static_cast<uint64_t>(bytes));
  const ShardCounters& counters = context_.counters;
  status->set_chunks_accepted(counters.accepted);
  status->set_chunks_duplicate(counters.duplicate);
  status->set_chunks_left_out(counters.left_out);
  status->set_chunks_deferred(counters.deferred);
  for (const std::atomic<uint64_t>& bucket : counters.staleness) {
    status->add_staleness_bucket(bucket);
  }
  status->set_staleness_max(counters.staleness_max);
  status->set_waits_parked(
      static_cast<uint64_t>(std::max<int64_t>(counters.waits_parked, 0)));
  status->set_out_of_order_bytes(context_.budget.used());
  *status->mutable_apply() = ToProto(counters.apply.Snapshot());
  *status->mutable_park() = ToProto(counters.park.Snapshot());
  *status->mutable_snapshot() = ToProto(counters.snapshot.Snapshot());
  for (const SlotState& slot : context_.slots) {
    status->add_last_contributor(slot.came_last);
    status->add_last_alone_ns(
        static_cast<uint64_t>(std::max<int64_t>(slot.alone_ns, 0)));
  }
}

}  // namespace weir
