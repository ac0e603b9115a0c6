// Snapshots of a shard: blocks by reference, then the rows of its tables.
// See "One snapshot of all shards" in docs/design_notes.md.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/exhausted.h"
#include "common/base/plant.h"
#include "common/base/status.h"
#include "common/trace/trace.h"
#include "server/ps/block/snapshot_job.h"
#include "server/ps/store/shard.h"
#include "server/ps/store/slot_grants.h"

namespace weir {
namespace {

// Why the request cannot be served, whatever the shard holds. Async shards are
// frozen as they are; only sync shards agree on a version.
absl::Status CheckRequest(const SnapshotRequest& request, bool sync) {
  if (sync && !request.has_version()) {
    return absl::InvalidArgumentError(
        "a snapshot of a sync job needs a version");
  }
  if (!sync && request.has_version()) {
    return absl::InvalidArgumentError(
        "a snapshot has a version in sync jobs only");
  }
  return absl::OkStatus();
}

}  // namespace

void Shard::Snapshot(const SnapshotRequest& request, ObjectStore* files,
                     const std::string& directory, SnapshotDone done,
                     std::function<void(std::function<void()>)> run) {
  const bool sync = plan_.kind() == ConsistencyKind::kSync;
  if (const absl::Status status = CheckRequest(request, sync); !status.ok()) {
    done(status);
    return;
  }
  SnapshotJob::Options options;
  options.plan = context_.plan;
  options.files = files;
  options.directory = directory;
  if (sync) {
    options.version = request.version();
  }
  options.slots = SlotTable(context_.slots);
  options.has_tables = tables_->count() > 0;
  options.done = [self = shared_from_this(), done = std::move(done),
                  begin_ns = clock_->NowNs()](
                     const absl::StatusOr<SnapshotReply>& reply) {
    if (reply.ok() && reply->has_file()) {
      self->context_.counters.snapshot.Record(self->clock_->NowNs() - begin_ns);
    }
    done(reply);
  };
  options.run = std::move(run);
  const auto job = std::make_shared<SnapshotJob>(std::move(options));
  DueList due;
  {
    MutexLock lock(&snapshot_mutex_);
    // I3: the same lock as in Close, so no snapshot begins after it.
    if (!closed_.ok()) {
      due.push_back([job, status = closed_] { job->Cancel(status); });
    } else {
      // A chief asks anew only after it has given the older one up. One at a
      // time, since each of them keeps references to all blocks.
      if (const auto older = std::exchange(snapshot_, job).lock()) {
        due.push_back([older] {
          older->Cancel(absl::AbortedError("a newer snapshot took its place"));
        });
        DropAwaiting();
      }
      FreezeBlocks(job, request, due);
    }
  }
  for (const std::function<void()>& next : due) {
    next();
  }
  if (tables_->count() > 0) {
    FreezeTables(job, request, files);
  }
  // The last slot may have retired before the blocks began to await.
  CancelHopelessSnapshot();
}

void Shard::FreezeTables(const std::shared_ptr<SnapshotJob>& job,
                         const SnapshotRequest& request, ObjectStore* files) {
  std::optional<uint64_t> version;
  if (request.has_version()) {
    version = request.version();
  }
  // Uses wait from here to Release; the shard stays until then.
  const auto write = [shard = shared_from_this(), job, files, version,
                      base = request.table_base()] {
    const TraceSpan span("write tables");
    TableGroup& tables = *shard->tables_;
    if (!job->ended()) {
      // No push is applied before Release, so marks and rows belong together.
      std::vector<uint64_t> marks = tables.MarksAt(version);
      const auto written = [&]() -> absl::StatusOr<TableFile> {
        WEIR_RETURN_IF_ERROR(job->CheckDirectory());
        return shard->table_snapshots_.Write(tables, files, shard->plan_,
                                             job->directory(), base, version);
      };
      SnapshotJob::AddTables(job, std::move(marks), OrExhausted(written));
    }
    tables.Release();
  };
  tables_->Freeze(
      version, [job, write] { job->RunLater(write); },
      [job](const absl::Status& status) { job->Cancel(status); });
}

void Shard::CancelHopelessSnapshot() {
  for (const SlotState& slot : context_.slots) {
    if (!slot.retired) {
      return;
    }
  }
  std::shared_ptr<SnapshotJob> job;
  {
    MutexLock lock(&snapshot_mutex_);
    for (const std::unique_ptr<Block>& block : blocks_) {
      MutexLock block_lock(&block->mutex);
      if (block->awaiting != nullptr) {
        job = std::exchange(block->awaiting, nullptr);
      }
    }
    if (tables_->CancelFreeze() && job == nullptr) {
      job = snapshot_.lock();
    }
  }
  if (job != nullptr) {
    job->Cancel(absl::OutOfRangeError(absl::StrCat(
        "every worker has finished before version ", job->version())));
  }
}

void Shard::FreezeBlocks(const std::shared_ptr<SnapshotJob>& job,
                         const SnapshotRequest& request, DueList& due) {
  if (blocks_.empty() && tables_->count() == 0) {
    SnapshotJob::AddNothing(job, due);
  }
  for (const std::unique_ptr<Block>& block : blocks_) {
    // One block after another, never all locks at once. In async the file then
    // holds blocks of slightly different moments, each with its own marks.
    MutexLock lock(&block->mutex);
    if (!request.has_version() || request.version() == block->order.version ||
        (Planted("snapshot.takes_newer") &&
         request.version() < block->order.version)) {
      SnapshotJob::Add(job, block->plan.index, block->Freeze(), due);
    } else if (block->CanFreezePrevious(request.version())) {
      SnapshotJob::Add(job, block->plan.index, block->previous, due);
    } else if (request.version() > block->order.version) {
      block->awaiting = job;
    } else {
      // The block has gone past the version: the chief asks for a later one.
      const absl::Status status = absl::OutOfRangeError(
          absl::StrCat("block ", block->plan.index, " is at version ",
                       block->order.version, ", past ", request.version()));
      due.push_back([job, status] { job->Cancel(status); });
      break;  // blocks that await the job drop it at its version, or the next
    }
  }
}

void Shard::DropAwaiting() {
  for (const std::unique_ptr<Block>& block : blocks_) {
    MutexLock lock(&block->mutex);
    block->awaiting = nullptr;
  }
  tables_->CancelFreeze();
}

}  // namespace weir
