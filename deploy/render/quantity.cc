#include "deploy/render/quantity.h"

#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"

namespace weir {
namespace {

// More than any machine has, and far from overflowing a sum.
constexpr double kMemoryBytesMax = 1e15;
constexpr double kCpusMax = 10000.0;

// Reads a number of digits and at most one point: no sign, no exponent.
bool ReadNumber(absl::string_view text, double* number) {
  for (const char c : text) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c)) && c != '.') {
      return false;
    }
  }
  return absl::SimpleAtod(text, number);
}

}  // namespace

absl::StatusOr<int64_t> ParseMemory(absl::string_view text) {
  absl::string_view digits = text;
  double unit = 1.0;
  const std::pair<absl::string_view, double> units[] = {
      {"Ki", 1024.0},       {"Mi", 1048576.0},
      {"Gi", 1073741824.0}, {"Ti", 1099511627776.0},
      {"k", 1e3},           {"M", 1e6},
      {"G", 1e9},           {"T", 1e12}};
  for (const auto& [name, bytes] : units) {
    if (absl::ConsumeSuffix(&digits, name)) {
      unit = bytes;
      break;
    }
  }
  double number = 0.0;
  if (!ReadNumber(digits, &number) || number <= 0.0 ||
      number * unit > kMemoryBytesMax) {
    return Invalid("'", text, "' is not an amount of memory, such as 4Gi");
  }
  const double mebibytes = std::ceil(number * unit / static_cast<double>(kMiB));
  return static_cast<int64_t>(mebibytes) * kMiB;
}

absl::StatusOr<int> ParseCpu(absl::string_view text) {
  absl::string_view digits = text;
  const double unit = absl::ConsumeSuffix(&digits, "m") ? 1.0 : 1000.0;
  double number = 0.0;
  if (!ReadNumber(digits, &number) || number <= 0.0 ||
      number * unit > kCpusMax * 1000.0) {
    return Invalid("'", text,
                   "' is not a number of processors, such as 2 or 500m");
  }
  return static_cast<int>(std::ceil(number * unit));
}

std::string FormatMemory(int64_t bytes) {
  if (bytes % kGiB == 0) {
    return absl::StrCat(bytes / kGiB, "Gi");
  }
  return absl::StrCat(bytes / kMiB, "Mi");
}

std::string FormatCpu(int milli_cpus) {
  if (milli_cpus % 1000 == 0) {
    return absl::StrCat(milli_cpus / 1000);
  }
  return absl::StrCat(milli_cpus, "m");
}

int64_t RoundUpMemory(double bytes) {
  const int64_t grain =
      bytes < static_cast<double>(kGiB) ? 16 * kMiB : 64 * kMiB;
  return static_cast<int64_t>(std::ceil(bytes / static_cast<double>(grain))) *
         grain;
}

std::string ReadableBytes(double bytes) {
  if (bytes >= static_cast<double>(kGiB)) {
    return absl::StrFormat("%.2f GiB", bytes / static_cast<double>(kGiB));
  }
  return absl::StrFormat("%.1f MiB", bytes / static_cast<double>(kMiB));
}

}  // namespace weir
