#include "server/ps/rows/open_pushes.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace weir {

void OpenPushes::Begin(StagedPush* update) {
  Open older;  // freed without the lock
  MutexLock lock(&mutex_);
  Open& open = slots_[update->sender.slot()];
  older = std::exchange(open, Open());  // I1
  open.number = ++newest_;
  update->number = open.number;
}

absl::StatusOr<OpenPushes::Open*> OpenPushes::Find(const StagedPush& update) {
  Open& open = slots_[update.sender.slot()];
  if (open.number != update.number) {
    return absl::AbortedError(
        absl::StrCat("a newer push of rows of slot ", update.sender.slot(),
                     " took the place of the one with sequence number ",
                     update.push.sequence()));
  }
  return &open;
}

absl::StatusOr<bool> OpenPushes::TakeRoom(const StagedPush& update,
                                          uint64_t bytes, bool awaited) {
  Open dropped;
  MutexLock lock(&mutex_);
  WEIR_ASSIGN_OR_RETURN(Open* const open, Find(update));
  if (open->bytes + bytes > bytes_max_) {  // I2
    return absl::InvalidArgumentError(absl::StrCat(
        "a push of rows of more than ", bytes_max_,
        " bytes on one ps: take smaller batches or more ps, or raise "
        "limits.out_of_order_bytes"));
  }
  // I3
  if (!budget_.TakeForRows(bytes, awaited, &open->room)) {
    std::swap(dropped.rows, open->rows);
    std::swap(dropped.room, open->room);
    open->bytes = 0;
    return false;
  }
  open->bytes += bytes;
  return true;
}

absl::Status OpenPushes::Add(const StagedPush& update,
                             std::vector<StagedRows> rows) {
  MutexLock lock(&mutex_);
  WEIR_ASSIGN_OR_RETURN(Open* const open, Find(update));
  std::move(rows.begin(), rows.end(), std::back_inserter(open->rows));
  return absl::OkStatus();
}

void OpenPushes::Drop(const StagedPush& update) {
  Open dropped;
  MutexLock lock(&mutex_);
  if (const absl::StatusOr<Open*> open = Find(update); open.ok()) {
    std::swap(dropped.rows, (*open)->rows);
    std::swap(dropped.room, (*open)->room);
    (*open)->bytes = 0;
  }
}

absl::Status OpenPushes::Close(StagedPush* update) {
  MutexLock lock(&mutex_);
  WEIR_ASSIGN_OR_RETURN(Open* const open, Find(*update));
  update->rows = std::move(open->rows);
  update->room = std::move(open->room);
  *open = Open();
  return absl::OkStatus();
}

}  // namespace weir
