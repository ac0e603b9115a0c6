#include "common/objects/s3_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/exhausted.h"
#include "common/base/status.h"
#include "common/threads/thread.h"
#include "pugixml.hpp"

namespace weir {
namespace {

std::string EscapeXml(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped.push_back(c);
    }
  }
  return escaped;
}

}  // namespace

absl::Status AbortUpload(S3Client* client, const std::string& key,
                         const std::string& upload_id) {
  S3Request request;
  request.method = "DELETE";
  request.key = key;
  request.query = {{"uploadId", upload_id}};
  const absl::Status status = client->Call(request).status();
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

S3Writer::S3Writer(S3Client* client, std::string key, int64_t part_bytes,
                   int parts)
    : client_(client),
      key_(std::move(key)),
      part_bytes_(part_bytes),
      parts_max_(parts) {}

S3Writer::~S3Writer() {
  StopThreads();
  if (!upload_id_.empty() && !finished_) {
    // I2. Where even that fails, the sweep finds it (DropUnfinished).
    AbortUpload(client_, key_, upload_id_).IgnoreError();
  }
}

absl::Status S3Writer::Append(const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  written_ += static_cast<int64_t>(bytes);
  while (bytes > 0) {
    if (static_cast<int64_t>(filled_) == part_bytes_) {
      WEIR_RETURN_IF_ERROR(Send());
    }
    if (filling_.data() == nullptr) {
      WEIR_RETURN_IF_ERROR(TakeEmpty());
    }
    const size_t taken = std::min(bytes, filling_.size() - filled_);
    std::memcpy(filling_.data() + filled_, from, taken);
    filled_ += taken;
    from += taken;
    bytes -= taken;
  }
  return absl::OkStatus();
}

absl::Status S3Writer::Begin() {
  S3Request request;
  request.method = "POST";
  request.key = key_;
  request.query = {{"uploads", ""}};
  WEIR_ASSIGN_OR_RETURN(const HttpResponse response, client_->Call(request));
  pugi::xml_document xml;
  xml.load_buffer(response.body.data(), response.body.size());
  upload_id_ =
      xml.child("InitiateMultipartUploadResult").child_value("UploadId");
  if (upload_id_.empty()) {
    return absl::InternalError(absl::StrCat(
        client_->Describe(key_), ": the store does not name the upload"));
  }
  for (int i = 0; i < parts_max_; ++i) {
    WEIR_ASSIGN_OR_RETURN(Thread thread, StartThread([this] { Run(); }));
    threads_.push_back(std::move(thread));
  }
  return absl::OkStatus();
}

absl::Status S3Writer::Send() {
  if (upload_id_.empty()) {
    WEIR_RETURN_IF_ERROR(Begin());
  }
  MutexLock lock(&mutex_);
  waiting_.push_back(
      {++parts_, std::move(filling_), std::exchange(filled_, 0)});
  ++under_way_;
  etags_.emplace_back();
  changed_.NotifyAll();
  return absl::OkStatus();
}

absl::Status S3Writer::TakeEmpty() {
  MutexLock lock(&mutex_);
  while (error_.ok() && under_way_ == parts_max_) {  // I1
    changed_.Wait(&mutex_);
  }
  WEIR_RETURN_IF_ERROR(error_);
  if (empty_.empty()) {
    filling_ = PageBuffer(static_cast<size_t>(part_bytes_));
  } else {
    filling_ = std::move(empty_.back());
    empty_.pop_back();
  }
  return absl::OkStatus();
}

void S3Writer::Run() {
  for (;;) {
    Part part;
    {
      MutexLock lock(&mutex_);
      while (!stop_ && waiting_.empty()) {
        changed_.Wait(&mutex_);
      }
      if (waiting_.empty() || !error_.ok()) {
        return;
      }
      part = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const absl::Status status = SendPart(part);
    MutexLock lock(&mutex_);
    --under_way_;
    error_.Update(status);
    empty_.push_back(std::move(part.memory));
    changed_.NotifyAll();
  }
}

absl::Status S3Writer::SendPart(const Part& part) {
  S3Request request;
  request.method = "PUT";
  request.key = key_;
  request.query = {{"partNumber", absl::StrCat(part.number)},
                   {"uploadId", upload_id_}};
  request.body = absl::string_view(part.memory.data(), part.bytes);
  WEIR_ASSIGN_OR_RETURN(const HttpResponse response, client_->Call(request));
  MutexLock lock(&mutex_);
  etags_[static_cast<size_t>(part.number) - 1] = response.Header("etag");
  return absl::OkStatus();
}

void S3Writer::StopThreads() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    waiting_.clear();
    changed_.NotifyAll();
  }
  for (Thread& thread : threads_) {
    thread.join();
  }
  threads_.clear();
}

absl::Status S3Writer::Finish() {
  if (upload_id_.empty()) {
    return PutWhole();
  }
  WEIR_RETURN_IF_ERROR(Send());
  {
    MutexLock lock(&mutex_);
    while (error_.ok() && under_way_ > 0) {
      changed_.Wait(&mutex_);
    }
    WEIR_RETURN_IF_ERROR(error_);
  }
  StopThreads();
  WEIR_RETURN_IF_ERROR(Complete());
  finished_ = true;
  return absl::OkStatus();
}

absl::Status S3Writer::PutWhole() {
  S3Request request;
  request.method = "PUT";
  request.key = key_;
  request.body = absl::string_view(filling_.data(), filled_);
  WEIR_RETURN_IF_ERROR(client_->Call(request).status());
  finished_ = true;
  return absl::OkStatus();
}

absl::Status S3Writer::Complete() {
  std::string list = "<CompleteMultipartUpload>";
  {
    MutexLock lock(&mutex_);
    for (size_t i = 0; i < etags_.size(); ++i) {
      absl::StrAppend(&list, "<Part><PartNumber>", i + 1, "</PartNumber><ETag>",
                      EscapeXml(etags_[i]), "</ETag></Part>");
    }
  }
  list += "</CompleteMultipartUpload>";
  S3Request request;
  request.method = "POST";
  request.key = key_;
  request.query = {{"uploadId", upload_id_}};
  request.headers = {{"content-type", "application/xml"}};
  request.body = list;
  const absl::Status status = client_->Call(request).status();
  // No such upload: an earlier try has completed it, and its answer was lost.
  if (!status.ok() && !absl::IsNotFound(status)) {
    return status;
  }
  return CheckSize();
}

absl::Status S3Writer::CheckSize() const {
  S3Request request;
  request.method = "HEAD";
  request.key = key_;
  WEIR_ASSIGN_OR_RETURN(const HttpResponse response, client_->Call(request));
  int64_t bytes = -1;
  if (!absl::SimpleAtoi(response.Header("content-length"), &bytes) ||
      bytes != written_) {
    return absl::UnavailableError(
        absl::StrCat(client_->Describe(key_), ": ", written_,
                     " bytes were sent, and the store has ", bytes));
  }
  return absl::OkStatus();
}

}  // namespace weir
