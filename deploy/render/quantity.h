// Amounts of memory and of processors, as Kubernetes writes them.
//
// Place: options are read with it, and each target writes the numbers in its
// own form.
//
// Threads: safe.
// Errors: INVALID_ARGUMENT  "'4 GB' is not an amount of memory, such as 4Gi".
#ifndef DEPLOY_RENDER_QUANTITY_H_
#define DEPLOY_RENDER_QUANTITY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weir {

inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr int64_t kGiB = int64_t{1} << 30;

// Reads "4Gi", "512Mi", "2G" or a number of bytes.
absl::StatusOr<int64_t> ParseMemory(absl::string_view text);
// Reads "2", "0.5" or "500m". Returns thousandths of a processor.
absl::StatusOr<int> ParseCpu(absl::string_view text);

// "4Gi", or else whole MiB: "80Mi". REQUIRES: a multiple of 1 MiB.
std::string FormatMemory(int64_t bytes);
// "2" or "500m".
std::string FormatCpu(int milli_cpus);

// Rounds up to a multiple of 16 MiB, from 1 GiB on of 64 MiB: an estimate has
// no more digits than that.
int64_t RoundUpMemory(double bytes);

// For people: "3.5 MiB".
std::string ReadableBytes(double bytes);

}  // namespace weir

#endif  // DEPLOY_RENDER_QUANTITY_H_
