#include "server/ps/table/table_stripe.h"

#include <algorithm>
#include <new>

#include "common/base/check.h"
#include "common/job/initializer.h"
#include "common/job/row_hash.h"

namespace weir {
namespace {

constexpr size_t kLineBytes = 64;
// The processor's own prefetcher follows a row that is longer.
constexpr size_t kFetchBytesMax = 512;

// Rows that go when there is no room: one in this many of a segment.
constexpr size_t kEvictShare = 16;

// Rows for which there is memory before they are asked for: what one window of
// a batch makes at most.
constexpr int64_t kRoomRows = 64;
constexpr size_t kPageBytes = 4096;

// Memory whose pages are there; null for 0 bytes, or if there is none.
void* Touched(Arena* arena, size_t bytes) {
  if (bytes == 0) {
    return nullptr;
  }
  char* memory = nullptr;
  try {
    memory = static_cast<char*>(arena->Allocate(bytes));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  for (size_t k = 0; k < bytes; k += kPageBytes) {
    static_cast<volatile char*>(memory)[k] = 0;
  }
  return memory;
}

// A chunk is at most this share of what a stripe may have besides its filter,
// so that little of a small budget is too little for one more.
constexpr int64_t kChunkShare = 16;

int64_t FilterBytes(const StripeContext& context) {
  const AdmissionPolicy& admission = context.options->admission;
  if (admission.kind != AdmissionPolicy::Kind::kCount) {
    return 0;
  }
  return admission.filter_bytes >> context.skip_bits;
}

size_t ChunkBytes(const StripeContext& context) {
  if (context.bytes_max == 0) {
    return RowSlab::kChunkBytes;
  }
  const int64_t share =
      (context.bytes_max - FilterBytes(context)) / kChunkShare;
  return std::min(RowSlab::kChunkBytes,
                  static_cast<size_t>(std::max<int64_t>(share, 0)));
}

// Derives the key of admission by probability from the table's seed: "admt".
constexpr uint64_t kAdmissionStream = 0x61646d74;

}  // namespace

TableStripe::TableStripe(const StripeContext* context, int stripe)
    : context_(context),
      // Two shifts: skip_bits may be 0.
      first_hash_(static_cast<uint64_t>(stripe)
                  << (63 - context->skip_bits) << 1),
      slab_(context->options->arena,
            context->optimizer->row_floats(context->options->dim),
            ChunkBytes(*context)),
      index_(context->options->arena, &slab_, context->skip_bits),
      filter_(FilterBytes(*context)),
      random_(MixKey(MixKey(context->options->seed, kAdmissionStream),
                     static_cast<uint64_t>(stripe))) {}

void TableStripe::FetchIndex(const uint64_t* hashes, int count) const {
  for (int i = 0; i < count; ++i) {
    __builtin_prefetch(index_.FirstLine(hashes[i]));
  }
}

int64_t TableStripe::FetchRows(Access access, const uint64_t* hashes, int count,
                               RowHeader** rows) const {
  for (int i = 0; i < count; ++i) {
    rows[i] = At(index_.Candidate(hashes[i]));
  }
  // An update moves the whole row; a lookup does not read the state. In a loop
  // of its own: the index's loads would queue up behind these.
  size_t used = slab_.row_bytes();
  if (access != Access::kUpdate) {
    used = sizeof(RowHeader) +
           sizeof(float) * static_cast<size_t>(context_->options->dim);
  }
  const size_t fetched = std::min(used, kFetchBytesMax);
  for (int i = 0; i < count; ++i) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(rows[i]);
    for (uintptr_t line = at & ~(kLineBytes - 1); line < at + fetched;
         line += kLineBytes) {
      __builtin_prefetch(reinterpret_cast<const void*>(line));
    }
  }
  return epoch_;
}

void TableStripe::Resolve(Access access, const uint64_t* ids,
                          const uint64_t* hashes, int count, uint32_t now,
                          int64_t epoch, RowHeader** rows) {
  const int64_t epoch_before = epoch_;
  for (int i = 0; i < count; ++i) {
    // In the same epoch a row is where it was, so the candidate may be read;
    // another id may have the same tag.
    RowHeader* row = rows[i];
    if (epoch != epoch_ || row == nullptr || row->id != ids[i]) {
      row = FindRow(ids[i], hashes[i]);
    }
    rows[i] = ResolveOne(access, ids[i], hashes[i], now, row);
  }
  if (epoch_ != epoch_before) {
    // To make room for one id another of the same batch may have gone.
    for (int i = 0; i < count; ++i) {
      rows[i] = FindRow(ids[i], hashes[i]);
    }
  }
  if (access != Access::kRead) {
    low_.store(reserved_ == 0 && (WantsChunk() || WantsSegment()),
               std::memory_order_relaxed);
  }
}

bool TableStripe::WantsChunk() const {
  return slab_.free_rows() <
             std::min<int64_t>(kRoomRows, slab_.rows_per_chunk()) &&
         Affords(slab_.chunk_bytes());
}

bool TableStripe::WantsSegment() const {
  // Fewer rows fill no segment.
  return !index_.HasSpare() &&
         index_.rows() + kRoomRows >= RowIndex::kMaxRows &&
         Affords(RowIndex::kSegmentBytes);
}

void TableStripe::MakeRoom() {
  size_t chunk_memory = 0;
  size_t segment_memory = 0;
  {
    MutexLock lock(&mutex_);
    if (reserved_ != 0) {  // another thread is at it
      return;
    }
    if (WantsChunk()) {
      chunk_memory = slab_.chunk_memory();
      reserved_ += slab_.chunk_bytes();
    }
    if (WantsSegment()) {
      segment_memory = static_cast<size_t>(RowIndex::kSegmentMemory);
      reserved_ += RowIndex::kSegmentBytes;
    }
    if (reserved_ == 0) {
      low_.store(false, std::memory_order_relaxed);
      return;
    }
  }
  // I1: `reserved_` counts in bytes() meanwhile, so nobody else can use the
  // same part of the budget.
  void* const chunk = Touched(context_->options->arena, chunk_memory);
  void* const segment = Touched(context_->options->arena, segment_memory);
  MutexLock lock(&mutex_);
  reserved_ = 0;
  if (chunk != nullptr) {
    slab_.AddChunk(chunk);
  }
  if (segment != nullptr) {
    index_.GiveSpare(segment);
  }
  low_.store(false, std::memory_order_relaxed);
}

RowHeader* TableStripe::ResolveOne(Access access, uint64_t id, uint64_t hash,
                                   uint32_t now, RowHeader* row) {
  // A row that is too old counts as gone, although nobody has dropped it yet.
  if (row != nullptr && IsExpired(*row, context_->options->age_max, now)) {
    if (access == Access::kRead) {
      return nullptr;
    }
    Drop(id, &StripeCounts::expired);
    row = nullptr;
  }
  if (access == Access::kRead) {
    return row;
  }
  if (row == nullptr) {
    if (!IsAdmitted(access, hash)) {
      ++counts_.not_admitted;
      return nullptr;
    }
    row = NewRow(id, hash, now);
    if (row == nullptr) {
      ++counts_.not_admitted;
      return nullptr;
    }
    row->touched = now;
    row->updates = 0;
    FillInitialRow(context_->options->init, context_->init_key, id,
                   context_->options->dim, row->values());
    context_->optimizer->FillInitialState(context_->options->dim,
                                          row->values());
  } else if (RowAge(now, row->touched) != 0) {
    // Not when another thread with a later clock was here first: a touch never
    // goes back.
    row->touched = now;
  }
  return row;
}

RowHeader* TableStripe::At(uint32_t row) const {
  if (row == RowIndex::kNone) {
    return nullptr;
  }
  return slab_.At(row);
}

RowHeader* TableStripe::FindRow(uint64_t id, uint64_t hash) {
  return At(index_.Find(id, hash));
}

bool TableStripe::IsAdmitted(Access access, uint64_t hash) {
  const AdmissionPolicy& policy = context_->options->admission;
  switch (policy.kind) {
    case AdmissionPolicy::Kind::kAlways:
      return true;
    case AdmissionPolicy::Kind::kCount:
      // An update follows a lookup of the same step, which has counted.
      if (access == Access::kTrain) {
        return filter_.Add(hash) >= policy.count;
      }
      return filter_.Count(hash) >= policy.count;
    case AdmissionPolicy::Kind::kProbability:
      // Drawn at lookups only, or an update would be a second chance.
      return access == Access::kTrain &&
             static_cast<double>(random_.Next32()) * 0x1p-32 <
                 policy.probability;
  }
  return false;
}

bool TableStripe::MakeRoomFor(uint64_t hash, uint32_t now) {
  // I1: memory is taken only where the budget affords it; else a part of one
  // segment goes, and with it the need to split or to grow (I2).
  while (true) {
    if (index_.IsFull(hash)) {
      if (!index_.MaySplit(hash)) {
        return false;
      }
      if (Affords(index_.SplitBytes(hash))) {
        index_.Split(hash);
      } else if (!Evict(hash, now)) {
        return false;
      }
    } else if (!slab_.HasFree()) {
      if (Affords(slab_.chunk_bytes())) {
        slab_.AddChunk();
      } else if (!Evict(hash, now)) {
        return false;
      }
    } else {
      return true;
    }
  }
}

RowHeader* TableStripe::NewRow(uint64_t id, uint64_t hash, uint32_t now) {
  try {
    if (!MakeRoomFor(hash, now)) {
      return nullptr;
    }
  } catch (const std::bad_alloc&) {
    // As beyond a budget: the batch goes on with the rows that are there.
    return nullptr;
  }
  const uint32_t row = slab_.Allocate();
  RowHeader* const header = slab_.At(row);
  header->id = id;
  index_.Insert(hash, row);
  ++counts_.created;
  return header;
}

RowHeader* TableStripe::ForceRow(uint64_t id, uint64_t hash, uint32_t now) {
  if (RowHeader* const row = FindRow(id, hash)) {
    return row;
  }
  return NewRow(id, hash, now);
}

bool TableStripe::Evict(uint64_t hash, uint32_t now) {
  std::vector<RowHeader*> rows;
  RowsAt(hash, &rows);
  // The own segment is empty when other segments use the budget up.
  for (uint64_t at = first_hash_; rows.empty();) {
    at = RowsAt(at, &rows);
    if (at == 0 && rows.empty()) {
      return false;
    }
  }
  std::vector<std::pair<uint64_t, uint64_t>> keys;
  keys.reserve(rows.size());
  for (const RowHeader* row : rows) {
    __builtin_prefetch(row);
  }
  for (const RowHeader* row : rows) {
    keys.push_back(EvictionKey(*row, now));
  }
  // I2. Some at once, so that the look at all keys pays; the keys are distinct,
  // as each has its id, so which rows go depends on the rows alone.
  const size_t dropped = std::max<size_t>(1, keys.size() / kEvictShare);
  std::nth_element(keys.begin(),
                   keys.begin() + static_cast<int64_t>(dropped - 1),
                   keys.end());
  for (size_t i = 0; i < dropped; ++i) {
    Drop(keys[i].second, &StripeCounts::evicted);
  }
  return true;
}

uint64_t TableStripe::RowsAt(uint64_t hash, std::vector<RowHeader*>* rows) {
  std::vector<uint32_t> numbers;
  numbers.reserve(RowIndex::kMaxRows);
  const uint64_t next = index_.RowsAt(hash, &numbers);
  rows->reserve(rows->size() + numbers.size());
  for (const uint32_t number : numbers) {
    rows->push_back(slab_.At(number));
  }
  return next;
}

std::pair<uint64_t, uint64_t> TableStripe::EvictionKey(const RowHeader& row,
                                                       uint32_t now) const {
  // Smallest first: the complement makes the oldest row the smallest.
  const uint64_t recent = ~RowAge(now, row.touched);
  const uint64_t frequent = row.updates;
  if (context_->options->eviction == EvictionOrder::kLeastRecent) {
    return {recent << 32 | frequent, row.id};
  }
  return {frequent << 32 | recent, row.id};
}

void TableStripe::Drop(uint64_t id, int64_t StripeCounts::*counter) {
  const uint64_t hash = IndexHash(id);
  const uint32_t row = index_.Find(id, hash);
  WEIR_CHECK(row != RowIndex::kNone);
  index_.Erase(hash, row);
  slab_.Free(row);
  ++(counts_.*counter);
  ++epoch_;
}

bool TableStripe::ReleaseChunk() {
  ++epoch_;
  return slab_.ReleaseChunk(
      [this](uint32_t from, uint32_t to) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        index_.Renumber(IndexHash(slab_.At(to)->id), from, to);
      });
}

}  // namespace weir
