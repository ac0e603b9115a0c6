#include "server/ps/table/table_options.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/status.h"
#include "common/job/initializer.h"
#include "common/job/row_age.h"
#include "server/ps/table/admission_filter.h"
#include "server/ps/table/row_index.h"
#include "server/ps/table/row_slab.h"

namespace weir {
namespace {

template <class Value>
absl::Status Check(bool good, const TableOptions& options, const char* field,
                   Value value, const std::string& range) {
  if (good) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "table \"", options.name, "\": ", field, " ", value, " is not ", range));
}

absl::Status CheckAdmission(const TableOptions& options) {
  const AdmissionPolicy& policy = options.admission;
  switch (policy.kind) {
    case AdmissionPolicy::Kind::kAlways:
      return absl::OkStatus();
    case AdmissionPolicy::Kind::kCount: {
      WEIR_RETURN_IF_ERROR(
          Check(policy.count >= 1 && policy.count <= AdmissionFilter::kMaxCount,
                options, "admission count", policy.count,
                absl::StrCat("in [1, ", AdmissionFilter::kMaxCount, "]")));
      const int64_t least = AdmissionFilter::kLineBytes * options.stripes;
      return Check(policy.filter_bytes >= least &&
                       policy.filter_bytes <= kAdmissionFilterBytesMax,
                   options, "admission filter_bytes", policy.filter_bytes,
                   absl::StrCat("in [", least, ", ", kAdmissionFilterBytesMax,
                                "], a line for each stripe"));
    }
    case AdmissionPolicy::Kind::kProbability:
      return Check(policy.probability >= 0 && policy.probability <= 1, options,
                   "admission probability", policy.probability, "in [0, 1]");
  }
  return Check(false, options, "admission kind", static_cast<int>(policy.kind),
               "known");
}

}  // namespace

absl::Status TableOptions::Validate() const {
  WEIR_RETURN_IF_ERROR(Check(dim >= 1 && dim <= kMaxDim, *this, "dim", dim,
                             absl::StrCat("in [1, ", kMaxDim, "]")));
  WEIR_RETURN_IF_ERROR(
      ValidateRowInit(init, absl::StrCat("table \"", name, "\": initializer")));
  WEIR_RETURN_IF_ERROR(
      Check(shard_count >= 1, *this, "shard_count", shard_count, "at least 1"));
  WEIR_RETURN_IF_ERROR(Check(shard >= 0 && shard < shard_count, *this, "shard",
                             shard, absl::StrCat("in [0, ", shard_count, ")")));
  WEIR_RETURN_IF_ERROR(
      Check(stripes >= 1 && stripes <= kMaxStripes &&
                std::has_single_bit(static_cast<uint32_t>(stripes)),
            *this, "stripes", stripes,
            absl::StrCat("a power of two in [1, ", kMaxStripes, "]")));
  WEIR_RETURN_IF_ERROR(CheckAdmission(*this));
  WEIR_RETURN_IF_ERROR(Check(eviction == EvictionOrder::kLeastRecent ||
                                 eviction == EvictionOrder::kLeastFrequent,
                             *this, "eviction", static_cast<int>(eviction),
                             "known"));
  WEIR_RETURN_IF_ERROR(Check(age_max <= kRowAgeMax, *this, "expiry", age_max,
                             absl::StrCat("at most ", kRowAgeMax)));
  // A budget must hold one segment and one chunk in every stripe, or a stripe
  // could not take a single row.
  if (memory_bytes_max == 0) {
    return absl::OkStatus();
  }
  WEIR_ASSIGN_OR_RETURN(
      const std::unique_ptr<RowOptimizer> built,
      CreateRowOptimizer(optimizer,
                         absl::StrCat("table \"", name, "\": optimizer")));
  // It allocates nothing; it only knows how small a chunk can be.
  const RowSlab smallest(arena, built->row_floats(dim), /*chunk_bytes=*/0);
  const int64_t least = filter_bytes() + stripes * (RowIndex::kSegmentBytes +
                                                    smallest.chunk_bytes());
  return Check(memory_bytes_max >= least, *this, "memory_bytes_max",
               memory_bytes_max,
               absl::StrCat("at least ", least, ", or 0 for no bound"));
}

int64_t TableOptions::filter_bytes() const {
  return admission.kind == AdmissionPolicy::Kind::kCount
             ? admission.filter_bytes
             : 0;
}

int64_t TableOptions::row_bytes() const {
  constexpr int64_t kIndexBytesMax = 15;  // row_index.h
  const auto built = CreateRowOptimizer(optimizer, "");
  WEIR_CHECK(built.ok());
  // It allocates nothing; it only knows how long a row is.
  const RowSlab slab(arena, (*built)->row_floats(dim), /*chunk_bytes=*/0);
  return static_cast<int64_t>(slab.row_bytes()) + kIndexBytesMax;
}

int64_t TableOptions::small_bytes() const {
  constexpr auto kStripeBytes =
      static_cast<int64_t>(RowSlab::kChunkBytes) + RowIndex::kSegmentBytes;
  const int64_t bytes = filter_bytes() + stripes * kStripeBytes;
  return memory_bytes_max == 0 ? bytes : std::min(bytes, memory_bytes_max);
}

}  // namespace weir
