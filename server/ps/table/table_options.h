// The options of a table: its rows, its optimizer, and which rows it keeps.
#ifndef SERVER_PS_TABLE_TABLE_OPTIONS_H_
#define SERVER_PS_TABLE_TABLE_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/job/layout.h"
#include "server/ps/memory/arena.h"
#include "server/ps/table/row_optimizer.h"

namespace weir {

// Which ids get a row. An id without a row reads its initial values, and
// gradients for it are dropped.
struct AdmissionPolicy {
  enum class Kind : int {
    kAlways = 0,       // at the first touch
    kCount = 1,        // at touch `count`; see admission_filter.h
    kProbability = 2,  // at each touch with `probability`
  };
  Kind kind = Kind::kAlways;
  uint32_t count = 1;  // at most AdmissionFilter::kMaxCount
  double probability = 1;
  // Memory to count ids without a row. Every filter_bytes / 8 touches of such
  // ids all counts are halved.
  int64_t filter_bytes = int64_t{16} << 20;
};

// Which rows go when the memory budget is used up.
enum class EvictionOrder : int {
  kLeastRecent = 0,    // smallest clock of the last touch
  kLeastFrequent = 1,  // fewest updates, then least recent
};

struct TableOptions {
  static constexpr int kMaxDim = 1 << 16;
  static constexpr int kMaxStripes = 1024;

  std::string name;  // for messages
  int dim = 0;
  TableOptimizer optimizer;  // not set: sgd
  InitSpec init;
  // The seed of initial values; it differs from table to table of a job.
  uint64_t seed = 0;
  // The table holds only ids with ShardOfId(id, shard_count) == shard.
  int shard = 0;
  int shard_count = 1;
  // A power of two. With more stripes threads meet less often, but a batch has
  // fewer ids in each, and an empty table takes more memory (40 KiB for each
  // stripe in use).
  int stripes = 64;
  AdmissionPolicy admission;
  // A row that was not touched for longer than this, in units of the table's
  // clock (steps or seconds, as the caller sets it), counts as gone. 0: never.
  // At most kRowAgeMax.
  uint32_t age_max = 0;
  // The bound for rows, index and filter; each stripe gets the same share of
  // it. 0: no bound.
  int64_t memory_bytes_max = 0;
  EvictionOrder eviction = EvictionOrder::kLeastRecent;
  Arena* arena = Arena::Heap();  // borrowed

  // Errors: INVALID_ARGUMENT  names table, field, value and range.
  absl::Status Validate() const;

  // Of the filter that admission needs; 0: it needs none.
  int64_t filter_bytes() const;
  // What a table with one row in every stripe takes, about.
  // REQUIRES: Validate() is OK.
  int64_t small_bytes() const;
  // What one more row takes, with its share of the index, at most.
  // REQUIRES: Validate() is OK.
  int64_t row_bytes() const;
};

}  // namespace weir

#endif  // SERVER_PS_TABLE_TABLE_OPTIONS_H_
