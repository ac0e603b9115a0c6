#include "server/ps/rows/table_snapshot.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/failpoint.h"
#include "common/base/plant.h"
#include "common/base/status.h"
#include "common/job/row_age.h"
#include "common/job/row_hash.h"
#include "proto/checkpoint/table_file.h"

namespace weir {
namespace {

int64_t Dropped(Table& table) {
  const StripeCounts counts = table.Report(0).counts;
  return counts.evicted + counts.shrunk;
}

// "runs/x/checkpoints/ckpt-7" -> "ckpt-7"
std::string NameOf(const std::string& directory) {
  // Without a slash, npos + 1 is 0: the whole string.
  return directory.substr(directory.rfind('/') + 1);
}

// Whether a row of that `touched` was used at `then` or later.
// REQUIRES: now - then <= kRowAgeMax.
bool TouchedSince(uint32_t touched, uint64_t then, uint64_t now) {
  if (Planted("clock.wall_rows")) {
    return touched >= static_cast<uint32_t>(then);
  }
  return RowAge(static_cast<uint32_t>(now), touched) <= now - then;
}

// The age of a row in a file, in units of its table's clock. A file of an
// earlier version of Weir does not tell its clock: there, seconds were those of
// the wall clock, and such rows count as touched now.
uint32_t AgeInFile(const TableFileEntry& from, bool seconds, uint32_t now,
                   uint32_t touched) {
  if (from.clock.has_value()) {
    return RowAge(static_cast<uint32_t>(*from.clock), touched);
  }
  if (seconds) {
    return 0;
  }
  return RowAge(now, touched);
}

// Moves the touches of `rows`, which lie on the clock of the checkpoint, to
// `table`'s clock.
void MoveClock(const TableFileEntry& from, bool seconds, const Table& table,
               RowRecords* rows) {
  const auto now = static_cast<uint32_t>(table.clock());
  for (uint32_t& touched : rows->touched) {
    touched = TouchedAt(now, AgeInFile(from, seconds, now, touched));
  }
}

// Makes the entry of table `t`, whose clock is `clock`, without its row count.
// `previous`: the rows are those before the last sync step, with the step count
// and the clock of then.
TableFileEntry EntryOf(TableGroup& tables, int t, bool previous,
                       uint64_t clock) {
  Table& table = tables.table(t);
  TableFileEntry entry = {table.options().name, table.step(), 0,
                          table.row_floats(), clock};
  if (previous) {
    entry.step = tables.before(t).step();
    entry.clock = tables.before(t).clock();
  }
  return entry;
}

// The table of that name; -1 when the job has none.
int FindTable(TableGroup& tables, const std::string& name) {
  for (int t = 0; t < tables.count(); ++t) {
    if (tables.table(t).options().name == name) {
      return t;
    }
  }
  return -1;
}

absl::Status CheckSameTable(TableGroup& tables, int t,
                            const TableFileEntry& from,
                            const std::string& where) {
  if (t >= 0 && tables.table(t).row_floats() == from.row_floats) {
    return absl::OkStatus();
  }
  std::string ours = "has none of that name";
  if (t >= 0) {
    ours = absl::StrCat("has ", tables.table(t).row_floats(),
                        ": another dim or optimizer");
  }
  return absl::InvalidArgumentError(
      absl::StrCat(where, " has table \"", from.name, "\" with ",
                   from.row_floats, " floats a row, the job ", ours));
}

}  // namespace

std::vector<TableSnapshots::Since> TableSnapshots::SinceNow(
    TableGroup& tables) {
  std::vector<Since> now;
  for (int t = 0; t < tables.count(); ++t) {
    now.push_back({tables.table(t).clock(), Dropped(tables.table(t))});
  }
  return now;
}

bool TableSnapshots::NeedsAllRows(const std::vector<Since>& now) const {
  for (size_t t = 0; t < now.size(); ++t) {
    // Nothing in an increment would tell that a row of the base is gone; and
    // beyond kRowAgeMax a row's touch cannot be compared with the base's clock.
    if (now[t].dropped != since_[t].dropped ||
        now[t].clock > since_[t].clock + kRowAgeMax) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<TableFile> TableSnapshots::Write(
    TableGroup& tables, ObjectStore* files, const ShardPlan& plan,
    const std::string& directory, const std::string& base,
    std::optional<uint64_t> version) {
  Failpoint("ps.before_table_write");
  const bool previous = version.has_value() && tables.IsPrevious(*version);
  if (version.has_value() && !previous && *version != tables.version()) {
    return absl::OutOfRangeError(absl::StrCat(
        "the tables are at version ", tables.version(), ", past ", *version));
  }
  std::vector<Since> now = SinceNow(tables);
  // I1. Only the last checkpoint with all rows is extended: since_ is of that.
  const bool full =
      previous || base.empty() || base != full_ || NeedsAllRows(now);
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
            rows.KeepIf(static_cast<size_t>(table.row_floats()), [&](size_t i) {
              return TouchedSince(rows.touched[i], then, clock);
            });
          }
          WEIR_RETURN_IF_ERROR(take(rows));
        }
        return absl::OkStatus();
      };
  std::vector<TableFileEntry> shapes;
  int64_t rows_written = 0;
  for (int t = 0; t < tables.count(); ++t) {
    // Twice over all rows: the file's header says how many there are.
    TableFileEntry shape =
        EntryOf(tables, t, previous, now[static_cast<size_t>(t)].clock);
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
    // The rows that the newest step moved look as if it had not touched them,
    // so no increment may be built on this file (I1).
    full_.clear();
  } else if (full) {
    full_ = NameOf(directory);
    since_ = std::move(now);
  } else {
    since_ = Planted("rows.increments_chain") ? now : since_;
    file.set_base(base);
  }
  return file;
}

absl::Status RestoreTables(TableGroup& tables, ObjectStore* files,
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
  std::vector<int64_t> bytes(static_cast<size_t>(tables.count()));
  const auto take = [&](const TableFileEntry& from, const RowRecords& rows) {
    const int t = FindTable(tables, from.name);
    WEIR_RETURN_IF_ERROR(CheckSameTable(tables, t, from, where));
    Table& table = tables.table(t);
    // Every file tells the count of the shard that wrote it; the largest holds.
    table.SetStep(std::max(table.step(), from.step));
    table.ExpectRows(from.rows);
    RowRecords mine = rows;
    mine.KeepIf(static_cast<size_t>(from.row_floats), [&](size_t i) {
      return ShardOfId(rows.ids[i], shards) == plan.shard();
    });
    MoveClock(
        from,
        plan.declaration().table(t).expiry().age_case() == Expiry::kSeconds,
        table, &mine);
    Failpoint("ps.mid_restore");
    WEIR_RETURN_IF_ERROR(table.Import(mine));
    bytes[static_cast<size_t>(t)] = table.Report(/*hot_count=*/0).bytes;
    if (std::accumulate(bytes.begin(), bytes.end(), int64_t{0}) >
        plan.row_bytes_max()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          where, " has more rows for shard ", plan.shard(), " than fit into ",
          plan.row_bytes_max() / (1 << 20),
          " MiB, which is what this ps has beside all that it holds; start "
          "it anew if it holds an older shard, or add ps tasks"));
    }
    return absl::OkStatus();
  };
  return ReadTables(files, reader.directory(), reader.manifest(), take);
}

}  // namespace weir
