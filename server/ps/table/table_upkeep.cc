// Export, import, shrink and report of a table. Each goes from segment to
// segment and holds a lock for one of them.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/plant.h"
#include "common/base/status.h"
#include "common/job/row_age.h"
#include "common/job/row_hash.h"
#include "server/ps/table/table.h"

namespace weir {
namespace {

// For one call of LimitAges: some 10,000 rows.
constexpr int kLimitedSegments = 16;

bool Hotter(const HotRow& a, const HotRow& b) {
  if (a.updates != b.updates) {
    return a.updates > b.updates;
  }
  return a.id < b.id;
}

}  // namespace

void Table::SetClock(uint64_t now) {
  if (now > clock() || Planted("clock.wall_rows")) {
    clock_.store(now, std::memory_order_relaxed);
  }
}

void Table::LimitAges() {
  if (limit_.done) {
    // Half of the period: the other half is for going through the rows.
    if (clock() - limit_began_ < kAgeLimitPeriod / 2) {
      return;
    }
    limit_ = {};
    limit_began_ = clock();
  }
  std::vector<RowHeader*> rows;
  for (int k = 0; k < kLimitedSegments && !limit_.done; ++k) {
    TableStripe& part = stripe(StripeOf(limit_.hash));
    MutexLock lock(&part.mutex());
    TakeSegment(part, &limit_, &rows);
    const uint32_t now = RowClock();
    for (RowHeader* row : rows) {
      row->touched = TouchedAt(now, RowAge(now, row->touched));
    }
  }
}

void Table::TakeSegment(TableStripe& part, ExportCursor* cursor,
                        std::vector<RowHeader*>* rows) {
  const int s = StripeOf(cursor->hash);
  rows->clear();
  cursor->hash = part.RowsAt(cursor->hash, rows);
  if (cursor->hash == 0) {  // the stripe's last segment
    cursor->done = s + 1 == options_.stripes;
    cursor->hash = FirstHash(s + 1);
  }
}

bool Table::Export(ExportCursor* cursor, RowRecords* out) {
  *out = {};
  if (cursor->done) {
    return false;
  }
  const size_t floats = static_cast<size_t>(row_floats());
  TableStripe& part = stripe(StripeOf(cursor->hash));
  {
    MutexLock lock(&part.mutex());
    std::vector<RowHeader*> rows;
    TakeSegment(part, cursor, &rows);
    std::sort(rows.begin(), rows.end(),
              [](const RowHeader* a, const RowHeader* b) {
                return IndexHash(a->id) < IndexHash(b->id);
              });
    out->floats.reserve(rows.size() * floats);
    for (const RowHeader* row : rows) {
      // I5: an expired row counts as gone, so no checkpoint brings it back.
      if (part.IsExpired(*row, options_.age_max, RowClock())) {
        continue;
      }
      out->ids.push_back(row->id);
      out->touched.push_back(row->touched);
      out->updates.push_back(row->updates);
      out->floats.insert(out->floats.end(), row->values(),
                         row->values() + floats);
    }
  }
  return true;
}

void Table::ExpectRows(int64_t rows) {
  for (int s = 0; s < options_.stripes; ++s) {
    MutexLock lock(&stripe(s).mutex());
    stripe(s).Expect(rows / options_.stripes);
  }
}

absl::Status Table::Import(const RowRecords& rows) {
  const size_t floats = static_cast<size_t>(row_floats());
  const size_t count = rows.ids.size();
  if (rows.touched.size() != count || rows.updates.size() != count ||
      rows.floats.size() != count * floats) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table \"", options_.name, "\": ", count, " ids, ", rows.touched.size(),
        " clocks, ", rows.updates.size(), " counts and ", rows.floats.size(),
        " floats; a row has ", floats));
  }
  WEIR_RETURN_IF_ERROR(CheckShard(rows.ids));
  for (size_t i = 0; i < count; ++i) {
    const uint64_t hash = IndexHash(rows.ids[i]);
    TableStripe& part = stripe(StripeOf(hash));
    MutexLock lock(&part.mutex());
    RowHeader* const row = part.ForceRow(rows.ids[i], hash, RowClock());
    if (row == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "table \"", options_.name, "\": no room for row ", rows.ids[i],
          ": memory_bytes_max ", options_.memory_bytes_max,
          " is too little, or ids crowd one place of the index"));
    }
    row->touched = rows.touched[i];
    row->updates = rows.updates[i];
    std::copy_n(&rows.floats[i * floats], floats, row->values());
  }
  return absl::OkStatus();
}

void Table::VisitSegments(
    int s,
    const std::function<void(TableStripe*, std::vector<RowHeader*>*)>& visit) {
  TableStripe& part = stripe(s);
  uint64_t hash = FirstHash(s);
  std::vector<RowHeader*> rows;
  do {
    // I4: the lock is given up between segments.
    MutexLock lock(&part.mutex());
    rows.clear();
    hash = part.RowsAt(hash, &rows);
    visit(&part, &rows);
  } while (hash != 0);
}

template <class Drop>
int64_t Table::DropIf(int s, int64_t StripeCounts::*counter, const Drop& drop) {
  int64_t dropped = 0;
  VisitSegments(s, [&](TableStripe* part, std::vector<RowHeader*>* rows)
                       ABSL_NO_THREAD_SAFETY_ANALYSIS {
                         for (const RowHeader* row : *rows) {
                           if (drop(*part, *row)) {
                             part->Drop(row->id, counter);
                             ++dropped;
                           }
                         }
                       });
  return dropped;
}

int64_t Table::DropByAge(int s, uint32_t age_max,
                         int64_t StripeCounts::*counter) {
  return DropIf(s, counter,
                [age_max, now = RowClock()](const TableStripe& part,
                                            const RowHeader& row) {
                  return part.IsExpired(row, age_max, now);
                });
}

int64_t Table::DropToCount(int s, int64_t rows_max) {
  using Key = std::pair<uint64_t, uint64_t>;
  const uint32_t now = RowClock();
  std::vector<Key> keys;
  VisitSegments(s, [&](TableStripe* part, std::vector<RowHeader*>* rows) {
    for (const RowHeader* row : *rows) {
      keys.push_back(part->EvictionKey(*row, now));
    }
  });
  const int64_t excess = static_cast<int64_t>(keys.size()) - rows_max;
  if (excess <= 0) {
    return 0;
  }
  // The last key that goes. A row that was touched after the first walk has a
  // larger one now and stays.
  std::nth_element(keys.begin(), keys.begin() + (excess - 1), keys.end());
  const Key last = keys[static_cast<size_t>(excess - 1)];
  return DropIf(s, &StripeCounts::shrunk,
                [last, now](const TableStripe& part, const RowHeader& row) {
                  return part.EvictionKey(row, now) <= last;
                });
}

ShrinkReceipt Table::Shrink(const ShrinkOptions& options) {
  // Counted as they go: the job may make rows and ask for memory meanwhile.
  ShrinkReceipt receipt;
  for (int s = 0; s < options_.stripes; ++s) {
    // What has expired is gone in every checkpoint as well, and counts apart
    // from what only this call drops.
    if (options_.age_max != 0) {
      receipt.rows += DropByAge(s, options_.age_max, &StripeCounts::expired);
    }
    if (options.age_max != 0) {
      receipt.rows += DropByAge(s, options.age_max, &StripeCounts::shrunk);
    }
    if (options.rows_max >= 0) {
      // Shares that add up to rows_max exactly. The products are of the
      // remainder alone, so that no rows_max is too large for them.
      const int64_t stripes = options_.stripes;
      const int64_t rest = options.rows_max % stripes;
      receipt.rows +=
          DropToCount(s, options.rows_max / stripes + rest * (s + 1) / stripes -
                             rest * s / stripes);
    }
    TableStripe& part = stripe(s);
    for (bool more = true; more;) {
      MutexLock lock(&part.mutex());
      const int64_t before = part.bytes();
      more = part.ReleaseChunk();
      receipt.bytes += before - part.bytes();
    }
  }
  return receipt;
}

TableFigures Table::Report(int hot_count) {
  TableFigures report;
  for (int s = 0; s < options_.stripes; ++s) {
    {
      TableStripe& part = stripe(s);
      MutexLock lock(&part.mutex());
      report.rows += part.rows();
      report.bytes += part.bytes();
      const StripeCounts& counts = part.counts();
      report.counts.created += counts.created;
      report.counts.evicted += counts.evicted;
      report.counts.expired += counts.expired;
      report.counts.not_admitted += counts.not_admitted;
      report.counts.shrunk += counts.shrunk;
    }
    if (hot_count <= 0) {
      continue;
    }
    // A heap whose top is the coldest of the hot.
    std::vector<HotRow>& hot = report.hot;
    VisitSegments(s, [&](TableStripe*, std::vector<RowHeader*>* rows) {
      for (const RowHeader* row : *rows) {
        const HotRow one = {row->id, row->updates};
        if (hot.size() == static_cast<size_t>(hot_count)) {
          if (!Hotter(one, hot.front())) {
            continue;
          }
          std::pop_heap(hot.begin(), hot.end(), Hotter);
          hot.pop_back();
        }
        hot.push_back(one);
        std::push_heap(hot.begin(), hot.end(), Hotter);
      }
    });
  }
  std::sort(report.hot.begin(), report.hot.end(), Hotter);
  report.payload_bytes =
      report.rows * row_floats() * static_cast<int64_t>(sizeof(float));
  return report;
}

}  // namespace weir
