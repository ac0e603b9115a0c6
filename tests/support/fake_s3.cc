#include "tests/support/fake_s3.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/io/sha256.h"
#include "pugixml.hpp"

namespace weir {
namespace {

HttpResponse Error(int status, const std::string& code) {
  HttpResponse response;
  response.status = status;
  response.body = absl::StrCat("<Error><Code>", code,
                               "</Code><Message>the fake says so</Message>"
                               "</Error>");
  return response;
}

HttpResponse Ok(std::string body = "") {
  HttpResponse response;
  response.status = 200;
  response.body = std::move(body);
  return response;
}

std::optional<std::string> Value(const HttpRequest::Fields& fields,
                                 const std::string& name) {
  for (const auto& [key, value] : fields) {
    if (key == name) {
      return value;
    }
  }
  return std::nullopt;
}

std::string Escaped(const std::string& key) {
  return absl::StrReplaceAll(key, {{"&", "&amp;"}, {"<", "&lt;"}});
}

std::string Etag(const std::string& contents) {
  return absl::StrCat("\"", Sha256Hex(contents).substr(0, 32), "\"");
}

}  // namespace

void FakeS3::SetFaults(std::function<Fault(const HttpRequest&)> faults) {
  MutexLock lock(&mutex_);
  faults_ = std::move(faults);
}

int64_t FakeS3::requests() const {
  MutexLock lock(&mutex_);
  return requests_;
}

std::vector<std::string> FakeS3::keys() const {
  MutexLock lock(&mutex_);
  std::vector<std::string> keys;
  for (const auto& [key, contents] : objects_) {
    keys.push_back(key);
  }
  return keys;
}

std::vector<std::string> FakeS3::uploads() const {
  MutexLock lock(&mutex_);
  std::vector<std::string> keys;
  for (const auto& [id, upload] : uploads_) {
    keys.push_back(upload.key);
  }
  return keys;
}

void FakeS3::PutObject(const std::string& key, const std::string& contents) {
  MutexLock lock(&mutex_);
  objects_[key] = contents;
}

absl::StatusOr<HttpResponse> FakeS3::Do(const HttpRequest& request) {
  MutexLock lock(&mutex_);
  ++requests_;
  const Fault fault = faults_ == nullptr ? Fault::kNone : faults_(request);
  const absl::Status cut = absl::UnavailableError("the connection was cut");
  switch (fault) {
    case Fault::kCut:
      return cut;
    case Fault::kSlowDown:
      return Error(503, "SlowDown");
    case Fault::kError:
      return Error(500, "InternalError");
    default:
      break;
  }
  if (fault == Fault::kSlowBody && !request.body.empty()) {
    return cut;
  }
  HttpResponse response = Handle(request, fault);
  if (fault == Fault::kSlowBody && request.receive_to != nullptr) {
    // It is not the content that is meant.
    std::memset(request.receive_to, '?', response.received / 2);
  }
  if (fault == Fault::kLostAnswer || fault == Fault::kSlowBody) {
    return cut;
  }
  return response;
}

HttpResponse FakeS3::Handle(const HttpRequest& request, Fault fault) {
  if (!Value(request.headers, "authorization").has_value()) {
    return Error(403, "AccessDenied");
  }
  for (const auto& [name, value] : request.headers) {
    if (options_.google && absl::StartsWith(name, "x-amz-")) {
      return Error(400, "ExcessHeaderValues");
    }
  }
  absl::string_view key = request.path;
  const std::string bucket = absl::StrCat("/", options_.bucket);
  if (!absl::ConsumePrefix(&key, bucket)) {
    return Error(404, "NoSuchBucket");
  }
  if (!absl::ConsumePrefix(&key, "/")) {
    return OfBucket(request);
  }
  if (Value(request.query, "uploads").has_value() ||
      Value(request.query, "uploadId").has_value()) {
    return OfUpload(request, std::string(key), fault);
  }
  return OfObject(request, std::string(key));
}

HttpResponse FakeS3::OfBucket(const HttpRequest& request) {
  if (!Value(request.query, "uploads").has_value()) {
    return List(request);
  }
  const std::string prefix = Value(request.query, "prefix").value_or("");
  std::string body = "<ListMultipartUploadsResult>";
  for (const auto& [id, upload] : uploads_) {
    if (absl::StartsWith(upload.key, prefix)) {
      absl::StrAppend(&body, "<Upload><Key>", upload.key, "</Key><UploadId>",
                      id, "</UploadId></Upload>");
    }
  }
  return Ok(absl::StrCat(body, "<IsTruncated>false</IsTruncated>",
                         "</ListMultipartUploadsResult>"));
}

HttpResponse FakeS3::List(const HttpRequest& request) {
  const std::string prefix = Value(request.query, "prefix").value_or("");
  const std::string delimiter = Value(request.query, "delimiter").value_or("");
  const std::string after =
      Value(request.query, options_.google ? "marker" : "continuation-token")
          .value_or("");
  std::string body = "<ListBucketResult>";
  int count = 0;
  std::string last;  // what was listed, a key or a common prefix
  for (const auto& [key, contents] : objects_) {
    if (!absl::StartsWith(key, prefix)) {
      continue;
    }
    std::string shown = key;
    const size_t end = delimiter.empty() ? std::string::npos
                                         : key.find(delimiter, prefix.size());
    if (end != std::string::npos) {
      shown = key.substr(0, end + 1);
    }
    if (shown <= after || shown == last) {
      continue;
    }
    if (count++ == options_.page_entries) {
      const char* const next =
          options_.google ? "NextMarker" : "NextContinuationToken";
      absl::StrAppend(&body, "<", next, ">", last, "</", next, ">");
      break;
    }
    last = shown;
    if (end != std::string::npos) {
      absl::StrAppend(&body, "<CommonPrefixes><Prefix>", shown,
                      "</Prefix></CommonPrefixes>");
    } else {
      absl::StrAppend(&body, "<Contents><Key>", Escaped(shown), "</Key><Size>",
                      contents.size(), "</Size></Contents>");
    }
  }
  return Ok(absl::StrCat(body, "</ListBucketResult>"));
}

HttpResponse FakeS3::OfUpload(const HttpRequest& request,
                              const std::string& key, Fault fault) {
  const std::string id = Value(request.query, "uploadId").value_or("");
  if (id.empty()) {
    const std::string made = absl::StrCat("upload-", next_upload_++);
    uploads_[made] = {key, {}};
    return Ok(absl::StrCat("<InitiateMultipartUploadResult><UploadId>", made,
                           "</UploadId></InitiateMultipartUploadResult>"));
  }
  const auto upload = uploads_.find(id);
  if (upload == uploads_.end() || upload->second.key != key) {
    return Error(404, "NoSuchUpload");
  }
  if (request.method == "DELETE") {
    uploads_.erase(upload);
    return Ok();
  }
  if (request.method == "POST") {
    return Complete(request, id);
  }
  int number = 0;
  if (!absl::SimpleAtoi(Value(request.query, "partNumber").value_or(""),
                        &number)) {
    return Error(400, "InvalidArgument");
  }
  const std::string part(request.body);
  if (fault != Fault::kLostPart) {
    upload->second.parts[number] = part;
  }
  HttpResponse response = Ok();
  response.headers["etag"] = Etag(part);
  return response;
}

HttpResponse FakeS3::Complete(const HttpRequest& request,
                              const std::string& id) {
  Upload& upload = uploads_.at(id);
  pugi::xml_document xml;
  xml.load_buffer(request.body.data(), request.body.size());
  std::string whole;
  int before = 0;
  for (const pugi::xml_node node :
       xml.child("CompleteMultipartUpload").children("Part")) {
    const int number = node.child("PartNumber").text().as_int();
    const auto part = upload.parts.find(number);
    if (number <= before || part == upload.parts.end() ||
        Etag(part->second) != node.child_value("ETag")) {
      return Error(400, "InvalidPart");
    }
    before = number;
    whole += part->second;
  }
  objects_[upload.key] = std::move(whole);
  uploads_.erase(id);
  return Ok("<CompleteMultipartUploadResult/>");
}

HttpResponse FakeS3::OfObject(const HttpRequest& request,
                              const std::string& key) {
  const auto object = objects_.find(key);
  const bool there = object != objects_.end();
  if (request.method == "DELETE") {
    objects_.erase(key);
    HttpResponse response;
    response.status = 204;
    return response;
  }
  if (request.method == "PUT") {
    const bool absent =
        options_.google
            ? Value(request.headers, "x-goog-if-generation-match") == "0"
            : Value(request.headers, "if-none-match") == "*";
    if (absent && there && options_.conditional) {
      return Error(412, "PreconditionFailed");
    }
    objects_[key] = std::string(request.body);
    return Ok();
  }
  if (!there) {
    return Error(404, "NoSuchKey");
  }
  return Read(request, object->second);
}

HttpResponse FakeS3::Read(const HttpRequest& request,
                          const std::string& contents) {
  const auto version = Value(request.headers, "if-match");
  if (version.has_value() && *version != Etag(contents)) {
    return Error(412, "PreconditionFailed");
  }
  HttpResponse response = Ok();
  response.headers["etag"] = Etag(contents);
  response.headers["content-length"] = absl::StrCat(contents.size());
  if (request.method == "HEAD") {
    return response;
  }
  std::string body = contents;
  const std::string range = Value(request.headers, "range").value_or("");
  size_t first = 0;
  size_t last = 0;
  if (std::sscanf(range.c_str(), "bytes=%zu-%zu", &first, &last) == 2) {
    if (first >= contents.size()) {
      return Error(416, "InvalidRange");
    }
    response.status = 206;
    body = contents.substr(first, last - first + 1);
  }
  if (request.receive_to != nullptr) {
    response.received = std::min(body.size(), request.receive_bytes);
    std::memcpy(request.receive_to, body.data(), response.received);
  } else {
    response.body = std::move(body);
  }
  return response;
}

}  // namespace weir
