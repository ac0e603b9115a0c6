#include "server/ps/table/table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/kernels.h"
#include "common/status.h"
#include "server/ps/initializer.h"
#include "server/ps/table/row_hash.h"

namespace weir {
namespace {

// Ids that are sorted at once: their lists fit into the second-level cache and
// on the stack.
constexpr size_t kPieceIds = 4096;

}  // namespace

absl::StatusOr<std::unique_ptr<Table>> Table::Create(TableOptions options) {
  WEIR_RETURN_IF_ERROR(options.Validate());
  WEIR_ASSIGN_OR_RETURN(
      std::unique_ptr<RowRule> rule,
      CreateRowRule(options.rule,
                    absl::StrCat("table \"", options.name, "\": optimizer")));
  return std::unique_ptr<Table>(new Table(std::move(options), std::move(rule)));
}

Table::Table(TableOptions options, std::unique_ptr<RowRule> rule)
    : options_(std::move(options)), rule_(std::move(rule)) {
  context_.options = &options_;
  context_.rule = rule_.get();
  context_.init_key = RowInitKey(options_.seed);
  context_.skip_bits =
      std::bit_width(static_cast<uint32_t>(options_.stripes)) - 1;
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
  // Stripe s has [ends[s - 1], ends[s]).
  std::array<uint16_t, TableOptions::kMaxStripes> ends;
  int first = 0;  // the stripe to begin with
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
  piece->first = StripeOf(hashes[0]);
}

absl::Status Table::Lookup(std::span<const uint64_t> ids, Mode mode,
                           float* out) {
  WEIR_RETURN_IF_ERROR(CheckShard(ids));
  const Access access = mode == Mode::kRead ? Access::kRead : Access::kTrain;
  while (!ids.empty()) {
    const size_t count = std::min(ids.size(), kPieceIds);
    LookupPiece(ids.first(count), access, out);
    ids = ids.subspan(count);
    out += count * static_cast<size_t>(options_.dim);
  }
  return absl::OkStatus();
}

void Table::LookupPiece(std::span<const uint64_t> ids, Access access,
                        float* out) {
  const size_t dim = static_cast<size_t>(options_.dim);
  const uint32_t now = clock();
  Piece piece;
  Sort(ids, nullptr, &piece);
  std::array<RowHeader*, kPieceIds> rows;
  for (int k = 0; k < options_.stripes; ++k) {
    const int s = (piece.first + k) % options_.stripes;
    const size_t begin = s == 0 ? 0 : piece.ends[static_cast<size_t>(s) - 1];
    const size_t end = piece.ends[static_cast<size_t>(s)];
    if (begin == end) {
      continue;
    }
    {
      TableStripe& part = stripe(s);
      MutexLock lock(&part.mutex());
      part.Resolve(access, &piece.ids[begin], &piece.hashes[begin],
                   static_cast<int>(end - begin), now, &rows[begin]);
      for (size_t i = begin; i < end; ++i) {
        if (rows[i] != nullptr) {
          std::memcpy(out + piece.places[i] * dim, rows[i]->values(),
                      dim * sizeof(float));
        }
      }
    }
    for (size_t i = begin; i < end; ++i) {
      if (rows[i] == nullptr) {
        FillInitialRow(options_.init, context_.init_key, piece.ids[i],
                       options_.dim, out + piece.places[i] * dim);
      }
    }
  }
}

absl::StatusOr<UpdateReceipt> Table::Update(std::span<const uint64_t> ids,
                                            const char* gradients,
                                            double learning_rate) {
  WEIR_RETURN_IF_ERROR(CheckShard(ids));
  const RowStep step = {learning_rate,
                        step_.fetch_add(1, std::memory_order_relaxed)};
  UpdateReceipt receipt;
  while (!ids.empty()) {
    const size_t count = std::min(ids.size(), kPieceIds);
    UpdatePiece(ids.first(count), gradients, step, &receipt);
    ids = ids.subspan(count);
    gradients += count * static_cast<size_t>(options_.dim) * sizeof(float);
  }
  return receipt;
}

void Table::UpdatePiece(std::span<const uint64_t> ids, const char* gradients,
                        const RowStep& step, UpdateReceipt* receipt) {
  const size_t row_bytes = static_cast<size_t>(options_.dim) * sizeof(float);
  const uint32_t now = clock();
  Piece piece;
  std::array<char, kPieceIds> not_finite;
  const bool finite =
      AllFinite(gradients, static_cast<int64_t>(ids.size()) * options_.dim);
  if (!finite) {
    for (size_t i = 0; i < ids.size(); ++i) {
      not_finite[i] = !AllFinite(gradients + i * row_bytes, options_.dim);
      receipt->not_finite += not_finite[i];
    }
  }
  Sort(ids, finite ? nullptr : not_finite.data(), &piece);
  std::array<RowHeader*, kPieceIds> rows;
  std::array<float*, kPieceIds> values;
  std::array<const char*, kPieceIds> from;
  std::array<uint32_t, kPieceIds> updates;
  for (int k = 0; k < options_.stripes; ++k) {
    const int s = (piece.first + k) % options_.stripes;
    const size_t begin = s == 0 ? 0 : piece.ends[static_cast<size_t>(s) - 1];
    const size_t end = piece.ends[static_cast<size_t>(s)];
    if (begin == end) {
      continue;
    }
    TableStripe& part = stripe(s);
    MutexLock lock(&part.mutex());
    part.Resolve(Access::kUpdate, &piece.ids[begin], &piece.hashes[begin],
                 static_cast<int>(end - begin), now, rows.data());
    size_t count = 0;
    for (size_t i = 0; i < end - begin; ++i) {
      RowHeader* const row = rows[i];
      if (row != nullptr) {
        values[count] = row->values();
        from[count] = gradients + piece.places[begin + i] * row_bytes;
        updates[count] = row->updates;
        row->updates += row->updates != ~uint32_t{0};
        ++count;
      }
    }
    rule_->Apply(step, {values.data(), from.data(), updates.data(),
                        static_cast<int>(count), options_.dim});
    receipt->applied += static_cast<int64_t>(count);
    receipt->not_admitted += static_cast<int64_t>(end - begin - count);
  }
}

}  // namespace weir
