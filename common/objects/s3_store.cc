#include "common/objects/s3_store.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/identity.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "common/objects/s3_reader.h"
#include "common/objects/s3_writer.h"
#include "pugixml.hpp"

namespace weir {
namespace {

// A store that repeats itself must not keep us for ever.
constexpr int kPagesMax = 100000;
constexpr char kDirectoryMark[] = ".directory";

absl::Status ParsePage(const HttpResponse& response, const std::string& what,
                       pugi::xml_document* xml) {
  if (!xml->load_buffer(response.body.data(), response.body.size())) {
    return absl::InternalError(
        absl::StrCat(what, ": the store answers with no XML"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SizeIn(const HttpResponse& response,
                               const std::string& name) {
  int64_t bytes = 0;
  if (!absl::SimpleAtoi(response.Header("content-length"), &bytes) ||
      bytes < 0) {
    return absl::InternalError(
        absl::StrCat(name, ": the store does not say its size"));
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::string> S3Store::KeyOf(absl::string_view name) const {
  absl::string_view key = name;
  if (!absl::ConsumePrefix(&key, client_->Describe(""))) {
    return Invalid("'", Printable(name), "' is not in ", client_->Describe(""));
  }
  for (const absl::string_view part : absl::StrSplit(key, '/')) {
    if (part.empty() || part == "." || part == "..") {
      return Invalid("'", Printable(name), "' cannot name an object");
    }
  }
  return std::string(key);
}

absl::StatusOr<std::string> S3Store::PrefixOf(
    absl::string_view directory) const {
  const absl::string_view whole = absl::StripSuffix(directory, "/");
  if (absl::StrCat(whole, "/") == client_->Describe("")) {
    return std::string();
  }
  WEIR_ASSIGN_OR_RETURN(const std::string key, KeyOf(whole));
  return absl::StrCat(key, "/");
}

absl::StatusOr<std::unique_ptr<FileReader>> S3Store::Open(
    const std::string& name) {
  S3Request request;
  request.method = "HEAD";
  WEIR_ASSIGN_OR_RETURN(request.key, KeyOf(name));
  WEIR_ASSIGN_OR_RETURN(const HttpResponse response, client_->Call(request));
  WEIR_ASSIGN_OR_RETURN(const int64_t bytes, SizeIn(response, name));
  return std::make_unique<S3Reader>(client_, &cache_, request.key, bytes,
                                    response.Header("etag"));
}

absl::StatusOr<std::string> S3Store::ReadAll(const std::string& name) {
  S3Request request;
  WEIR_ASSIGN_OR_RETURN(request.key, KeyOf(name));
  WEIR_ASSIGN_OR_RETURN(HttpResponse response, client_->Call(request));
  return std::move(response.body);
}

absl::StatusOr<FileInfo> S3Store::Stat(const std::string& name) {
  const absl::StatusOr<std::string> key = KeyOf(name);
  if (key.ok()) {
    S3Request request;
    request.method = "HEAD";
    request.key = *key;
    const absl::StatusOr<HttpResponse> response = client_->Call(request);
    if (response.ok()) {
      WEIR_ASSIGN_OR_RETURN(const int64_t bytes, SizeIn(*response, name));
      return FileInfo{bytes, false};
    }
    if (!absl::IsNotFound(response.status())) {
      return response.status();
    }
  }
  S3Request request;
  WEIR_ASSIGN_OR_RETURN(const std::string prefix, PrefixOf(name));
  request.query = {{"list-type", "2"}, {"max-keys", "1"}, {"prefix", prefix}};
  WEIR_ASSIGN_OR_RETURN(const HttpResponse response, client_->Call(request));
  pugi::xml_document xml;
  WEIR_RETURN_IF_ERROR(ParsePage(response, name, &xml));
  if (xml.child("ListBucketResult").child("Contents").empty()) {
    return absl::NotFoundError(absl::StrCat(name, " is not there"));
  }
  return FileInfo{0, true};
}

absl::Status S3Store::WriteAtomically(const std::string& name,
                                      absl::string_view contents) {
  S3Request request;
  request.method = "PUT";
  WEIR_ASSIGN_OR_RETURN(request.key, KeyOf(name));
  request.body = contents;
  return client_->Call(request).status();
}

absl::Status S3Store::WriteNew(const std::string& name,
                               absl::string_view contents) {
  S3Request request;
  request.method = "PUT";
  WEIR_ASSIGN_OR_RETURN(request.key, KeyOf(name));
  request.only_if_absent = true;
  request.body = contents;
  const absl::Status status = client_->Call(request).status();
  if (!absl::IsAlreadyExists(status)) {
    return status;
  }
  // Perhaps it is ours, and the answer to an earlier try was lost.
  WEIR_ASSIGN_OR_RETURN(const std::string there, ReadAll(name));
  return there == contents ? absl::OkStatus() : status;
}

absl::StatusOr<std::unique_ptr<ObjectWriter>> S3Store::BeginWrite(
    const std::string& name, int64_t bytes_expected) {
  WEIR_ASSIGN_OR_RETURN(const std::string key, KeyOf(name));
  // Half as many parts as there may be: the expectation need not be exact.
  const int64_t part_bytes =
      std::max(kPartBytes, bytes_expected / (kPartsMax / 2));
  return std::make_unique<S3Writer>(client_, key, part_bytes, kPartsHeld);
}

absl::Status S3Store::Append(const std::string& name,
                             absl::string_view /*contents*/) {
  return absl::UnimplementedError(
      absl::StrCat(name, ": an object store cannot append"));
}

absl::StatusOr<std::vector<std::string>> S3Store::List(
    const std::string& directory) {
  WEIR_ASSIGN_OR_RETURN(const std::string prefix, PrefixOf(directory));
  std::set<std::string> names;
  bool any = false;
  S3Request request;
  request.query = {{"list-type", "2"}, {"delimiter", "/"}, {"prefix", prefix}};
  const HttpRequest::Fields first = request.query;
  for (int page = 0; page < kPagesMax; ++page) {
    WEIR_ASSIGN_OR_RETURN(const HttpResponse response, client_->Call(request));
    pugi::xml_document xml;
    WEIR_RETURN_IF_ERROR(ParsePage(response, directory, &xml));
    const pugi::xml_node result = xml.child("ListBucketResult");
    for (const pugi::xml_node node : result.children()) {
      const absl::string_view kind = node.name();
      const bool below = kind == "CommonPrefixes";
      if (!below && kind != "Contents") {
        continue;
      }
      any = true;
      absl::string_view name = node.child_value(below ? "Prefix" : "Key");
      if (!absl::ConsumePrefix(&name, prefix)) {
        return absl::InternalError(absl::StrCat(
            directory, ": the store lists '", Printable(name), "'"));
      }
      name = absl::StripSuffix(name, "/");
      if (!name.empty() && name != kDirectoryMark) {
        names.emplace(name);
      }
    }
    // Some stores answer as the first version of this call would.
    std::string next = result.child_value("NextContinuationToken");
    const char* parameter = "continuation-token";
    if (next.empty()) {
      next = result.child_value("NextMarker");
      parameter = "marker";
    }
    if (next.empty()) {
      if (absl::string_view(result.child_value("IsTruncated")) == "true") {
        return absl::InternalError(
            absl::StrCat(directory, ": the store cuts its list"));
      }
      if (!any) {
        return absl::NotFoundError(
            absl::StrCat(directory, " has no object in it"));
      }
      return std::vector<std::string>(names.begin(), names.end());
    }
    request.query = first;
    request.query.emplace_back(parameter, next);
  }
  return absl::InternalError(absl::StrCat(directory, ": the list has no end"));
}

absl::Status S3Store::MakeDirectories(const std::string& path) {
  return PrefixOf(path).status();
}

absl::Status S3Store::MakeDirectory(const std::string& path) {
  // The contents are nobody else's, so that an answer that was lost is found
  // out.
  return WriteNew(absl::StrCat(path, "/", kDirectoryMark), RandomHex(32));
}

absl::Status S3Store::SyncDirectory(const std::string& path) {
  return PrefixOf(path).status();
}

absl::Status S3Store::Delete(const std::string& key) {
  S3Request request;
  request.method = "DELETE";
  request.key = key;
  const absl::Status status = client_->Call(request).status();
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::Status S3Store::Remove(const std::string& name) {
  WEIR_ASSIGN_OR_RETURN(const std::string key, KeyOf(name));
  WEIR_RETURN_IF_ERROR(Delete(key));
  return Delete(absl::StrCat(key, "/", kDirectoryMark));
}

absl::Status S3Store::DropUnfinished(const std::string& directory) {
  WEIR_ASSIGN_OR_RETURN(const std::string prefix, PrefixOf(directory));
  S3Request request;
  request.query = {{"uploads", ""}, {"prefix", prefix}};
  const HttpRequest::Fields first = request.query;
  for (int page = 0; page < kPagesMax; ++page) {
    WEIR_ASSIGN_OR_RETURN(const HttpResponse response, client_->Call(request));
    pugi::xml_document xml;
    WEIR_RETURN_IF_ERROR(ParsePage(response, directory, &xml));
    const pugi::xml_node result = xml.child("ListMultipartUploadsResult");
    for (const pugi::xml_node node : result.children("Upload")) {
      WEIR_RETURN_IF_ERROR(AbortUpload(client_, node.child_value("Key"),
                                       node.child_value("UploadId")));
    }
    if (absl::string_view(result.child_value("IsTruncated")) != "true") {
      return absl::OkStatus();
    }
    request.query = first;
    request.query.emplace_back("key-marker",
                               result.child_value("NextKeyMarker"));
    request.query.emplace_back("upload-id-marker",
                               result.child_value("NextUploadIdMarker"));
  }
  return absl::InternalError(
      absl::StrCat(directory, ": the list of uploads has no end"));
}

}  // namespace weir
