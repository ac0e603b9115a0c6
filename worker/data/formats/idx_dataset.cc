#include "worker/data/formats/idx_dataset.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/data/input/input_file.h"

namespace weir {
namespace {

enum IdxType : uint8_t { kBytes = 0x08, kFloats = 0x0D };

struct IdxFile {
  std::string bytes;
  bool is_floats = false;
  std::vector<int64_t> shape;
  size_t payload = 0;  // offset of the first value
  int64_t elements = 0;
};

uint32_t LoadBigEndian(const std::string& bytes, size_t offset) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) {
    value = (value << 8) | static_cast<uint8_t>(bytes[offset + i]);
  }
  return value;
}

float LoadFloat(const IdxFile& file, int64_t element) {
  return std::bit_cast<float>(
      LoadBigEndian(file.bytes, file.payload + element * 4));
}

// REQUIRES: file->bytes is set.
absl::Status ParseIdx(const std::string& path, IdxFile* file) {
  const std::string& bytes = file->bytes;
  if (bytes.size() < 4) {
    return absl::DataLossError(absl::StrCat(path, ": truncated: ", bytes.size(),
                                            " bytes are no IDX header"));
  }
  const auto type = static_cast<uint8_t>(bytes[2]);
  const auto dimensions = static_cast<uint8_t>(bytes[3]);
  if (bytes[0] != 0 || bytes[1] != 0 || dimensions < 1 || dimensions > 4 ||
      (type != kBytes && type != kFloats)) {
    return Invalid(
        path, ": not an IDX file of bytes or floats: it begins with ",
        absl::BytesToHexString(absl::string_view(bytes).substr(0, 4)),
        ", images begin with 00000803, labels with 00000801");
  }
  file->is_floats = type == kFloats;
  file->payload = size_t{4} + size_t{4} * dimensions;
  if (bytes.size() < file->payload) {
    return absl::DataLossError(absl::StrCat(
        path, ": truncated inside the header, at ", bytes.size(), " bytes"));
  }
  // Products beyond this are no real file; below it nothing overflows.
  constexpr int64_t kElementsMax = int64_t{1} << 48;
  file->elements = 1;
  for (int d = 0; d < dimensions; ++d) {
    const int64_t dimension = LoadBigEndian(bytes, 4 + size_t{4} * d);
    file->shape.push_back(dimension);
    const char* wrong = nullptr;
    if (dimension == 0) {
      wrong = ": no values";
    } else if (file->elements > kElementsMax / dimension) {
      wrong = ": too large";
    }
    if (wrong != nullptr) {
      return Invalid(path, ": dimension ", d, " of the header is ", dimension,
                     wrong);
    }
    file->elements *= dimension;
  }
  int64_t expected = static_cast<int64_t>(file->payload) + file->elements;
  if (file->is_floats) {
    expected += 3 * file->elements;  // four bytes each
  }
  // A longer file is refused, too: if the header's shape is not that of the
  // values, samples would begin in wrong places.
  const auto actual = static_cast<int64_t>(bytes.size());
  if (actual != expected) {
    const char* const what =
        actual < expected ? ": truncated: " : ": too long: ";
    return absl::DataLossError(absl::StrCat(
        path, what, actual, " bytes, but its header says ", expected));
  }
  // Every value of a data set is finite (dataset.h); bytes are by nature.
  if (file->is_floats) {
    for (int64_t i = 0; i < file->elements; ++i) {
      if (!std::isfinite(LoadFloat(*file, i))) {
        return Invalid(path, ": value ", i % (file->elements / file->shape[0]),
                       " of sample ", i / (file->elements / file->shape[0]),
                       " is NaN or infinite");
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<IdxFile> ReadIdx(const std::string& path) {
  IdxFile file;
  WEIR_ASSIGN_OR_RETURN(file.bytes, ReadInputFile(path));
  WEIR_RETURN_IF_ERROR(ParseIdx(path, &file));
  return file;
}

absl::StatusOr<IdxFile> ReadImages(const IdxSource& source) {
  WEIR_ASSIGN_OR_RETURN(IdxFile images, ReadIdx(source.images()));
  if (images.shape.size() < 2) {
    return Invalid(source.images(),
                   ": has one dimension, so it holds labels, not images");
  }
  return images;
}

absl::StatusOr<IdxFile> ReadLabels(const IdxSource& source,
                                   int64_t image_count) {
  WEIR_ASSIGN_OR_RETURN(IdxFile labels, ReadIdx(source.labels()));
  if (labels.shape.size() != 1) {
    return Invalid(source.labels(), ": has ", labels.shape.size(),
                   " dimensions, labels have one");
  }
  if (labels.elements != image_count) {
    return Invalid(source.labels(), ": has ", labels.elements, " labels, but ",
                   source.images(), " has ", image_count, " images");
  }
  return labels;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> IdxDataset::Create(
    const IdxSource& source, const std::string& field_path) {
  absl::StatusOr<IdxFile> images = ReadImages(source);
  if (!images.ok()) {
    return Annotate(images.status(), field_path + ".images");
  }
  const absl::StatusOr<IdxFile> labels = ReadLabels(source, images->shape[0]);
  if (!labels.ok()) {
    return Annotate(labels.status(), field_path + ".labels");
  }

  auto dataset = std::unique_ptr<IdxDataset>(new IdxDataset);
  std::vector<int64_t> shape(images->shape.begin() + 1, images->shape.end());
  if (shape.size() < 3) {  // one channel
    shape.insert(shape.begin(), 1);
  }
  dataset->SetShape(images->shape[0], std::move(shape));
  dataset->labels_.resize(labels->elements);
  for (int64_t i = 0; i < labels->elements; ++i) {
    if (labels->is_floats) {
      dataset->labels_[i] = LoadFloat(*labels, i);
    } else {
      dataset->labels_[i] =
          static_cast<uint8_t>(labels->bytes[labels->payload + i]);
    }
  }
  const auto normal = [&](float value) {
    return (value - source.mean()) / source.stddev();
  };
  bool finite = true;
  if (images->is_floats) {
    dataset->floats_.resize(images->elements);
    for (int64_t i = 0; i < images->elements; ++i) {
      dataset->floats_[i] = normal(LoadFloat(*images, i));
      finite = finite && std::isfinite(dataset->floats_[i]);
    }
  } else {
    // Images stay bytes: a quarter of the memory, and a table of 256 values.
    for (int b = 0; b < 256; ++b) {
      dataset->value_of_byte_[b] = normal(static_cast<float>(b) / 255.0f);
      finite = finite && std::isfinite(dataset->value_of_byte_[b]);
    }
    dataset->payload_ = images->payload;
    dataset->bytes_ = std::move(images->bytes);
  }
  // A stddev near 0 is in its range and still divides to infinity.
  if (!finite) {
    return Invalid(field_path, ".stddev: ", source.stddev(),
                   " makes values infinite");
  }
  return std::unique_ptr<Dataset>(std::move(dataset));
}

absl::Status IdxDataset::ReadSample(int64_t index, float* features,
                                    float* label) const {
  const int64_t width = feature_elements();
  *label = labels_[index];
  if (!floats_.empty()) {
    std::copy_n(floats_.data() + index * width, width, features);
    return absl::OkStatus();
  }
  const char* const pixels = bytes_.data() + payload_ + index * width;
  for (int64_t i = 0; i < width; ++i) {
    features[i] = value_of_byte_[static_cast<uint8_t>(pixels[i])];
  }
  return absl::OkStatus();
}

void IdxDataset::ReadBytes(int64_t index, uint8_t* bytes, float* label) const {
  const int64_t width = feature_elements();
  *label = labels_[index];
  std::memcpy(bytes, bytes_.data() + payload_ + index * width,
              static_cast<size_t>(width));
}

}  // namespace weir
