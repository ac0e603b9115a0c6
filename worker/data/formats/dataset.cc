#include "worker/data/formats/dataset.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "proto/job_spec.pb.h"
#include "worker/data/formats/click_log_dataset.h"
#include "worker/data/formats/criteo_dataset.h"
#include "worker/data/formats/csv_dataset.h"
#include "worker/data/formats/digits_dataset.h"
#include "worker/data/formats/idx_dataset.h"
#include "worker/data/formats/libsvm_dataset.h"

namespace weir {
namespace {

// Finds a file that the JobSpec names. A missing one is said here, with its
// field, before a reader opens it.
absl::StatusOr<std::string> Resolve(const std::string& data_dir,
                                    const std::string& name,
                                    const std::string& field_path) {
  if (name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(field_path, ": missing: name a file"));
  }
  std::string path = data_dir.empty() ? name : JoinPath(data_dir, name);
  WEIR_ASSIGN_OR_RETURN(const bool exists, Files::Real()->Exists(path));
  if (!exists) {
    std::string advice;
    if (name[0] != '/') {  // an absolute path does not depend on the flag
      advice = ": check --data_dir";
    }
    return absl::NotFoundError(
        absl::StrCat(field_path, ": there is no file ", path, advice));
  }
  return path;
}

absl::StatusOr<std::unique_ptr<Dataset>> CreateIdx(const IdxSource& source,
                                                   const std::string& data_dir,
                                                   std::string field_path) {
  IdxDataset::Options options;
  WEIR_ASSIGN_OR_RETURN(options.images, Resolve(data_dir, source.images(),
                                                field_path + ".images"));
  WEIR_ASSIGN_OR_RETURN(options.labels, Resolve(data_dir, source.labels(),
                                                field_path + ".labels"));
  options.mean = source.mean();
  if (source.has_stddev()) {
    options.stddev = source.stddev();
  }
  options.field_path = std::move(field_path);
  return IdxDataset::Create(options);
}

absl::StatusOr<std::unique_ptr<Dataset>> CreateLibsvm(
    const LibsvmSource& source, const std::string& data_dir,
    std::string field_path) {
  LibsvmDataset::Options options;
  WEIR_ASSIGN_OR_RETURN(options.path,
                        Resolve(data_dir, source.path(), field_path + ".path"));
  options.feature_count = source.feature_count();
  switch (source.base()) {
    case LibsvmSource::ZERO:
      options.base = LibsvmBase::kZero;
      break;
    case LibsvmSource::ONE:
      options.base = LibsvmBase::kOne;
      break;
    default:
      options.base = LibsvmBase::kAuto;
  }
  options.field_path = std::move(field_path);
  return LibsvmDataset::Create(options);
}

CsvColumnOptions ColumnOptions(const CsvColumn& column) {
  CsvColumnOptions options;
  options.name = column.name();
  if (column.has_index()) {
    options.index = column.index();
  }
  const NumericColumn& numeric = column.numeric();
  options.log = numeric.log();
  options.mean = numeric.mean();
  if (numeric.has_stddev()) {
    options.stddev = numeric.stddev();
  }
  options.boundaries.assign(numeric.boundary().begin(),
                            numeric.boundary().end());
  const CategoricalColumn& categorical = column.categorical();
  options.categorical = column.has_categorical();
  if (!categorical.value_separator().empty()) {
    options.value_separator = categorical.value_separator()[0];
  }
  options.integer = categorical.integer();
  options.hash_buckets = categorical.hash_buckets();
  return options;
}

absl::StatusOr<std::unique_ptr<Dataset>> CreateCsv(const CsvSource& source,
                                                   const std::string& data_dir,
                                                   std::string field_path) {
  CsvDataset::Options options;
  WEIR_ASSIGN_OR_RETURN(options.path,
                        Resolve(data_dir, source.path(), field_path + ".path"));
  options.header = source.header();
  options.label_column = source.label_column();
  for (const CsvColumn& column : source.column()) {
    options.columns.push_back(ColumnOptions(column));
  }
  // The job's checks have seen that it is one byte.
  if (!source.separator().empty()) {
    options.separator = source.separator()[0];
  }
  options.max_bad_lines = source.max_bad_lines();
  options.field_path = std::move(field_path);
  return CsvDataset::Create(options);
}

absl::StatusOr<std::unique_ptr<Dataset>> CreateCriteo(
    const CriteoSource& source, const std::string& data_dir,
    std::string field_path) {
  CriteoDataset::Options options;
  WEIR_ASSIGN_OR_RETURN(options.path,
                        Resolve(data_dir, source.path(), field_path + ".path"));
  options.hash_buckets = source.hash_buckets();
  options.max_bad_lines = source.max_bad_lines();
  options.max_rows = source.max_rows();
  options.field_path = std::move(field_path);
  return CriteoDataset::Create(options);
}

absl::StatusOr<std::unique_ptr<Dataset>> CreateClickLog(
    const ClickLogSource& source, uint64_t job_seed, std::string field_path) {
  ClickLogDataset::Options options;
  options.count = source.count();
  options.stream = source.stream();
  options.seed = job_seed;
  options.numeric = source.numeric();
  options.categorical = source.categorical();
  options.ids_per_feature = source.ids_per_feature();
  options.exponent = source.exponent();
  options.bag_size = source.bag_size();
  options.field_path = std::move(field_path);
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<ClickLogDataset> dataset,
                        ClickLogDataset::Create(options));
  return dataset;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> CreateDataset(
    const Source& source, const std::string& data_dir, uint64_t job_seed,
    const std::string& field_path) {
  switch (source.kind_case()) {
    case Source::kIdx:
      return CreateIdx(source.idx(), data_dir, field_path + ".idx");
    case Source::kLibsvm:
      return CreateLibsvm(source.libsvm(), data_dir, field_path + ".libsvm");
    case Source::kCsv:
      return CreateCsv(source.csv(), data_dir, field_path + ".csv");
    case Source::kDigits:
      return DigitsDataset::Create(source.digits().count(),
                                   source.digits().stream(), job_seed,
                                   field_path + ".digits");
    case Source::kCriteo:
      return CreateCriteo(source.criteo(), data_dir, field_path + ".criteo");
    case Source::kClickLog:
      return CreateClickLog(source.click_log(), job_seed,
                            field_path + ".click_log");
    case Source::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(field_path,
                   ": no source: set one of idx, libsvm, csv, digits, criteo, "
                   "click_log"));
}

}  // namespace weir
