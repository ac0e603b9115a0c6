#include "deploy/render/data_shape.h"

#include <algorithm>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "google/protobuf/message.h"
#include "worker/data/formats/criteo_dataset.h"
#include "worker/data/formats/dataset.h"

namespace weir {
namespace {

// How far packed data of the usual kinds unpacks.
constexpr double kUnpacksTo = 4.0;

// Of the digits that digits_dataset.h makes.
constexpr int64_t kDigitSize = 28;

// What the kinds of sources say of ids.
void CountIds(const Source& source, DataShape* shape) {
  switch (source.kind_case()) {
    case Source::kClickLog:
      shape->ids.assign(
          source.click_log().categorical(),
          static_cast<double>(source.click_log().ids_per_feature()));
      shape->bag_size = source.click_log().bag_size();
      break;
    case Source::kCriteo:
      shape->ids.assign(CriteoDataset::kCategories,
                        static_cast<double>(source.criteo().hash_buckets()));
      shape->ids_are_shared = true;
      break;
    case Source::kCsv:
      shape->ids_are_shared = true;
      for (const CsvColumn& column : source.csv().column()) {
        if (column.has_categorical()) {
          shape->ids.push_back(
              static_cast<double>(column.categorical().hash_buckets()));
        } else if (column.numeric().boundary_size() > 0) {
          shape->ids.push_back(column.numeric().boundary_size() + 1);
        }
      }
      break;
    default:
      break;
  }
}

// The features of a CSV file whose columns the job file lists.
void ReadColumns(const CsvSource& csv, DataShape* shape) {
  int64_t numbers = 0;
  for (const CsvColumn& column : csv.column()) {
    if (!column.has_categorical() && column.numeric().boundary_size() == 0) {
      ++numbers;
    } else if (!column.name().empty()) {
      shape->id_names.push_back(column.name());
    } else if (!csv.header()) {
      shape->id_names.push_back(absl::StrCat("column", column.index()));
    } else {
      shape->unknown = "the names of its features are in the file's header";
    }
  }
  shape->features = {numbers};
}

void AddNames(int64_t count, DataShape* shape) {
  for (int64_t i = 1; i <= count; ++i) {
    shape->id_names.push_back(absl::StrCat("C", i));
  }
}

void ReadJobFile(const Source& source, DataShape* shape) {
  switch (source.kind_case()) {
    case Source::kDigits:
      shape->features = {1, kDigitSize, kDigitSize};
      break;
    case Source::kClickLog:
      shape->features = {static_cast<int64_t>(source.click_log().numeric())};
      AddNames(source.click_log().categorical(), shape);
      break;
    case Source::kLibsvm:
      shape->features = {static_cast<int64_t>(source.libsvm().feature_count())};
      break;
    case Source::kCriteo:
      shape->features = {CriteoDataset::kIntegers};
      AddNames(CriteoDataset::kCategories, shape);
      break;
    case Source::kCsv:
      ReadColumns(source.csv(), shape);
      if (source.csv().column().empty()) {
        shape->unknown = "the number of its columns is in the file";
      }
      break;
    default:
      shape->unknown = "the size of its images is in the file";
      break;
  }
}

// The size of the files that the source names, unpacked.
absl::StatusOr<double> BytesOfFiles(const Source& source,
                                    const std::string& folder) {
  const auto* const reflection = source.GetReflection();
  const auto* const kind = reflection->GetOneofFieldDescriptor(
      source, source.GetDescriptor()->FindOneofByName("kind"));
  const google::protobuf::Message& message =
      reflection->GetMessage(source, kind);
  double bytes = 0.0;
  for (const char* name : {"images", "labels", "path"}) {
    const auto* const field = message.GetDescriptor()->FindFieldByName(name);
    if (field == nullptr) {
      continue;
    }
    const std::string path =
        JoinPath(folder, message.GetReflection()->GetString(message, field));
    WEIR_ASSIGN_OR_RETURN(const FileInfo info, Files::Real()->Stat(path));
    const bool packed =
        absl::EndsWith(path, ".gz") || absl::EndsWith(path, ".zst");
    bytes += static_cast<double>(info.bytes) * (packed ? kUnpacksTo : 1.0);
  }
  return bytes;
}

}  // namespace

bool ReadsFiles(const Source& source) {
  return source.kind_case() != Source::KIND_NOT_SET && !source.has_digits() &&
         !source.has_click_log();
}

absl::StatusOr<DataShape> ShapeOfData(const Source& source,
                                      const std::string& local_data,
                                      uint64_t seed,
                                      const std::string& field_path) {
  DataShape shape;
  CountIds(source, &shape);
  if (!ReadsFiles(source) || local_data.empty()) {
    ReadJobFile(source, &shape);
    if (ReadsFiles(source)) {
      shape.bytes_unknown = "its files are not here";
    }
    return shape;
  }
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> data,
                        CreateDataset(source, local_data, seed, field_path));
  shape.features = data->feature_shape();
  shape.id_names = data->sparse_features();
  WEIR_ASSIGN_OR_RETURN(shape.bytes, BytesOfFiles(source, local_data));
  return shape;
}

}  // namespace weir
