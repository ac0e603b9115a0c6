#include "server/ps/block/snapshot_job.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/exhausted.h"
#include "common/base/failpoint.h"
#include "common/base/identity.h"
#include "common/base/status.h"
#include "common/trace/trace.h"
#include "proto/checkpoint/checkpoint_files.h"

namespace weir {
namespace {

std::string Hex(uint64_t value) {
  return absl::StrCat(absl::Hex(value, absl::kZeroPad16));
}

}  // namespace

void AddMarks(const std::vector<uint64_t>& marks,
              std::vector<SlotStatus>* slots) {
  for (size_t w = 0; w < slots->size(); ++w) {
    SlotStatus& slot = (*slots)[w];
    slot.set_next_sequence_min(std::min(slot.next_sequence_min(), marks[w]));
    slot.set_next_sequence_max(std::max(slot.next_sequence_max(), marks[w]));
  }
}

SnapshotJob::SnapshotJob(Options options)
    : options_(std::move(options)),
      blocks_(options_.plan->blocks().size()),
      missing_(blocks_.size()) {
  if (options_.has_tables) {
    ++missing_;
  }
}

void SnapshotJob::Add(const std::shared_ptr<SnapshotJob>& job, int block,
                      FrozenBlock frozen, DueList& due) {
  MutexLock lock(&job->mutex_);
  if (job->ended_) {  // I2: it must keep no reference any more
    return;
  }
  job->blocks_[block] = std::move(frozen);
  // The caller holds the block's lock, so FROZEN is said by whoever runs `due`.
  if (--job->missing_ == 0) {
    due.push_back([job] { ReportFrozen(job); });
  }
}

void SnapshotJob::AddTables(const std::shared_ptr<SnapshotJob>& job,
                            std::vector<uint64_t> marks,
                            absl::StatusOr<TableFile> file) {
  if (!file.ok()) {
    job->Cancel(Annotate(file.status(), "snapshot of tables"));
    return;
  }
  bool frozen = false;
  {
    MutexLock lock(&job->mutex_);
    job->table_marks_ = std::move(marks);
    job->table_file_ = *std::move(file);
    frozen = --job->missing_ == 0;
  }
  if (frozen) {
    ReportFrozen(job);
  }
}

void SnapshotJob::AddNothing(std::shared_ptr<SnapshotJob> job, DueList& due) {
  due.push_back([job = std::move(job)] { ReportFrozen(job); });
}

void SnapshotJob::Cancel(const absl::Status& status) {
  Blocks dropped;
  {
    MutexLock lock(&mutex_);
    // I1: whoever sets ended_ first says the last word.
    if (std::exchange(ended_, true)) {
      return;
    }
    dropped.swap(blocks_);
  }
  options_.done(status);
}

bool SnapshotJob::ended() const {
  MutexLock lock(&mutex_);
  return ended_;
}

void SnapshotJob::ReportFrozen(const std::shared_ptr<SnapshotJob>& job) {
  SnapshotReply reply;
  // Shared, because std::function wants to be copyable.
  auto blocks = std::make_shared<Blocks>();
  {
    MutexLock lock(&job->mutex_);
    if (job->ended_) {
      return;
    }
    reply = job->FrozenReply();
    blocks->swap(job->blocks_);
  }
  job->options_.done(std::move(reply));
  job->options_.run([job, blocks] {
    const absl::Status status = OrExhausted([&] {
      job->Write(std::move(*blocks));
      return absl::OkStatus();
    });
    if (!status.ok()) {
      job->Cancel(status);
    }
  });
}

SnapshotReply SnapshotJob::FrozenReply() const {
  SnapshotReply reply;
  reply.set_frozen(true);
  std::vector<SlotStatus> slots = options_.slots;
  for (const FrozenBlock& block : blocks_) {
    AddMarks(block.marks, &slots);
  }
  if (options_.has_tables) {
    AddMarks(table_marks_, &slots);
  }
  reply.mutable_slot()->Assign(slots.begin(), slots.end());
  return reply;
}

void SnapshotJob::Write(Blocks blocks) {
  // I3: written under another name and renamed by Finish, so a crash at any
  // moment leaves the file whole or absent.
  const TraceSpan span("write snapshot");
  Failpoint("ps.before_write");
  const ShardPlan& plan = *options_.plan;
  const std::string name =
      ShardFileName(plan.shard(), plan.layout().shard_count());
  const absl::StatusOr<FileDigest> digest =
      WriteFile(blocks, JoinPath(options_.directory, name));
  blocks.clear();
  {
    // I1: Cancel may have come while the file was written. The file then lies
    // there, and no manifest will name it.
    MutexLock lock(&mutex_);
    if (std::exchange(ended_, true)) {
      return;
    }
  }
  if (!digest.ok()) {
    options_.done(Annotate(digest.status(),
                           absl::StrCat("snapshot of shard ", plan.shard())));
    return;
  }
  SnapshotReply reply;
  ShardFile* const file = reply.mutable_file();
  file->set_name(name);
  file->set_bytes(static_cast<uint64_t>(digest->bytes));
  file->set_crc32c(digest->crc32c);
  file->set_shard(static_cast<uint32_t>(plan.shard()));
  file->set_host(HostName());
  if (options_.has_tables) {
    MutexLock lock(&mutex_);
    *file->mutable_tables() = table_file_;
  }
  options_.done(std::move(reply));
}

absl::Status SnapshotJob::CheckDirectory() const {
  WEIR_ASSIGN_OR_RETURN(
      const bool committed,
      options_.files->Exists(JoinPath(options_.directory, kManifestName)));
  if (committed) {
    return Invalid("'", options_.directory,
                   "' is a checkpoint already; name another directory");
  }
  return absl::OkStatus();
}

absl::StatusOr<FileDigest> SnapshotJob::WriteFile(
    Blocks& blocks, const std::string& path) const {
  WEIR_RETURN_IF_ERROR(CheckDirectory());
  const ShardPlan& plan = *options_.plan;
  uint64_t version = 0;
  int64_t segments = 0;
  for (const FrozenBlock& block : blocks) {
    version = std::max(version, block.version);
    segments += static_cast<int64_t>(block.steps.size());
  }
  const std::vector<int64_t> shape = {
      plan.layout().shard_elements(plan.shard())};
  std::vector<SafetensorsArray> arrays = {{kValuesArray, "F32", shape}};
  for (const std::string& name : plan.state_names()) {
    arrays.push_back({absl::StrCat(kStatePrefix, name), "F32", shape});
  }
  arrays.push_back({kStepCountsArray, "I64", {segments}});
  const std::map<std::string, std::string> metadata = {
      {"format", "pt"},
      {"weir.history", Hex(plan.declaration().history())},
      {"weir.layout", Hex(plan.layout().fingerprint())},
      {"weir.shard",
       absl::StrCat(plan.shard(), "-of-", plan.layout().shard_count())},
      {"weir.version", absl::StrCat(version)},
  };
  WEIR_ASSIGN_OR_RETURN(
      const std::unique_ptr<SafetensorsWriter> writer,
      SafetensorsWriter::Create(options_.files, path, arrays, metadata));
  WEIR_RETURN_IF_ERROR(AppendArrays(blocks, *writer));
  return writer->Finish();
}

absl::Status SnapshotJob::AppendArrays(Blocks& blocks,
                                       SafetensorsWriter& writer) const {
  const std::vector<BlockPlan>& plans = options_.plan->blocks();
  // Stands in for a state array that a block does not use: every array of the
  // file covers the whole shard, so that ranges mean the same in each.
  std::vector<float> zeros;
  if (!plans.empty()) {
    zeros.resize(options_.plan->layout().block_elements(), 0.0f);
  }
  // Drops the reference when it is written (I2).
  const auto append = [&](size_t b, BlockRef* ref) -> absl::Status {
    if (ended()) {
      return absl::CancelledError("the snapshot was given up");
    }
    Failpoint("ps.mid_write");
    const int64_t bytes =
        plans[b].range.count * static_cast<int64_t>(sizeof(float));
    const float* data = zeros.data();
    if (*ref) {
      data = ref->data();
    }
    const absl::Status status = writer.Append(data, bytes);
    *ref = BlockRef();
    return status;
  };
  for (size_t b = 0; b < blocks.size(); ++b) {
    WEIR_RETURN_IF_ERROR(append(b, &blocks[b].values));
  }
  for (size_t k = 0; k < options_.plan->state_names().size(); ++k) {
    for (size_t b = 0; b < blocks.size(); ++b) {
      WEIR_RETURN_IF_ERROR(append(b, &blocks[b].state[k]));
    }
  }
  for (const FrozenBlock& block : blocks) {
    WEIR_RETURN_IF_ERROR(writer.Append(
        block.steps.data(),
        static_cast<int64_t>(block.steps.size() * sizeof(uint64_t))));
  }
  return absl::OkStatus();
}

}  // namespace weir
