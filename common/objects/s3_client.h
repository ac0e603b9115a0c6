// One bucket of an object store that speaks S3's protocol: signs requests,
// sends them again where that may help, and says what an answer means.
//
// Place: S3Store makes objects of it.
//
// Invariants
//   I1. No request is repeated without a pause. Pauses double from kPauseMin to
//       kPauseMax, each shortened at random by up to a half, so that the tasks
//       of a job do not come back together.
//   I2. No key and no signature is in a message.
// Threads: safe; a call blocks until its answer, pauses included.
// Errors: those of ObjectStore.
// Source: Amazon S3 API Reference; "Error responses".
#ifndef COMMON_OBJECTS_S3_CLIENT_H_
#define COMMON_OBJECTS_S3_CLIENT_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/objects/credentials.h"
#include "common/objects/http.h"

namespace weir {

struct S3Request {
  std::string method = "GET";
  std::string key = "";  // in the bucket; "": the bucket itself
  HttpRequest::Fields query = {};
  HttpRequest::Fields headers = {};
  bool only_if_absent = false;  // PUT; ALREADY_EXISTS otherwise
  absl::string_view body = "";
  char* receive_to = nullptr;
  size_t receive_bytes = 0;
};

// INVALID_ARGUMENT for what no bucket can be called.
absl::Status CheckBucketName(absl::string_view bucket);

class S3Client {
 public:
  static constexpr std::chrono::milliseconds kPauseMin{100};
  static constexpr std::chrono::milliseconds kPauseMax{10000};
  // About 15 seconds of pauses in all.
  static constexpr int kTriesMax = 9;

  struct Options {
    std::string bucket = "";
    std::string region = "";
    std::string endpoint = "";  // "http://host:9000"; "": AWS's own
    // The bucket stands in the path, and not in the host's name. Unset: where
    // an endpoint was given, and for names that no certificate covers.
    std::optional<bool> path_style = std::nullopt;
    HttpClient* http = nullptr;               // borrowed
    CredentialSource* credentials = nullptr;  // borrowed
    Clock* clock = Clock::Real();
    // Waits; unset: the thread sleeps.
    std::function<void(std::chrono::milliseconds)> sleep = {};
  };

  static absl::StatusOr<std::unique_ptr<S3Client>> Create(Options options);

  // Returns the answer to the request, which is one of 2xx.
  // ALREADY_EXISTS for 412, a condition that did not hold.
  absl::StatusOr<HttpResponse> Call(const S3Request& request);

  // "s3://bucket/key"
  std::string Describe(absl::string_view key) const;

 private:
  explicit S3Client(Options options) : options_(std::move(options)) {}

  absl::StatusOr<HttpResponse> CallOnce(const S3Request& request);
  // What an answer means. OK for 2xx.
  absl::Status Judge(const S3Request& request, const HttpResponse& response,
                     bool* keys_have_ended);

  Options options_;
  std::string scheme_;
  std::string host_;
  std::string path_prefix_;  // "/bucket" where it stands in the path
  // Cloud Storage: the same protocol, but for a request's signature and its
  // condition.
  bool google_ = false;
};

}  // namespace weir

#endif  // COMMON_OBJECTS_S3_CLIENT_H_
