#include "server/ps/store/store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "common/base/failpoint.h"
#include "common/base/memory_limit.h"
#include "common/base/status.h"
#include "common/trace/trace.h"
#include "google/protobuf/util/message_differencer.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/checkpoint/checkpoint_names.h"
#include "server/ps/plan/shard_plan.h"
#include "server/ps/store/shard.h"

namespace weir {
namespace {

// The bytes that `shard` holds now; 0 for null.
int64_t BytesHeld(const Shard* shard) {
  if (shard == nullptr) {
    return 0;
  }
  PsStatus status;
  GetStatusRequest request;
  request.set_without_declaration(true);
  shard->FillStatus(request, &status);
  return static_cast<int64_t>(status.bytes_resident());
}

absl::Status NothingDeclared() {
  return absl::FailedPreconditionError(
      "this ps is empty: the chief has declared nothing yet");
}

// Why `declaration` may not take the place of `shard`, which is ACTIVE.
absl::Status ActiveShard(const Shard& shard, const Declaration& declaration) {
  const Declaration& held = shard.plan().declaration();
  const std::string text = absl::StrCat(
      "this ps holds an ACTIVE shard of history ", absl::Hex(held.history()),
      ": nothing re-initialises it; restore a checkpoint or restart the ps");
  // A chief declares only where it saw no shard in training. So the shard in
  // training under another history is another chief's, and this one must end.
  if (held.job() == declaration.job() &&
      held.history() != declaration.history()) {
    return absl::PermissionDeniedError(text);
  }
  return absl::FailedPreconditionError(text);
}

// A chief restores over what it saw at its start. What another one has made
// since then, and somebody trains, must not be lost to a late call.
absl::Status CheckSeen(const RestoreRequest& request, const Shard* shard) {
  if (shard == nullptr || !shard->active() || !request.has_seen_history()) {
    return absl::OkStatus();
  }
  const uint64_t history = shard->plan().declaration().history();
  if (history == request.seen_history()) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat("this ps is in training under history ", absl::Hex(history),
                   ", which another chief made; this restore was to replace ",
                   absl::Hex(request.seen_history())));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> Store::Create(Options options) {
  if (options.memory_bytes_max < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "memory_bytes_max is ", options.memory_bytes_max, "; use 0 or more"));
  }
  if (options.memory_bytes_max == 0) {
    options.memory_bytes_max =
        std::max<int64_t>(0, MemoryLimitBytes() - ResidentBytes());
  }
  return std::unique_ptr<Store>(new Store(options));
}

Store::Store(Options options) : options_(options) {}

Store::~Store() {
  // Every parked wait ends exactly once, also at the end of the process.
  if (const std::shared_ptr<Shard> last = shard()) {
    last->Close(absl::UnavailableError("this ps is shutting down"));
  }
}

std::shared_ptr<Shard> Store::shard() const {
  MutexLock lock(&mutex_);
  return shard_;
}

absl::StatusOr<std::shared_ptr<Shard>> Store::ShardFor(
    const Sender& sender) const {
  std::shared_ptr<Shard> current = shard();
  if (current == nullptr) {
    return NothingDeclared();
  }
  // I3. The caller keeps this shard while it works: a Restore in the meantime
  // replaces the pointer, and what is done to the old shard is lost with it.
  WEIR_RETURN_IF_ERROR(current->CheckSender(sender));
  return current;
}

HelloReply Store::Hello() const { return HelloOf(shard().get()); }

HelloReply Store::HelloOf(const Shard* current) const {
  HelloReply reply;
  reply.set_incarnation(options_.incarnation);
  reply.set_keeps_checkpoints(!options_.checkpoint_root.empty());
  if (current != nullptr) {
    current->FillHello(&reply);
  }
  return reply;
}

PsStatus Store::GetStatus(const GetStatusRequest& request) const {
  PsStatus status;
  const std::shared_ptr<Shard> current = shard();
  *status.mutable_hello() = HelloOf(current.get());
  if (current != nullptr) {
    current->FillStatus(request, &status);
  }
  status.set_bytes_received(payloads_->received);
  status.set_bytes_sent(payloads_->sent);
  status.set_open_calls(static_cast<uint64_t>(payloads_->open_calls));
  return status;
}

DeclareReply Store::ReplyFor(const Shard& shard) const {
  DeclareReply reply;
  reply.set_incarnation(options_.incarnation);
  reply.set_layout_fingerprint(shard.plan().layout().fingerprint());
  return reply;
}

absl::StatusOr<std::shared_ptr<const ShardPlan>> Store::PlanBeside(
    const Shard* old, const Declaration& declaration, uint32_t index) const {
  const int64_t held = BytesHeld(old);
  absl::StatusOr<std::shared_ptr<const ShardPlan>> plan =
      ShardPlan::Create(declaration, index,
                        std::max<int64_t>(0, options_.memory_bytes_max - held));
  if (held > 0 && absl::IsResourceExhausted(plan.status())) {
    return Annotate(
        plan.status(),
        absl::StrCat("declaration: this ps still holds ", held / (1 << 20),
                     " MiB of the shard that is to be replaced; start it "
                     "anew"));
  }
  WEIR_RETURN_IF_ERROR(Annotate(plan.status(), "declaration"));
  return plan;
}

absl::StatusOr<DeclareReply> Store::Declare(const DeclareRequest& request) {
  MutexLock control(&control_mutex_);
  const std::shared_ptr<Shard> old = shard();
  const Declaration& declaration = request.declaration();
  if (old != nullptr && old->active()) {
    return ActiveShard(*old, declaration);
  }
  // The same history again: this repeats a call whose answer was lost, and must
  // not throw away what was assigned since.
  if (old != nullptr &&
      old->plan().declaration().history() == declaration.history()) {
    if (old->plan().shard() != static_cast<int>(request.shard()) ||
        !google::protobuf::util::MessageDifferencer::Equals(
            old->plan().declaration(), declaration)) {
      return absl::InvalidArgumentError(
          "another declaration came under the same history id");
    }
    return ReplyFor(*old);
  }
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const ShardPlan> plan,
                        PlanBeside(old.get(), declaration, request.shard()));
  WEIR_ASSIGN_OR_RETURN(
      const std::shared_ptr<Shard> made,
      Shard::Initialise(std::move(plan), options_.arena, options_.clock));
  {
    MutexLock lock(&mutex_);
    // SetSlots may have come while the new shard was made.
    if (old != nullptr && old->active()) {
      return ActiveShard(*old, declaration);
    }
    shard_ = made;
    chief_secret_ = request.chief_secret();
  }
  // After the swap and without mutex_: waits end with a status that makes
  // their clients look for the new history, and their continuations may call
  // the store.
  if (old != nullptr) {
    old->Close(absl::FailedPreconditionError("the shard was declared anew"));
  }
  return ReplyFor(*made);
}

absl::StatusOr<DeclareReply> Store::Restore(const RestoreRequest& request) {
  MutexLock control(&control_mutex_);
  Failpoint("ps.before_restore");
  WEIR_ASSIGN_OR_RETURN(const std::string directory,
                        CheckpointDirectory(request.checkpoint()));
  // I3, first before the files are read, and again below.
  WEIR_RETURN_IF_ERROR(CheckSeen(request, shard().get()));
  // Both shards are in memory until the new one is whole, so that a damaged
  // checkpoint leaves the old one as it was.
  const std::shared_ptr<Shard> before = shard();
  WEIR_ASSIGN_OR_RETURN(
      std::shared_ptr<const ShardPlan> plan,
      PlanBeside(before.get(), request.declaration(), request.shard()));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointReader> reader,
                        CheckpointReader::Open(options_.files, directory));
  WEIR_ASSIGN_OR_RETURN(
      const std::shared_ptr<Shard> made,
      Shard::FromCheckpoint(std::move(plan), options_.arena, options_.clock,
                            options_.files, *reader));
  std::shared_ptr<Shard> old = made;
  {
    MutexLock lock(&mutex_);
    // Reading the files took a while, and another chief may have set slots.
    WEIR_RETURN_IF_ERROR(CheckSeen(request, shard_.get()));
    shard_.swap(old);
    chief_secret_ = request.chief_secret();
  }
  if (old != nullptr) {
    old->Close(absl::FailedPreconditionError(
        "the job was restored from a checkpoint under another history"));
  }
  return ReplyFor(*made);
}

absl::Status Store::Assign(const AssignChunk& header, const Payload& payload) {
  WEIR_ASSIGN_OR_RETURN(const std::shared_ptr<Shard> current,
                        ShardFor(header.sender()));
  return current->Assign(header, payload);
}

absl::Status Store::SetSlots(const SetSlotsRequest& request) {
  std::shared_ptr<Shard> current;
  {
    // Under the lock: Declare must not replace a shard that turns ACTIVE.
    MutexLock lock(&mutex_);
    if (shard_ == nullptr) {
      return NothingDeclared();
    }
    // All checks come first: the request is applied whole or not at all (I3).
    WEIR_RETURN_IF_ERROR(shard_->CheckChief(request.sender()));
    WEIR_RETURN_IF_ERROR(shard_->CheckSlots(request));
    shard_->SetSlots(request);
    current = shard_;
  }
  // Takes the blocks' locks and runs continuations: not under mutex_.
  current->ApplySlots();
  return absl::OkStatus();
}

absl::Status Store::CheckHolder(const Sender& sender) const {
  WEIR_ASSIGN_OR_RETURN(const std::shared_ptr<Shard> current, ShardFor(sender));
  if (sender.generation() == 0) {
    return absl::PermissionDeniedError("the sender holds no slot");
  }
  return current->CheckGeneration(sender);
}

absl::Status Store::CheckShutdown(const ShutdownRequest& request) const {
  // An empty ps has nothing to lose, and no chief that could know a secret.
  if (request.sender().history() == 0 && shard() == nullptr) {
    return absl::OkStatus();
  }
  WEIR_RETURN_IF_ERROR(ShardFor(request.sender()).status());
  MutexLock lock(&mutex_);
  if (!chief_secret_.empty() && request.chief_secret() != chief_secret_) {
    return absl::PermissionDeniedError(
        "this ps ends for the chief that made its shard, or one started in the "
        "same work directory: Shutdown came without that chief's secret");
  }
  return absl::OkStatus();
}

absl::StatusOr<Receipt> Store::Push(const GradientChunk& chunk,
                                    Payload payload) {
  WEIR_ASSIGN_OR_RETURN(const std::shared_ptr<Shard> current,
                        ShardFor(chunk.sender()));
  if (!chunk.has_push()) {
    return absl::InvalidArgumentError("the chunk has no `push`");
  }
  // From here the block's consistency mode keeps I1, I2 and I4
  // (server/ps/consistency), and ShardContext::budget keeps I5.
  return current->Push(chunk, std::move(payload));
}

void Store::Pull(const Sender& sender, int block, const Want& want,
                 PullDone done) {
  absl::StatusOr<std::shared_ptr<Shard>> current = ShardFor(sender);
  if (!current.ok()) {
    done(current.status());
    return;
  }
  (*current)->Pull(sender, block, want, std::move(done));
}

void Store::PullRows(const PullRowsChunk& request, PullRowsDone done) {
  absl::StatusOr<std::shared_ptr<Shard>> current = ShardFor(request.sender());
  if (!current.ok()) {
    done(current.status());
    return;
  }
  (*current)->PullRows(request, std::move(done));
}

absl::StatusOr<ShrinkReply> Store::Shrink(const ShrinkRequest& request) {
  WEIR_ASSIGN_OR_RETURN(const std::shared_ptr<Shard> current,
                        ShardFor(request.sender()));
  return current->tables().Shrink(request);
}

RowPush::~RowPush() {
  if (update_.begun) {  // its client left in the middle
    shard_->tables().Abandon(update_);
  }
}

absl::Status RowPush::Add(const PushRowsChunk& chunk, const Payload& payload) {
  if (!chunk.has_push()) {
    return absl::InvalidArgumentError("the chunk has no `push`");
  }
  // All pieces go to the shard of the first one: an update must not be split
  // over two histories.
  if (shard_ == nullptr) {
    WEIR_ASSIGN_OR_RETURN(shard_, store_->ShardFor(chunk.sender()));
  } else {
    WEIR_RETURN_IF_ERROR(shard_->CheckSender(chunk.sender()));
  }
  return shard_->StagePush(chunk, payload, &update_);
}

void RowPush::Apply(PushRowsDone done) {
  // By value: the update is handed on.
  const TraceSpan span("apply rows", [this, slot = update_.sender.slot(),
                                      sequence = update_.push.sequence()](
                                         TraceDetails* details) {
    DescribeApply(shard_->plan(), slot, sequence, kTraceRows, details);
  });
  shard_->tables().PushRows(std::exchange(update_, {}), std::move(done));
}

absl::StatusOr<int> Store::BlockCount(const Sender& sender) const {
  WEIR_ASSIGN_OR_RETURN(const std::shared_ptr<Shard> current, ShardFor(sender));
  return current->block_count();
}

uint64_t Store::ModelBytes() const {
  const std::shared_ptr<Shard> current = shard();
  if (current == nullptr) {
    return 0;
  }
  return static_cast<uint64_t>(current->plan().layout().flat_elements()) *
         sizeof(float);
}

void Store::ExpireWaits() {
  if (const std::shared_ptr<Shard> current = shard()) {
    current->ExpireWaits();
  }
}

void Store::Snapshot(const SnapshotRequest& request, SnapshotDone done,
                     std::function<void(std::function<void()>)> run) {
  const std::shared_ptr<Shard> current = shard();
  absl::Status status = NothingDeclared();
  if (current != nullptr) {
    status = current->CheckChief(request.sender());
  }
  const absl::StatusOr<std::string> directory =
      CheckpointDirectory(request.checkpoint());
  if (status.ok()) {
    status = directory.status();
  }
  if (!status.ok()) {
    done(status);
    return;
  }
  current->Snapshot(request, options_.files, *directory, std::move(done),
                    std::move(run));
}

absl::StatusOr<std::string> Store::CheckpointDirectory(
    const std::string& name) const {
  if (options_.checkpoint_root.empty()) {
    return absl::FailedPreconditionError(
        "this ps keeps no checkpoints: start it with --checkpoint_root");
  }
  // A name has no slash and no dot, so it leads to no other directory.
  if (!ParseCheckpointName(name).has_value()) {
    return Invalid("'", absl::CHexEscape(name.substr(0, 100)),
                   "' is no name of a checkpoint, as ckpt-100 is");
  }
  return JoinPath(options_.checkpoint_root, name);
}

}  // namespace weir
