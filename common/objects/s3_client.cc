#include "common/objects/s3_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "common/base/identity.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "pugixml.hpp"

namespace weir {
namespace {

constexpr char kGoogleHost[] = "storage.googleapis.com";
constexpr size_t kBucketCharsMin = 3;
constexpr size_t kBucketCharsMax = 63;

// What a store says of an error, in a document or, after HEAD, nowhere.
struct StoreError {
  std::string code;
  std::string message;
  std::string region;  // where the bucket is, if it is elsewhere
};

StoreError ParseError(const HttpResponse& response) {
  StoreError error;
  pugi::xml_document xml;
  if (xml.load_buffer(response.body.data(), response.body.size())) {
    const pugi::xml_node node = xml.child("Error");
    error.code = node.child_value("Code");
    error.message = node.child_value("Message");
    error.region = node.child_value("Region");
  }
  if (error.region.empty()) {
    error.region = response.Header("x-amz-bucket-region");
  }
  return error;
}

// Whether the same request may succeed a little later.
bool Passes(int status, const std::string& code) {
  return IsPassingAnswer(status) || code == "RequestTimeout" ||
         code == "SlowDown" || code == "InternalError" ||
         code == "ConditionalRequestConflict" || code == "OperationAborted";
}

// Whether the keys were good once, by what the store says. To HEAD it does not
// say it: a request that is otherwise in order is a bad one then.
bool KeysHaveEnded(const std::string& method, int status,
                   const StoreError& error) {
  return error.code == "ExpiredToken" || error.code == "InvalidToken" ||
         error.code == "TokenRefreshRequired" ||
         (method == "HEAD" && status == 400 && error.region.empty());
}

// What to do about an answer that starting again does not mend.
std::string Advice(const S3Client::Options& options, int status,
                   const StoreError& error) {
  if (error.code == "RequestTimeTooSkewed") {
    return "; set this machine's clock";
  }
  if (error.code == "InvalidAccessKeyId" ||
      error.code == "SignatureDoesNotMatch") {
    return "; the keys are not of this store, look at AWS_ACCESS_KEY_ID, "
           "AWS_PROFILE and AWS_ENDPOINT_URL";
  }
  if (error.code == "NoSuchBucket") {
    return absl::StrCat("; make the bucket '", options.bucket,
                        "', or look at its name and at AWS_ENDPOINT_URL");
  }
  if (status == 403) {
    return "; the keys have no right to do this";
  }
  return "";
}

absl::StatusCode CodeOf(int status, const StoreError& error) {
  if (Passes(status, error.code)) {
    return absl::StatusCode::kUnavailable;
  }
  if (error.code == "NoSuchBucket") {
    return absl::StatusCode::kInvalidArgument;
  }
  switch (status) {
    case 401:
    case 403:
      return absl::StatusCode::kUnauthenticated;
    case 404:
      return absl::StatusCode::kNotFound;
    case 412:
      return absl::StatusCode::kAlreadyExists;
    case 416:
      return absl::StatusCode::kDataLoss;
    default:
      return absl::StatusCode::kInvalidArgument;
  }
}

}  // namespace

absl::Status CheckBucketName(absl::string_view bucket) {
  const bool characters =
      std::all_of(bucket.begin(), bucket.end(), [](unsigned char c) {
        return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-' ||
               c == '.' || c == '_';
      });
  if (!characters || bucket.size() < kBucketCharsMin ||
      bucket.size() > kBucketCharsMax) {
    return Invalid("bucket '", Printable(bucket), "': names have ",
                   kBucketCharsMin, " to ", kBucketCharsMax,
                   " characters of a-z, 0-9, '-' and '.'");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<S3Client>> S3Client::Create(Options options) {
  WEIR_RETURN_IF_ERROR(CheckBucketName(options.bucket));
  if (options.sleep == nullptr) {
    options.sleep = [](std::chrono::milliseconds pause) {
      Clock::Real()->SleepFor(pause);
    };
  }
  std::unique_ptr<S3Client> client(new S3Client(std::move(options)));
  const Options& own = client->options_;
  absl::string_view host = own.endpoint;
  const std::string aws =
      absl::StrCat("https://s3.", own.region, ".amazonaws.com");
  if (own.endpoint.empty()) {
    host = aws;
  }
  client->scheme_ = absl::StartsWith(host, "http://") ? "http" : "https";
  if (!absl::ConsumePrefix(&host, absl::StrCat(client->scheme_, "://"))) {
    return Invalid("endpoint '", own.endpoint,
                   "': write it as https://HOST or http://HOST:PORT");
  }
  host = absl::StripSuffix(host, "/");
  if (host.empty() || host.find('/') != absl::string_view::npos) {
    return Invalid("endpoint '", own.endpoint, "': it has a host and no path");
  }
  const std::string name =
      absl::AsciiStrToLower(host.substr(0, host.rfind(':')));
  client->google_ = name == kGoogleHost ||
                    absl::EndsWith(name, absl::StrCat(".", kGoogleHost));
  const bool in_path = own.path_style.value_or(
      !own.endpoint.empty() || own.bucket.find('.') != std::string::npos);
  client->host_ =
      in_path ? std::string(host) : absl::StrCat(own.bucket, ".", host);
  client->path_prefix_ = in_path ? absl::StrCat("/", own.bucket) : "";
  return client;
}

std::string S3Client::Describe(absl::string_view key) const {
  return absl::StrCat("s3://", options_.bucket, "/", key);
}

absl::StatusOr<HttpResponse> S3Client::Call(const S3Request& request) {
  std::chrono::milliseconds pause = kPauseMin;
  for (int tries = 1;; ++tries) {
    absl::StatusOr<HttpResponse> response = CallOnce(request);
    if (response.ok() || !absl::IsUnavailable(response.status())) {
      return response;
    }
    if (tries == kTriesMax) {
      return absl::UnavailableError(absl::StrCat(response.status().message(),
                                                 " (tried ", tries, " times)"));
    }
    // I1.
    const auto half = static_cast<uint64_t>(pause.count() / 2);
    options_.sleep(pause - std::chrono::milliseconds(RandomId() % (half + 1)));
    pause = std::min(pause * 2, kPauseMax);
  }
}

absl::StatusOr<HttpResponse> S3Client::CallOnce(const S3Request& request) {
  WEIR_ASSIGN_OR_RETURN(const AwsCredentials keys, options_.credentials->Get());
  HttpRequest http;
  http.method = request.method;
  http.scheme = scheme_;
  http.host = host_;
  http.path = request.key.empty() && !path_prefix_.empty()
                  ? path_prefix_
                  : absl::StrCat(path_prefix_, "/", request.key);
  http.query = request.query;
  http.headers = request.headers;
  if (request.only_if_absent) {
    http.headers.emplace_back(google_
                                  ? std::pair("x-goog-if-generation-match", "0")
                                  : std::pair("if-none-match", "*"));
  }
  http.body = request.body;
  http.receive_to = request.receive_to;
  http.receive_bytes = request.receive_bytes;
  // TLS protects the body better than its hash in the signature does, and for
  // less.
  AwsScope scope;
  scope.region = options_.region;
  if (google_) {
    scope.service = "storage";
    scope.google = true;
  }
  SignRequest(keys, scope, options_.clock->WallNowNs(),
              /*sign_body=*/scheme_ == "http", &http);
  absl::StatusOr<HttpResponse> response = options_.http->Do(http);
  if (!response.ok()) {
    return Annotate(response.status(),
                    absl::StrCat(request.method, " ", Describe(request.key)));
  }
  bool keys_have_ended = false;
  const absl::Status status = Judge(request, *response, &keys_have_ended);
  if (keys_have_ended && options_.credentials->Forget(keys)) {
    return absl::UnavailableError(status.message());  // with other keys
  }
  WEIR_RETURN_IF_ERROR(status);
  return response;
}

absl::Status S3Client::Judge(const S3Request& request,
                             const HttpResponse& response,
                             bool* keys_have_ended) {
  int status = response.status;
  // Complete and Copy begin to answer with 200 before they know.
  const bool late = status == 200 && request.method == "POST";
  if (status / 100 == 2 && !late) {
    return absl::OkStatus();
  }
  const StoreError error = ParseError(response);
  if (late) {
    if (error.code.empty()) {
      return absl::OkStatus();
    }
    status = 500;
  }
  // I2: of the request nothing but its method and its key.
  const std::string what =
      absl::StrCat(request.method, " ", Describe(request.key), ": ",
                   response.status, " ", Printable(error.code),
                   error.message.empty() ? "" : ": ", Printable(error.message));
  const bool elsewhere = status / 100 == 3 ||
                         error.code == "AuthorizationHeaderMalformed" ||
                         error.code == "IllegalLocationConstraintException";
  if (elsewhere) {
    return Invalid(what,
                   error.region.empty()
                       ? "; set AWS_REGION to the bucket's region"
                       : absl::StrCat("; the bucket is in another region: set "
                                      "AWS_REGION=",
                                      Printable(error.region)));
  }
  if (KeysHaveEnded(request.method, status, error)) {
    *keys_have_ended = true;
    return absl::UnauthenticatedError(
        absl::StrCat(what,
                     "; the session of the keys has ended, or is not of this "
                     "store: renew AWS_SESSION_TOKEN, the profile, or what "
                     "else they come from"));
  }
  return absl::Status(CodeOf(status, error),
                      absl::StrCat(what, Advice(options_, status, error)));
}

}  // namespace weir
