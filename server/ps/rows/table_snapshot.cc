#include "server/ps/rows/table_snapshot.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/failpoint.h"
#include "common/base/plant.h"
#include "common/base/status.h"
#include "common/job/row_hash.h"
#include "proto/checkpoint/table_file.h"
#include "server/ps/table/row_age.h"

namespace weir {
namespace {

int64_t Dropped(Table& table) {
  const StripeCounts counts = table.Report(0).counts;
  return counts.evicted + counts.shrunk;
}

// "runs/x/checkpoints/ckpt-7" -> "ckpt-7"
std::string NameOf(const std::string& directory) {
  const size_t slash = directory.rfind('/');
  return slash == std::string::npos ? directory : directory.substr(slash + 1);
}

// Whether a row of that `touched` was used at `then` or later.
// REQUIRES: now - then <= kRowAgeMax.
bool TouchedSince(uint32_t touched, uint64_t then, uint64_t now) {
  if (Planted("clock.wall_rows")) {
    return touched >= static_cast<uint32_t>(then);
  }
  return RowAge(static_cast<uint32_t>(now), touched) <= now - then;
}

// Moves the touches of `rows`, which lie on the clock of the checkpoint, to
// `table`'s clock. A file of an earlier version of Weir does not tell its
// clock: there, seconds were those of the wall clock, and such rows count as
// touched now.
void MoveClock(const TableFileEntry& from, bool seconds, const Table& table,
               RowRecords* rows) {
  const auto now = static_cast<uint32_t>(table.clock());
  for (uint32_t& touched : rows->touched) {
    const uint32_t age =
        from.clock.has_value()
            ? RowAge(static_cast<uint32_t>(*from.clock), touched)
        : seconds ? 0
                  : RowAge(now, touched);
    touched = TouchedAt(now, age);
  }
}

// Rows i for which keep(i) holds, in order.
template <class Keep>
void Filter(const Keep& keep, size_t row_floats, RowRecords* rows) {
  size_t to = 0;
  for (size_t i = 0; i < rows->ids.size(); ++i) {
    if (!keep(i)) {
      continue;
    }
    rows->ids[to] = rows->ids[i];
    rows->touched[to] = rows->touched[i];
    rows->updates[to] = rows->updates[i];
    std::copy_n(rows->floats.begin() + static_cast<int64_t>(i * row_floats),
                row_floats,
                rows->floats.begin() + static_cast<int64_t>(to * row_floats));
    ++to;
  }
  rows->ids.resize(to);
  rows->touched.resize(to);
  rows->updates.resize(to);
  rows->floats.resize(to * row_floats);
}

}  // namespace

absl::StatusOr<TableFile> TableSnapshots::Write(
    TableGroup& tables, Files* files, const ShardPlan& plan,
    const std::string& directory, const std::string& base,
    std::optional<uint64_t> version) {
  Failpoint("ps.before_table_write");
  const bool previous = version.has_value() && tables.IsPrevious(*version);
  if (version.has_value() && !previous && *version != tables.version()) {
    return absl::OutOfRangeError(absl::StrCat(
        "the tables are at version ", tables.version(), ", past ", *version));
  }
  bool full = previous || base.empty() || base != full_;
  std::vector<Since> now(static_cast<size_t>(tables.count()));
  for (int t = 0; t < tables.count(); ++t) {
    Since& one = now[static_cast<size_t>(t)];
    one = {tables.table(t).clock(), Dropped(tables.table(t))};
    full = full || one.dropped != since_[static_cast<size_t>(t)].dropped ||
           one.clock > since_[static_cast<size_t>(t)].clock + kRowAgeMax;
  }
  const auto visit =
      [&](int t, const std::function<absl::Status(const RowRecords&)>& take) {
        Table& table = tables.table(t);
        ExportCursor cursor;
        RowRecords rows;
        while (table.Export(&cursor, &rows)) {
          if (previous) {
            tables.before(t).PutBack(&rows);
          } else if (!full) {
            const uint64_t then = since_[static_cast<size_t>(t)].clock;
            const uint64_t clock = now[static_cast<size_t>(t)].clock;
            Filter(
                [&](size_t i) {
                  return TouchedSince(rows.touched[i], then, clock);
                },
                static_cast<size_t>(table.row_floats()), &rows);
          }
          WEIR_RETURN_IF_ERROR(take(rows));
        }
        return absl::OkStatus();
      };
  std::vector<TableFileEntry> shapes;
  int64_t rows_written = 0;
  for (int t = 0; t < tables.count(); ++t) {
    Table& table = tables.table(t);
    TableFileEntry shape = {table.options().name,
                            previous ? tables.before(t).step() : table.step(),
                            0, table.row_floats(),
                            previous ? tables.before(t).clock()
                                     : now[static_cast<size_t>(t)].clock};
    WEIR_RETURN_IF_ERROR(visit(t, [&](const RowRecords& rows) {
      shape.rows += static_cast<int64_t>(rows.ids.size());
      return absl::OkStatus();
    }));
    rows_written += shape.rows;
    shapes.push_back(std::move(shape));
  }
  const std::string name =
      TableFileName(plan.shard(), plan.layout().shard_count());
  WEIR_ASSIGN_OR_RETURN(
      const FileDigest digest,
      TableFileWriter::Write(files, JoinPath(directory, name), shapes, visit));
  TableFile file;
  file.set_name(name);
  file.set_bytes(static_cast<uint64_t>(digest.bytes));
  file.set_crc32c(digest.crc32c);
  file.set_rows(static_cast<uint64_t>(rows_written));
  if (previous) {
    full_.clear();  // rows that the newest step moved look older than it
  } else if (full) {
    full_ = NameOf(directory);
    since_ = std::move(now);
  } else {
    file.set_base(base);
  }
  return file;
}

absl::Status RestoreTables(TableGroup& tables, Files* files,
                           const ShardPlan& plan,
                           const CheckpointReader& reader) {
  const Declaration& theirs = reader.manifest().declaration();
  const std::string where =
      absl::StrCat("checkpoint '", reader.directory(), "'");
  if (theirs.table_size() != tables.count()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, " has ", theirs.table_size(), " tables, the job ",
                     tables.count()));
  }
  const int shards = plan.layout().shard_count();
  const auto take = [&](const TableFileEntry& from, const RowRecords& rows) {
    int t = 0;
    while (t < tables.count() && tables.table(t).options().name != from.name) {
      ++t;
    }
    if (t == tables.count() ||
        tables.table(t).row_floats() != from.row_floats) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, " has table \"", from.name, "\" with ",
                       from.row_floats, " floats a row, the job ",
                       t == tables.count()
                           ? std::string("has none of that name")
                           : absl::StrCat("has ", tables.table(t).row_floats(),
                                          ": another dim or optimizer")));
    }
    Table& table = tables.table(t);
    table.SetStep(std::max(table.step(), from.step));
    RowRecords mine = rows;
    Filter(
        [&](size_t i) {
          return ShardOfId(rows.ids[i], shards) == plan.shard();
        },
        static_cast<size_t>(from.row_floats), &mine);
    MoveClock(
        from,
        plan.declaration().table(t).expiry().age_case() == Expiry::kSeconds,
        table, &mine);
    Failpoint("ps.mid_restore");
    return table.Import(mine);
  };
  return ReadTables(files, reader.directory(), reader.manifest(), take);
}

}  // namespace weir
