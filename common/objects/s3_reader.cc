#include "common/objects/s3_reader.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace weir {

S3Reader::S3Reader(S3Client* client, ChunkCache* cache, std::string key,
                   int64_t bytes, std::string version)
    : client_(client),
      cache_(cache),
      key_(std::move(key)),
      path_(client->Describe(key_)),
      bytes_(bytes),
      version_(std::move(version)),
      object_(cache_->AddObject(
          bytes_, [this](int64_t offset, char* data, int64_t count) {
            return Fetch(offset, data, count);
          })) {}

absl::Status S3Reader::Fetch(int64_t offset, char* data, int64_t bytes) const {
  S3Request request;
  request.key = key_;
  request.headers = {
      {"range", absl::StrCat("bytes=", offset, "-", offset + bytes - 1)}};
  if (!version_.empty()) {
    request.headers.emplace_back("if-match", version_);
  }
  request.receive_to = data;
  request.receive_bytes = static_cast<size_t>(bytes);
  const absl::StatusOr<HttpResponse> response = client_->Call(request);
  if (absl::IsAlreadyExists(response.status())) {
    return absl::DataLossError(
        absl::StrCat(path_, " was replaced while it was read"));
  }
  WEIR_RETURN_IF_ERROR(response.status());
  if (response->received != static_cast<size_t>(bytes)) {
    return absl::DataLossError(absl::StrCat(path_, ": the store sent ",
                                            response->received, " of ", bytes,
                                            " bytes from ", offset, " on"));
  }
  return absl::OkStatus();
}

absl::Status S3Reader::ReadAt(int64_t offset, void* data, size_t bytes) {
  if (offset < 0 || static_cast<int64_t>(bytes) > bytes_ - offset) {
    return absl::DataLossError(absl::StrCat(path_, " has ", bytes_,
                                            " bytes, and ", bytes, " from ",
                                            offset, " on were asked for"));
  }
  return cache_->Read(object_, offset, static_cast<char*>(data), bytes);
}

}  // namespace weir
