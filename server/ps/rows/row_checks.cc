#include "server/ps/rows/row_checks.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "proto/job/push_checks.h"
#include "proto/wire/id_list.h"
#include "proto/wire/value_encoding.h"
#include "server/ps/block/block_update.h"

namespace weir {

absl::Status CheckPullRows(const Declaration& declaration,
                           const PullRowsChunk& request) {
  const auto tables = static_cast<uint32_t>(declaration.table_size());
  if (request.train() && request.sender().generation() == 0) {
    return absl::PermissionDeniedError(
        "a lookup to train from needs a slot's generation; a reader sets "
        "`train` to false");
  }
  if (request.want().when_case() == Want::WHEN_NOT_SET) {
    return absl::InvalidArgumentError(
        "want names neither `latest` nor a `version`");
  }
  // The size of an answer must follow from its number of rows: it is allocated
  // before anything is read.
  if (!IsFixedSize(request.want().encoding())) {
    return absl::InvalidArgumentError("rows travel as F32, BF16, F16 or INT8");
  }
  // In 64 bits: count times dim of one list alone may not fit into 32.
  uint64_t bytes = 0;
  for (const IdList& list : request.list()) {
    if (list.table() >= tables) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", list.table(), " of ", tables, " tables"));
    }
    bytes += uint64_t{list.count()} *
             declaration.table(static_cast<int>(list.table())).dim() *
             sizeof(float);
  }
  if (bytes > kRowBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a lookup of ", bytes, " bytes of rows; at most ",
                     kRowBytesMax, " fit into an answer, ask in pieces"));
  }
  return absl::OkStatus();
}

absl::Status CheckPushPiece(const Declaration& declaration,
                            const PushRowsChunk& chunk,
                            const StagedPush& update) {
  const int tables = declaration.table_size();
  WEIR_RETURN_IF_ERROR(CheckWeight(WeightOf(chunk.push())));
  // A stream carries one contribution. A client that mixed two would have half
  // of each applied under one mark.
  if (update.begun && (chunk.push().sequence() != update.push.sequence() ||
                       chunk.sender().slot() != update.sender.slot())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an update of slot ", update.sender.slot(), " sequence number ",
        update.push.sequence(), " goes on as slot ", chunk.sender().slot(),
        " sequence number ", chunk.push().sequence()));
  }
  // Rates add up over the pieces, so their number is bounded here.
  if (update.rates.size() + static_cast<size_t>(chunk.rate_size()) >
      static_cast<size_t>(tables)) {
    return absl::InvalidArgumentError(
        absl::StrCat("more rates than the ", tables, " tables of this job"));
  }
  for (const TableRate& rate : chunk.rate()) {
    if (rate.table() >= static_cast<uint32_t>(tables) ||
        !std::isfinite(rate.learning_rate()) || rate.learning_rate() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("rate of table ", rate.table(), " of ", tables, ": ",
                       rate.learning_rate(), "; it must be >= 0"));
    }
  }
  return absl::OkStatus();
}

}  // namespace weir
