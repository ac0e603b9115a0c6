#include "worker/data/formats/dataset.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "common/objects/any_store.h"
#include "google/protobuf/message.h"
#include "proto/job/field_rules.h"
#include "proto/job_spec.pb.h"
#include "worker/data/formats/click_log_dataset.h"
#include "worker/data/formats/criteo_dataset.h"
#include "worker/data/formats/csv_dataset.h"
#include "worker/data/formats/digits_dataset.h"
#include "worker/data/formats/idx_dataset.h"
#include "worker/data/formats/libsvm_dataset.h"

namespace weir {
namespace {

// Makes the paths of files in `kind`, the member of a Source, whole: they are
// relative to `data_dir`. A missing file is said here, with its field, before
// a reader opens it.
absl::Status ResolveFiles(const std::string& data_dir,
                          const std::string& field_path,
                          google::protobuf::Message* kind) {
  const google::protobuf::Reflection* const reflection = kind->GetReflection();
  for (const char* name : {"images", "labels", "path"}) {
    const auto* const field = kind->GetDescriptor()->FindFieldByName(name);
    if (field == nullptr) {
      continue;
    }
    std::string path = reflection->GetString(*kind, field);
    std::string advice;
    if (path[0] != '/' && !IsObjectUrl(path)) {
      advice = ": check --data_dir";  // on which others do not depend
      path = data_dir.empty() ? path : JoinPath(data_dir, path);
    }
    const absl::StatusOr<bool> exists = AnyStore()->Exists(path);
    WEIR_RETURN_IF_ERROR(
        Annotate(exists.status(), absl::StrCat(field_path, ".", name)));
    if (!*exists) {
      return absl::NotFoundError(absl::StrCat(
          field_path, ".", name, ": there is no file ", path, advice));
    }
    reflection->SetString(kind, field, path);
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
  Source source = given;  // gets defaults and the whole paths of the files
  FillDefaults(&source);
  WEIR_RETURN_IF_ERROR(CheckFields(source, field_path));
  const google::protobuf::Reflection* const reflection = source.GetReflection();
  const auto* const kind = reflection->GetOneofFieldDescriptor(
      source, source.GetDescriptor()->FindOneofByName("kind"));
  const std::string path = absl::StrCat(field_path, ".", kind->name());
  WEIR_RETURN_IF_ERROR(
      ResolveFiles(data_dir, path, reflection->MutableMessage(&source, kind)));
  switch (source.kind_case()) {
    case Source::kIdx:
      return IdxDataset::Create(source.idx(), path);
    case Source::kLibsvm:
      return LibsvmDataset::Create(source.libsvm(), path);
    case Source::kCsv:
      return CsvDataset::Create(source.csv(), path);
    case Source::kDigits:
      return std::make_unique<DigitsDataset>(
          source.digits().count(), source.digits().stream(), job_seed);
    case Source::kCriteo:
      return CreateCriteo(source.criteo(), path);
    case Source::kClickLog:
      return std::make_unique<ClickLogDataset>(source.click_log(), job_seed);
    case Source::KIND_NOT_SET:  // CheckFields refused it
      break;
  }
  return absl::InternalError(field_path + ": no kind is set");
}

}  // namespace weir
