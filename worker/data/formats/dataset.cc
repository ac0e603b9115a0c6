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
// Makes *path, which is relative to `data_dir`, the whole path of a file that
// exists.
absl::Status Resolve(const std::string& data_dir, const std::string& field_path,
                     std::string* path) {
  if (path->empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(field_path, ": missing: name a file"));
  }
  std::string advice;
  if ((*path)[0] != '/') {  // an absolute path does not depend on the flag
    advice = ": check --data_dir";
  }
  if (!data_dir.empty()) {
    *path = JoinPath(data_dir, *path);
  }
  WEIR_ASSIGN_OR_RETURN(const bool exists, Files::Real()->Exists(*path));
  if (!exists) {
    return absl::NotFoundError(
        absl::StrCat(field_path, ": there is no file ", *path, advice));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Dataset>> CreateCriteo(
    const CriteoSource& source, std::string field_path) {
  CriteoDataset::Options options;
  options.path = source.path();
  options.hash_buckets = source.hash_buckets();
  options.max_bad_lines = source.max_bad_lines();
  options.max_rows = source.max_rows();
  options.field_path = std::move(field_path);
  return CriteoDataset::Create(options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> CreateDataset(
    const Source& given, const std::string& data_dir, uint64_t job_seed,
    const std::string& field_path) {
  Source source = given;  // gets the whole paths of the files
  switch (source.kind_case()) {
    case Source::kIdx: {
      const std::string path = field_path + ".idx";
      WEIR_RETURN_IF_ERROR(Resolve(data_dir, path + ".images",
                                   source.mutable_idx()->mutable_images()));
      WEIR_RETURN_IF_ERROR(Resolve(data_dir, path + ".labels",
                                   source.mutable_idx()->mutable_labels()));
      return IdxDataset::Create(source.idx(), path);
    }
    case Source::kLibsvm: {
      const std::string path = field_path + ".libsvm";
      WEIR_RETURN_IF_ERROR(Resolve(data_dir, path + ".path",
                                   source.mutable_libsvm()->mutable_path()));
      return LibsvmDataset::Create(source.libsvm(), path);
    }
    case Source::kCsv: {
      const std::string path = field_path + ".csv";
      WEIR_RETURN_IF_ERROR(Resolve(data_dir, path + ".path",
                                   source.mutable_csv()->mutable_path()));
      return CsvDataset::Create(source.csv(), path);
    }
    case Source::kDigits:
      return DigitsDataset::Create(source.digits().count(),
                                   source.digits().stream(), job_seed,
                                   field_path + ".digits");
    case Source::kCriteo: {
      const std::string path = field_path + ".criteo";
      WEIR_RETURN_IF_ERROR(Resolve(data_dir, path + ".path",
                                   source.mutable_criteo()->mutable_path()));
      return CreateCriteo(source.criteo(), path);
    }
    case Source::kClickLog:
      return ClickLogDataset::Create({.source = source.click_log(),
                                      .seed = job_seed,
                                      .field_path = field_path + ".click_log"});
    case Source::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(field_path,
                   ": no source: set one of idx, libsvm, csv, digits, criteo, "
                   "click_log"));
}

}  // namespace weir
