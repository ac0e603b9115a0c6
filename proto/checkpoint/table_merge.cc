#include "proto/checkpoint/table_merge.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/job/row_hash.h"

namespace weir {
namespace {

// Where a visit stands in one file.
struct Cursor {
  const TableFileReader* file = nullptr;
  int table = 0;
  int64_t next = 0;  // the row of the file that comes after `rows`
  size_t at = 0;     // which of `rows`
  RowRecords rows = {};

  uint64_t id() const { return rows.ids[at]; }
  uint64_t hash() const { return IndexHash(id()); }
};

constexpr int64_t kPieceRows = 2048;  // rows of each file that are held

// Moves to the next row; false after the last.
absl::StatusOr<bool> Advance(Cursor* cursor) {
  const TableFileEntry& table =
      cursor->file->tables()[static_cast<size_t>(cursor->table)];
  const bool first = cursor->next == 0;
  uint64_t before = 0;
  if (!first) {  // before the first row there is none to ask
    before = cursor->hash();
  }
  if (first || ++cursor->at == cursor->rows.ids.size()) {
    const int64_t count = std::min(kPieceRows, table.rows - cursor->next);
    if (count == 0) {
      return false;
    }
    WEIR_RETURN_IF_ERROR(
        cursor->file->Read(cursor->table, cursor->next, count, &cursor->rows));
    cursor->next += count;
    cursor->at = 0;
  }
  // The merge below relies on the order, and a file that was written by another
  // program may not have it. IndexHash is a bijection, so two rows of one hash
  // would be one id twice.
  if (!first && cursor->hash() <= before) {
    return absl::DataLossError(
        absl::StrCat("'", cursor->file->path(), "': row ", cursor->id(),
                     " of table '", table.name, "' is out of order"));
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TableMerge>> TableMerge::Open(
    ObjectStore* files, const std::string& checkpoint_dir,
    const Manifest& manifest) {
  std::unique_ptr<TableMerge> merge(new TableMerge(manifest.declaration()));
  WEIR_ASSIGN_OR_RETURN(merge->files_,
                        OpenTables(files, checkpoint_dir, manifest));
  return merge;
}

absl::Status TableMerge::Visit(
    int table, const std::function<void(uint64_t, const float*)>& take) const {
  const EmbeddingTable& declared = declaration_.table(table);
  std::vector<Cursor> cursors;
  for (const auto& file : files_) {
    const int found = file->Find(declared.name());
    if (found < 0 || file->tables()[static_cast<size_t>(found)].row_floats <
                         int64_t{declared.dim()}) {
      return absl::DataLossError(
          absl::StrCat("'", file->path(), "' has no table '", declared.name(),
                       "' of dim ", declared.dim()));
    }
    cursors.push_back({.file = file.get(), .table = found});
  }
  // A merge: the cursor with the smallest hash comes first. If an increment has
  // a row of its base again, their cursors stand at one hash, and the one with
  // the larger index is the increment's.
  using Head = std::pair<uint64_t, size_t>;  // hash, index of the cursor
  std::priority_queue<Head, std::vector<Head>, std::greater<Head>> heads;
  const auto push = [&](size_t i) -> absl::Status {
    WEIR_ASSIGN_OR_RETURN(const bool more, Advance(&cursors[i]));
    if (more) {
      heads.emplace(cursors[i].hash(), i);
    }
    return absl::OkStatus();
  };
  for (size_t i = 0; i < cursors.size(); ++i) {
    WEIR_RETURN_IF_ERROR(push(i));
  }
  while (!heads.empty()) {
    const auto [hash, i] = heads.top();
    heads.pop();
    // Only the last of the cursors at this hash gives the row; the others skip
    // theirs.
    const Cursor& cursor = cursors[i];
    if ((heads.empty() || heads.top().first != hash) &&
        !cursor.file->IsExpired(cursor.table, declared.expiry(),
                                cursor.rows.touched[cursor.at])) {
      const int64_t row_floats =
          cursor.file->tables()[static_cast<size_t>(cursor.table)].row_floats;
      take(cursor.id(), cursor.rows.floats.data() +
                            static_cast<int64_t>(cursor.at) * row_floats);
    }
    WEIR_RETURN_IF_ERROR(push(i));
  }
  return absl::OkStatus();
}

}  // namespace weir
