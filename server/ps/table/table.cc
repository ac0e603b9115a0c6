#include "server/ps/table/table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/job/initializer.h"
#include "common/job/row_hash.h"
#include "common/math/kernels.h"

namespace weir {
namespace {

// Ids that are sorted at once: their lists fit into the second-level cache and
// on the stack.
constexpr size_t kPieceIds = 4096;
// Ids that are used together, under one lock.
constexpr size_t kWindowIds = 64;
// How far ahead memory is fetched: enough to keep the processor's miss buffers
// full, few enough rows for the first-level cache.
constexpr size_t kRowsAheadIds = 64;
constexpr size_t kIndexAheadIds = 128;

}  // namespace

absl::StatusOr<std::unique_ptr<Table>> Table::Create(TableOptions options) {
  WEIR_RETURN_IF_ERROR(options.Validate());
  WEIR_ASSIGN_OR_RETURN(
      std::unique_ptr<RowOptimizer> optimizer,
      CreateRowOptimizer(
          options.optimizer,
          absl::StrCat("table \"", options.name, "\": optimizer")));
  return std::unique_ptr<Table>(
      new Table(std::move(options), std::move(optimizer)));
}

Table::Table(TableOptions options, std::unique_ptr<RowOptimizer> optimizer)
    : options_(std::move(options)), optimizer_(std::move(optimizer)) {
  context_.options = &options_;
  context_.optimizer = optimizer_.get();
  context_.init_key = RowInitKey(options_.seed);
  context_.skip_bits =
      std::bit_width(static_cast<uint32_t>(options_.stripes)) - 1;
  // I3: each stripe keeps its own share, so no lock is common to all.
  context_.bytes_max = options_.memory_bytes_max >> context_.skip_bits;
  for (int s = 0; s < options_.stripes; ++s) {
    stripes_.push_back(std::make_unique<TableStripe>(&context_, s));
  }
}

absl::Status Table::CheckShard(std::span<const uint64_t> ids) const {
  if (options_.shard_count == 1) {
    return absl::OkStatus();
  }
  for (const uint64_t id : ids) {
    const int shard = ShardOfId(id, options_.shard_count);
    if (shard != options_.shard) {
      return absl::InvalidArgumentError(absl::StrCat(
          "table \"", options_.name, "\": id ", id, " is of shard ", shard,
          " of ", options_.shard_count, ", not ", options_.shard));
    }
  }
  return absl::OkStatus();
}

struct Table::Piece {
  std::array<uint64_t, kPieceIds> ids;     // sorted by stripe
  std::array<uint64_t, kPieceIds> hashes;  // of ids
  std::array<uint16_t, kPieceIds> places;  // of ids in the caller's list
  std::array<RowHeader*, kPieceIds> rows;  // of ids, as FetchRows finds them
  // Stripe s has [ends[s - 1], ends[s]).
  std::array<uint16_t, TableOptions::kMaxStripes> ends;

  struct Window {
    int stripe;
    uint16_t begin, end;
    uint16_t before;  // ids in the windows before this one
    int64_t epoch;    // of rows
  };
  // In the order in which they are used.
  std::array<Window, TableOptions::kMaxStripes + kPieceIds / kWindowIds>
      windows;
  size_t window_count = 0;
};

// Ids with a non-zero left_out are left out; null: none is.
void Table::Sort(std::span<const uint64_t> ids, const char* left_out,
                 Piece* piece) {
  std::array<uint64_t, kPieceIds> hashes;
  std::array<uint16_t, TableOptions::kMaxStripes> counts;
  const size_t stripes = stripes_.size();
  std::fill_n(counts.begin(), stripes, uint16_t{0});
  for (size_t i = 0; i < ids.size(); ++i) {
    hashes[i] = IndexHash(ids[i]);
    if (left_out == nullptr || left_out[i] == 0) {
      ++counts[static_cast<size_t>(StripeOf(hashes[i]))];
    }
  }
  uint16_t begin = 0;
  for (size_t s = 0; s < stripes; ++s) {
    piece->ends[s] = begin;
    begin = static_cast<uint16_t>(begin + counts[s]);
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (left_out == nullptr || left_out[i] == 0) {
      const size_t at = piece->ends[static_cast<size_t>(StripeOf(hashes[i]))]++;
      piece->ids[at] = ids[i];
      piece->hashes[at] = hashes[i];
      piece->places[at] = static_cast<uint16_t>(i);
    }
  }
  // Threads that began with the same stripe would queue up all the way.
  const size_t first = static_cast<size_t>(StripeOf(hashes[0]));
  piece->window_count = 0;
  size_t before = 0;
  for (size_t k = 0; k < stripes; ++k) {
    const size_t s = (first + k) & (stripes - 1);
    size_t at = 0;
    if (s > 0) {
      at = piece->ends[s - 1];
    }
    while (at < piece->ends[s]) {
      const size_t end = std::min<size_t>(piece->ends[s], at + kWindowIds);
      piece->windows[piece->window_count++] = {
          static_cast<int>(s), static_cast<uint16_t>(at),
          static_cast<uint16_t>(end), static_cast<uint16_t>(before), 0};
      before += end - at;
      at = end;
    }
  }
}

// A lock is held while what is in the cache is used, hardly ever while memory
// is waited for: a thread that loses its processor meanwhile seldom holds one.
template <class Use>
void Table::ForEachWindow(Piece* of, Access access, const Use& use) {
  Piece& piece = *of;
  size_t index = 0;
  size_t rows = 0;
  const auto near = [&](size_t next, size_t now, size_t ahead) {
    return next < piece.window_count &&
           piece.windows[next].before <= piece.windows[now].before + ahead;
  };
  for (size_t now = 0; now < piece.window_count; ++now) {
    for (; near(index, now, kIndexAheadIds); ++index) {
      const auto& window = piece.windows[index];
      TableStripe& part = stripe(window.stripe);
      MutexLock lock(&part.mutex());
      part.FetchIndex(&piece.hashes[window.begin], window.end - window.begin);
    }
    for (; near(rows, now, kRowsAheadIds); ++rows) {
      auto& window = piece.windows[rows];
      TableStripe& part = stripe(window.stripe);
      MutexLock lock(&part.mutex());
      window.epoch =
          part.FetchRows(access, &piece.hashes[window.begin],
                         window.end - window.begin, &piece.rows[window.begin]);
    }
    const auto& window = piece.windows[now];
    TableStripe& part = stripe(window.stripe);
    // I4: new memory is asked for here, where no lock is held.
    if (access != Access::kRead && part.IsLow()) {
      part.MakeRoom();
    }
    use(&part, window);
  }
}

absl::Status Table::Lookup(std::span<const uint64_t> ids, Mode mode,
                           float* out) {
  WEIR_RETURN_IF_ERROR(CheckShard(ids));
  const Access access = mode == Mode::kRead ? Access::kRead : Access::kTrain;
  LookupAll(ids, access, static_cast<size_t>(options_.dim), out, nullptr);
  return absl::OkStatus();
}

void Table::ReadWhole(std::span<const uint64_t> ids, float* rows,
                      RowState* states) {
  LookupAll(ids, Access::kRead, static_cast<size_t>(row_floats()), rows,
            states);
}

void Table::LookupAll(std::span<const uint64_t> ids, Access access,
                      size_t floats, float* out, RowState* states) {
  for (size_t begin = 0; begin < ids.size(); begin += kPieceIds) {
    const size_t count = std::min(ids.size() - begin, kPieceIds);
    LookupPiece(ids.subspan(begin, count), access, floats, out + begin * floats,
                states == nullptr ? nullptr : states + begin);
  }
}

void Table::LookupPiece(std::span<const uint64_t> ids, Access access,
                        size_t floats, float* out, RowState* states) {
  const uint32_t now = RowClock();
  Piece piece;
  Sort(ids, nullptr, &piece);
  ForEachWindow(
      &piece, access, [&](TableStripe* part, const Piece::Window& window) {
        const auto [s, begin, end, before, epoch] = window;
        {
          MutexLock lock(&part->mutex());
          part->Resolve(access, &piece.ids[begin], &piece.hashes[begin],
                        end - begin, now, epoch, &piece.rows[begin]);
          for (size_t i = begin; i < end; ++i) {
            const RowHeader* const row = piece.rows[i];
            if (row == nullptr) {
              continue;
            }
            std::memcpy(out + piece.places[i] * floats, row->values(),
                        floats * sizeof(float));
            if (states != nullptr) {
              states[piece.places[i]] = {row->touched, row->updates, true};
            }
          }
        }
        // I1, without the lock: initial values depend on the id alone.
        for (size_t i = begin; i < end; ++i) {
          if (piece.rows[i] == nullptr) {
            FillInitialRow(options_.init, context_.init_key, piece.ids[i],
                           options_.dim, out + piece.places[i] * floats);
            if (states != nullptr) {
              states[piece.places[i]] = RowState();
            }
          }
        }
      });
}

absl::StatusOr<UpdateReceipt> Table::Update(
    std::span<const RowGradients> pieces, double learning_rate) {
  // All ids before the first row moves: an error changes nothing.
  for (const RowGradients& piece : pieces) {
    WEIR_RETURN_IF_ERROR(CheckShard(piece.ids));
  }
  const RowStep step = {learning_rate,
                        step_.fetch_add(1, std::memory_order_relaxed)};
  UpdateReceipt receipt;
  for (auto [ids, gradients] : pieces) {
    while (!ids.empty()) {
      const size_t count = std::min(ids.size(), kPieceIds);
      UpdatePiece(ids.first(count), gradients, step, &receipt);
      ids = ids.subspan(count);
      gradients += count * static_cast<size_t>(options_.dim) * sizeof(float);
    }
  }
  return receipt;
}

void Table::UpdatePiece(std::span<const uint64_t> ids, const char* gradients,
                        const RowStep& step, UpdateReceipt* receipt) {
  const size_t row_bytes = static_cast<size_t>(options_.dim) * sizeof(float);
  const uint32_t now = RowClock();
  Piece piece;
  // One look at the whole piece first: NaN is rare, and rows are short.
  std::array<char, kPieceIds> not_finite;
  const bool finite =
      AllFinite(gradients, static_cast<int64_t>(ids.size()) * options_.dim);
  if (!finite) {
    for (size_t i = 0; i < ids.size(); ++i) {
      not_finite[i] = !AllFinite(gradients + i * row_bytes, options_.dim);
      receipt->not_finite += not_finite[i];
    }
  }
  // I2: sorting keeps the caller's order within a stripe, so an id that comes
  // twice moves by its gradients in their order.
  Sort(ids, finite ? nullptr : not_finite.data(), &piece);
  ForEachWindow(
      &piece, Access::kUpdate,
      [&](TableStripe* part, const Piece::Window& window) {
        const auto [s, begin, end, before, epoch] = window;
        std::array<float*, kWindowIds> values;
        std::array<const char*, kWindowIds> from;
        std::array<uint32_t, kWindowIds> updates;
        MutexLock lock(&part->mutex());
        part->Resolve(Access::kUpdate, &piece.ids[begin], &piece.hashes[begin],
                      end - begin, now, epoch, &piece.rows[begin]);
        size_t count = 0;
        for (size_t i = begin; i < end; ++i) {
          RowHeader* const row = piece.rows[i];
          if (row != nullptr) {
            values[count] = row->values();
            from[count] = gradients + piece.places[i] * row_bytes;
            updates[count] = row->updates;
            row->updates += row->updates != ~uint32_t{0};
            ++count;
          }
        }
        optimizer_->Apply(step, {values.data(), from.data(), updates.data(),
                                 static_cast<int>(count), options_.dim});
        receipt->applied += static_cast<int64_t>(count);
        receipt->not_admitted += static_cast<int64_t>(end - begin - count);
      });
}

}  // namespace weir
