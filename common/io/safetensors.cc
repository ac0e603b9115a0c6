#include "common/io/safetensors.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/io/crc32c.h"
#include "nlohmann/json.hpp"

namespace weir {
namespace {

constexpr int64_t kMaxHeaderBytes = 100'000'000;  // The format's own bound.
constexpr int64_t kLengthBytes = 8;
// Keeps products and sums of sizes far from overflow; 1 EiB.
constexpr int64_t kMaxDataBytes = int64_t{1} << 60;
constexpr int64_t kReadBytes = int64_t{1} << 20;

// Bytes of an array, or -1 when they overflow or are not whole bytes.
int64_t BytesOf(const SafetensorsArray& array) {
  int64_t elements = 1;
  for (const int64_t dim : array.shape) {
    if (dim < 0 || (dim > 0 && elements > kMaxDataBytes / dim)) {
      return -1;
    }
    elements *= dim;
  }
  const int64_t bits = SafetensorsBits(array.dtype);
  if (bits == 0 || elements > kMaxDataBytes / bits ||
      elements * bits % 8 != 0) {
    return -1;
  }
  return elements * bits / 8;
}

std::string Describe(const SafetensorsArray& array) {
  return absl::StrCat("array '", array.name, "' (", array.dtype, " [",
                      absl::StrJoin(array.shape, ","), "] at ", array.begin,
                      " to ", array.end, ")");
}

// Takes the header's JSON as events and holds only what the format allows, so
// that no header makes it allocate more than a few times its own size.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<SafetensorsArray> arrays;
  std::map<std::string, std::string> metadata;
  std::string error;  // what is wrong, for the message

  bool null() override { return Fail("null"); }
  bool boolean(bool) override { return Fail("a boolean"); }
  bool number_integer(number_integer_t) override {
    return Fail("a negative number");
  }
  bool number_float(number_float_t, const string_t&) override {
    return Fail("a number that is no 64-bit integer");
  }
  bool binary(binary_t&) override { return Fail("binary"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != kInShape && state_ != kInOffsets) {
      return Fail("a number");
    }
    if (value > static_cast<uint64_t>(kMaxDataBytes)) {
      return Fail("a number beyond 2^60");
    }
    if (state_ == kInShape) {
      arrays.back().shape.push_back(static_cast<int64_t>(value));
    } else {
      offsets_.push_back(static_cast<int64_t>(value));
    }
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == kInMetadata) {
      return metadata.emplace(key_, value).second ||
             Fail(absl::StrCat("a second metadata key '", key_, "'"));
    }
    if (state_ == kInArray && key_ == "dtype") {
      arrays.back().dtype = value;
      return true;
    }
    return Fail("a string");
  }

  bool start_object(size_t) override {
    if (state_ == kStart) {
      state_ = kInRoot;
    } else if (state_ == kInRoot && key_ == "__metadata__") {
      state_ = kInMetadata;
    } else if (state_ == kInRoot) {
      state_ = kInArray;
      arrays.push_back({.name = key_, .dtype = "", .shape = {}});
      keys_.clear();
      offsets_.clear();
    } else {
      return Fail("an object");
    }
    return true;
  }

  bool end_object() override {
    if (state_ == kInArray) {
      if (keys_.size() != 3) {
        return Fail("an array without all of dtype, shape, data_offsets");
      }
      arrays.back().begin = offsets_[0];
      arrays.back().end = offsets_[1];
    }
    // An array or the metadata ends inside the root; the root ends the header.
    if (state_ == kInRoot) {
      state_ = kEnd;
    } else {
      state_ = kInRoot;
    }
    return true;
  }

  bool start_array(size_t) override {
    if (state_ != kInArray || (key_ != "shape" && key_ != "data_offsets")) {
      return Fail("a list");
    }
    state_ = kInOffsets;
    if (key_ == "shape") {
      state_ = kInShape;
    }
    return true;
  }

  bool end_array() override {
    if (state_ == kInOffsets && offsets_.size() != 2) {
      return Fail("data_offsets that are not two numbers");
    }
    state_ = kInArray;
    return true;
  }

  bool key(string_t& value) override {
    key_ = value;
    // I4. JSON itself allows a name twice, and parsers differ in which they
    // take.
    if (state_ == kInRoot && !names_.insert(key_).second) {
      return Fail(absl::StrCat("a second entry '", key_, "'"));
    }
    if (state_ == kInArray &&
        ((key_ != "dtype" && key_ != "shape" && key_ != "data_offsets") ||
         !keys_.insert(key_).second)) {
      return Fail(absl::StrCat("an unknown or second key '", key_, "'"));
    }
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    error = absl::StrCat("the header is not JSON at byte ", position);
    return false;
  }

 private:
  enum State {
    kStart,
    kInRoot,
    kInMetadata,
    kInArray,
    kInShape,
    kInOffsets,
    kEnd,
  };

  bool Fail(absl::string_view what) {
    error = absl::StrCat("the header has ", what);
    if (!arrays.empty()) {
      absl::StrAppend(&error, " at array '", arrays.back().name, "'");
    }
    return false;
  }

  State state_ = kStart;
  std::string key_;
  std::set<std::string> names_;  // of the root
  std::set<std::string> keys_;   // of the array that is open
  std::vector<int64_t> offsets_;
};

absl::Status Damaged(const std::string& path, absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat(path, " is not a whole safetensors file: ", what));
}

// Checks I2 and I3 of arrays that are sorted by offset, with `data_bytes` of
// data. Says what is wrong, or "".
std::string CheckOffsets(const std::vector<SafetensorsArray>& arrays,
                         int64_t data_bytes) {
  int64_t at = 0;
  for (const SafetensorsArray& array : arrays) {
    if (SafetensorsBits(array.dtype) == 0) {
      return absl::StrCat(Describe(array), " has an unknown dtype");
    }
    if (array.begin != at || array.end < array.begin) {
      return absl::StrCat(Describe(array), " should begin at ", at);
    }
    if (array.bytes() != BytesOf(array)) {
      return absl::StrCat(Describe(array), " should have ", BytesOf(array),
                          " bytes");
    }
    at = array.end;
  }
  if (at != data_bytes) {
    return absl::StrCat("the header describes ", at, " bytes of data and ",
                        data_bytes, " are there");
  }
  return "";
}

absl::StatusOr<std::string> MakeHeader(
    const std::vector<SafetensorsArray>& arrays,
    const std::map<std::string, std::string>& metadata) {
  // Appended and not inserted: an ordered_json would look for each name among
  // those before it. Create has seen that none occurs twice.
  nlohmann::ordered_json::object_t entries;
  if (!metadata.empty()) {
    entries.emplace_back("__metadata__", metadata);
  }
  for (const SafetensorsArray& array : arrays) {
    entries.emplace_back(
        array.name,
        nlohmann::ordered_json{{"dtype", array.dtype},
                               {"shape", array.shape},
                               {"data_offsets", {array.begin, array.end}}});
  }
  std::string header;
  try {
    header = nlohmann::ordered_json(std::move(entries)).dump();
  } catch (const nlohmann::json::type_error&) {  // the library's only answer
    return absl::InvalidArgumentError("a safetensors name is not UTF-8");
  }
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > static_cast<size_t>(kMaxHeaderBytes)) {
    return Invalid("a safetensors header of ", header.size(),
                   " bytes; the format allows ", kMaxHeaderBytes);
  }
  return header;
}

}  // namespace

int SafetensorsBits(const std::string& dtype) {
  static const auto* const bits = new std::map<std::string, int>{
      {"F4", 4},          {"F6_E2M3", 6},     {"F6_E3M2", 6}, {"BOOL", 8},
      {"U8", 8},          {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8},
      {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E8M0", 8}, {"I16", 16},
      {"U16", 16},        {"F16", 16},        {"BF16", 16},   {"I32", 32},
      {"U32", 32},        {"F32", 32},        {"C64", 64},    {"F64", 64},
      {"I64", 64},        {"U64", 64},
  };
  const auto it = bits->find(dtype);
  if (it == bits->end()) {
    return 0;
  }
  return it->second;
}

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(
    ObjectStore* store, const std::string& path) {
  std::unique_ptr<SafetensorsReader> self(new SafetensorsReader());
  WEIR_ASSIGN_OR_RETURN(self->reader_, store->Open(path));
  const int64_t file_bytes = self->file_bytes();
  if (file_bytes < kLengthBytes) {
    return Damaged(path, absl::StrCat("it has ", file_bytes, " bytes"));
  }
  // I1: the length is checked against the format's bound and the file's size
  // before so much memory is taken.
  uint64_t header_bytes = 0;  // Little-endian machines only.
  WEIR_RETURN_IF_ERROR(self->reader_->ReadAt(0, &header_bytes, kLengthBytes));
  if (header_bytes > static_cast<uint64_t>(std::min(
                         kMaxHeaderBytes, file_bytes - kLengthBytes))) {
    return Damaged(path, absl::StrCat("its header should have ", header_bytes,
                                      " bytes, the file has ", file_bytes));
  }
  std::string header(header_bytes, '\0');
  WEIR_RETURN_IF_ERROR(
      self->reader_->ReadAt(kLengthBytes, header.data(), header.size()));
  if (header.empty() || header[0] != '{') {  // I1
    return Damaged(path, "its header does not begin with '{'");
  }
  HeaderHandler handler;
  if (!nlohmann::json::sax_parse(header, &handler)) {
    return Damaged(path, handler.error);
  }
  self->data_begin_ = kLengthBytes + static_cast<int64_t>(header_bytes);
  self->metadata_ = std::move(handler.metadata);
  self->arrays_ = std::move(handler.arrays);
  // Arrays of no bytes share their begin with the one after them.
  std::sort(self->arrays_.begin(), self->arrays_.end(),
            [](const SafetensorsArray& a, const SafetensorsArray& b) {
              return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
            });
  const std::string wrong =
      CheckOffsets(self->arrays_, file_bytes - self->data_begin_);
  if (!wrong.empty()) {
    return Damaged(path, wrong);
  }
  for (size_t i = 0; i < self->arrays_.size(); ++i) {
    self->by_name_[self->arrays_[i].name] = static_cast<int>(i);
  }
  return self;
}

const SafetensorsArray* SafetensorsReader::Find(const std::string& name) const {
  const auto it = by_name_.find(name);
  if (it == by_name_.end()) {
    return nullptr;
  }
  return &arrays_[it->second];
}

absl::Status SafetensorsReader::Read(const SafetensorsArray& array,
                                     int64_t offset, void* data,
                                     int64_t bytes) const {
  WEIR_CHECK(offset >= 0 && bytes >= 0 && offset <= array.bytes() - bytes);
  return reader_->ReadAt(data_begin_ + array.begin + offset, data,
                         static_cast<size_t>(bytes));
}

absl::StatusOr<uint32_t> SafetensorsReader::ReadCrc32c() const {
  uint32_t crc32c = 0;
  std::vector<char> buffer(
      static_cast<size_t>(std::min(kReadBytes, file_bytes())));
  for (int64_t begin = 0; begin < file_bytes(); begin += kReadBytes) {
    const auto bytes =
        static_cast<size_t>(std::min(kReadBytes, file_bytes() - begin));
    WEIR_RETURN_IF_ERROR(reader_->ReadAt(begin, buffer.data(), bytes));
    crc32c = ExtendCrc32c(crc32c, buffer.data(), bytes);
  }
  return crc32c;
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    ObjectStore* store, const std::string& path,
    std::vector<SafetensorsArray> arrays,
    const std::map<std::string, std::string>& metadata) {
  std::unique_ptr<SafetensorsWriter> self(new SafetensorsWriter());
  // I2 to I4 hold for what is written because the offsets are computed here and
  // Append and Finish count bytes.
  std::set<std::string> names = {"__metadata__"};
  for (SafetensorsArray& array : arrays) {
    const int64_t bytes = BytesOf(array);
    if (bytes < 0 || bytes > kMaxDataBytes - self->data_bytes_) {
      return Invalid(path, ": ", Describe(array),
                     " has an unknown dtype or an impossible size");
    }
    if (!names.insert(array.name).second) {
      return Invalid(path, ": '", array.name, "' is declared twice");
    }
    array.begin = self->data_bytes_;
    array.end = self->data_bytes_ += bytes;
  }
  WEIR_ASSIGN_OR_RETURN(const std::string header, MakeHeader(arrays, metadata));
  self->path_ = path;
  self->arrays_ = std::move(arrays);
  WEIR_ASSIGN_OR_RETURN(
      self->writer_,
      store->BeginWrite(
          path, self->data_bytes_ + static_cast<int64_t>(header.size())));

  const uint64_t header_bytes = header.size();
  std::string front(reinterpret_cast<const char*>(&header_bytes), kLengthBytes);
  front += header;
  WEIR_RETURN_IF_ERROR(self->writer_->Append(front.data(), front.size()));
  self->digest_ = {static_cast<int64_t>(front.size()),
                   Crc32c(front.data(), front.size())};
  return self;
}

absl::Status SafetensorsWriter::Append(const void* data, int64_t bytes) {
  if (bytes < 0 || bytes > data_bytes_ - appended_bytes_) {
    return Invalid(path_, ": ", bytes, " bytes do not fit; ", appended_bytes_,
                   " of ", data_bytes_, " declared bytes are there");
  }
  WEIR_RETURN_IF_ERROR(writer_->Append(data, static_cast<size_t>(bytes)));
  appended_bytes_ += bytes;
  digest_.bytes += bytes;
  digest_.crc32c =
      ExtendCrc32c(digest_.crc32c, data, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

absl::StatusOr<FileDigest> SafetensorsWriter::Finish() {
  if (appended_bytes_ != data_bytes_) {
    return Invalid(path_, ": ", appended_bytes_, " of ", data_bytes_,
                   " declared bytes were appended");
  }
  WEIR_RETURN_IF_ERROR(writer_->Finish());
  return digest_;
}

}  // namespace weir
