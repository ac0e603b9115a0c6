#include "proto/job/job_spec_checks.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "proto/job/field_rules.h"
#include "proto/job/learning_rate.h"

namespace weir {
namespace {

// The padding has PyTorch's bound, half of the window.
absl::Status CheckPool(const std::string& path, const Pool& pool) {
  if (pool.padding() > pool.size() / 2) {
    return InvalidField(path + ".padding", pool.padding(), " is not in [0, ",
                        pool.size() / 2, "], up to half of the size");
  }
  return absl::OkStatus();
}

absl::Status CheckLayers(const JobSpec& spec) {
  std::set<std::string> tables;
  for (const EmbeddingTable& table : spec.table()) {
    tables.insert(table.name());
  }
  for (int i = 0; i < spec.model().layer_size(); ++i) {
    const Layer& layer = spec.model().layer(i);
    const std::string path = absl::StrCat("model.layer[", i, "]");
    WEIR_RETURN_IF_ERROR(CheckPool(path + ".max_pool", layer.max_pool()));
    WEIR_RETURN_IF_ERROR(
        CheckPool(path + ".average_pool", layer.average_pool()));
    if (!layer.has_embedding_bag()) {
      continue;
    }
    if (!layer.input().empty()) {
      return InvalidField(path + ".input",
                          "an embedding_bag takes no input; name features");
    }
    const std::string& table = layer.embedding_bag().table();
    if (tables.count(table) == 0) {
      return InvalidField(path + ".embedding_bag.table", "'", table,
                          "' is no table of the job");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckColumn(const std::string& path, const CsvSource& csv,
                         const CsvColumn& column) {
  if (column.name().empty() && !column.has_index()) {
    return InvalidField(path,
                        "has no name and no index; one of them says which ",
                        "column it is");
  }
  // A name alone is looked up in the header.
  if (!column.has_index() && !csv.header()) {
    return InvalidField(
        path + ".name",
        "is for files with a header; set csv.header or the index");
  }
  if (column.has_index() && column.index() == csv.label_column()) {
    return InvalidField(path + ".index", column.index(),
                        " is csv.label_column");
  }
  const NumericColumn& numeric = column.numeric();
  for (int i = 1; i < numeric.boundary_size(); ++i) {
    if (numeric.boundary(i) <= numeric.boundary(i - 1)) {
      return InvalidField(
          absl::StrCat(path, ".numeric.boundary[", i, "]"), numeric.boundary(i),
          " is not above the boundary before, ", numeric.boundary(i - 1));
    }
  }
  // The spec may not be resolved yet, and then the separator is the default.
  const std::string separator = csv.separator().empty() ? "," : csv.separator();
  if (column.categorical().value_separator() == separator) {
    return InvalidField(path + ".categorical.value_separator", "'", separator,
                        "' is csv.separator, too");
  }
  return absl::OkStatus();
}

absl::Status CheckColumns(const std::string& path, const CsvSource& csv) {
  for (int i = 0; i < csv.column_size(); ++i) {
    WEIR_RETURN_IF_ERROR(CheckColumn(absl::StrCat(path, ".column[", i, "]"),
                                     csv, csv.column(i)));
  }
  return absl::OkStatus();
}

absl::Status CheckTables(const JobSpec& spec) {
  for (int i = 0; i < spec.table_size(); ++i) {
    const EmbeddingTable& table = spec.table(i);
    if ((table.cache_rows() > 0 || table.cache_contributions() > 0) &&
        spec.update().has_sync()) {
      return InvalidField(
          absl::StrCat("table[", i, "].cache_rows"),
          "is not for update.sync, whose steps read one version of ",
          "every row");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGroups(const JobSpec& spec) {
  for (int i = 0; i < spec.parameter_group_size(); ++i) {
    const ParameterGroup& group = spec.parameter_group(i);
    if (group.has_optimizer() &&
        group.optimizer().kind_case() != spec.optimizer().kind_case()) {
      return InvalidField(absl::StrCat("parameter_group[", i, "].optimizer"),
                          "is of another kind than the job's optimizer");
    }
  }
  return absl::OkStatus();
}

// What holds between fields of `compression`.
absl::Status CheckFraction(const Compression& compression) {
  const double fraction = compression.top_k_fraction();
  if (compression.push() == TOP_K && fraction == 0) {
    return InvalidField(
        "compression.top_k_fraction",
        "0 is not in (0, 0.25]; compression.push: TOP_K needs it");
  }
  if (compression.push() != TOP_K && fraction != 0) {
    return InvalidField("compression.top_k_fraction",
                        "is for compression.push: TOP_K");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateCompression(const Compression& compression) {
  WEIR_RETURN_IF_ERROR(CheckFields(compression, "compression"));
  return CheckFraction(compression);
}

absl::Status ValidateJobSpec(const JobSpec& spec) {
  WEIR_RETURN_IF_ERROR(CheckFields(spec, ""));
  WEIR_RETURN_IF_ERROR(CheckLayers(spec));
  WEIR_RETURN_IF_ERROR(
      CheckColumns("data.train.csv", spec.data().train().csv()));
  WEIR_RETURN_IF_ERROR(
      CheckColumns("evaluation.source.csv", spec.evaluation().source().csv()));
  WEIR_RETURN_IF_ERROR(CheckLearningRate(spec.schedule(), "schedule"));
  WEIR_RETURN_IF_ERROR(CheckGroups(spec));
  WEIR_RETURN_IF_ERROR(CheckTables(spec));
  WEIR_RETURN_IF_ERROR(CheckFraction(spec.compression()));
  // An unset mode will be resolved to async.
  if (spec.train().prefetch() &&
      spec.update().mode_case() != Update::MODE_NOT_SET &&
      !spec.update().has_async()) {
    return InvalidField(
        "train.prefetch", "is for update.async; ",
        "in the other modes it would break the bound on staleness");
  }
  if (!spec.evaluation().auc_group().empty() &&
      !spec.model().loss().has_sigmoid_cross_entropy()) {
    return InvalidField("evaluation.auc_group",
                        "AUC is of a model.loss of sigmoid_cross_entropy");
  }
  return absl::OkStatus();
}

}  // namespace weir
