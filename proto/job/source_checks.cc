#include "proto/job/source_checks.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "proto/job/field_checks.h"

namespace weir {
namespace {

constexpr uint32_t kMaxFeatures = 1 << 24;
constexpr uint32_t kMaxGenerated = 1 << 16;  // features of a click log
constexpr uint64_t kMaxIds = uint64_t{1} << 40;
constexpr uint32_t kMaxBag = 1024;
constexpr double kMaxExponent = 10.0;
// Batches number samples in 32 bits.
constexpr uint64_t kMaxSamples = std::numeric_limits<uint32_t>::max();

// One character that does not end a line or quote a field.
absl::Status CheckSeparator(const std::string& path, const std::string& text) {
  if (text.size() == 1 && text != "\"" && text != "\r" && text != "\n") {
    return absl::OkStatus();
  }
  return Invalid(path, "'", text,
                 "' is not one character, neither a quote nor the end of a "
                 "line");
}

absl::Status CheckNumeric(const std::string& path,
                          const NumericColumn& numeric) {
  if (numeric.has_stddev()) {
    WEIR_RETURN_IF_ERROR(Positive(path + ".stddev", numeric.stddev()));
  }
  for (int i = 0; i < numeric.boundary_size(); ++i) {
    const double boundary = numeric.boundary(i);
    const std::string at = absl::StrCat(path, ".boundary[", i, "]");
    // The walk over every field of the spec leaves out lists of numbers.
    if (!std::isfinite(boundary)) {
      return Invalid(at, boundary, " is not finite");
    }
    if (i > 0 && boundary <= numeric.boundary(i - 1)) {
      return Invalid(at, boundary, " is not above the boundary before, ",
                     numeric.boundary(i - 1));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckColumn(const std::string& path, const CsvSource& csv,
                         const CsvColumn& column) {
  if (column.name().empty() && !column.has_index()) {
    return Invalid(path, "has no name and no index; one of them says which ",
                   "column it is");
  }
  // A name alone is looked up in the header.
  if (!column.has_index() && !csv.header()) {
    return Invalid(path + ".name",
                   "is for files with a header; set csv.header or the index");
  }
  if (column.has_index() && column.index() == csv.label_column()) {
    return Invalid(path + ".index", column.index(), " is csv.label_column");
  }
  if (column.has_numeric()) {
    return CheckNumeric(path + ".numeric", column.numeric());
  }
  const CategoricalColumn& categorical = column.categorical();
  if (categorical.value_separator().empty()) {
    return absl::OkStatus();
  }
  const std::string at = path + ".categorical.value_separator";
  WEIR_RETURN_IF_ERROR(CheckSeparator(at, categorical.value_separator()));
  // The spec may not be resolved yet, and then the separator is the default.
  std::string separator = ",";
  if (!csv.separator().empty()) {
    separator = csv.separator();
  }
  if (categorical.value_separator() == separator) {
    return Invalid(at, "'", separator, "' is csv.separator, too");
  }
  return absl::OkStatus();
}

absl::Status CheckCsv(const std::string& path, const CsvSource& csv) {
  WEIR_RETURN_IF_ERROR(Given(path + ".path", csv.path()));
  if (!csv.separator().empty()) {
    WEIR_RETURN_IF_ERROR(CheckSeparator(path + ".separator", csv.separator()));
  }
  for (int i = 0; i < csv.column_size(); ++i) {
    WEIR_RETURN_IF_ERROR(CheckColumn(absl::StrCat(path, ".column[", i, "]"),
                                     csv, csv.column(i)));
  }
  return absl::OkStatus();
}

absl::Status CheckClickLog(const std::string& path, const ClickLogSource& log) {
  WEIR_RETURN_IF_ERROR(
      InRange<uint64_t>(path + ".count", log.count(), 1, kMaxSamples));
  // 0 is the default of the next four.
  WEIR_RETURN_IF_ERROR(
      InRange<uint32_t>(path + ".numeric", log.numeric(), 0, kMaxGenerated));
  WEIR_RETURN_IF_ERROR(InRange<uint32_t>(path + ".categorical",
                                         log.categorical(), 0, kMaxGenerated));
  WEIR_RETURN_IF_ERROR(InRange<uint64_t>(path + ".ids_per_feature",
                                         log.ids_per_feature(), 0, kMaxIds));
  WEIR_RETURN_IF_ERROR(
      InRange<uint32_t>(path + ".bag_size", log.bag_size(), 0, kMaxBag));
  return InRange<double>(path + ".exponent", log.exponent(), 0, kMaxExponent);
}

}  // namespace

absl::Status CheckSource(const std::string& path, const Source& source) {
  switch (source.kind_case()) {
    case Source::kIdx:
      WEIR_RETURN_IF_ERROR(Given(path + ".idx.images", source.idx().images()));
      WEIR_RETURN_IF_ERROR(Given(path + ".idx.labels", source.idx().labels()));
      if (source.idx().has_stddev()) {
        return Positive(path + ".idx.stddev", double{source.idx().stddev()});
      }
      return absl::OkStatus();
    case Source::kLibsvm:
      WEIR_RETURN_IF_ERROR(
          Given(path + ".libsvm.path", source.libsvm().path()));
      return InRange<uint32_t>(path + ".libsvm.feature_count",
                               source.libsvm().feature_count(), 1,
                               kMaxFeatures);
    case Source::kCsv:
      return CheckCsv(path + ".csv", source.csv());
    case Source::kDigits:
      return Positive(path + ".digits.count", source.digits().count());
    case Source::kCriteo:
      return Given(path + ".criteo.path", source.criteo().path());
    case Source::kClickLog:
      return CheckClickLog(path + ".click_log", source.click_log());
    case Source::KIND_NOT_SET:
      break;
  }
  return Invalid(path, "is not set; choose one of idx, libsvm, csv, digits, ",
                 "criteo, click_log");
}

}  // namespace weir
