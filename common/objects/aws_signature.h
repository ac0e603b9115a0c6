// Signs a request as AWS's services and those like them want it: Signature
// Version 4.
//
// Place: S3Client signs every request, and the source of a web identity's
// credentials its own. libcurl 7.88 can sign, too, but sorts no query and
// encodes paths another way than S3.
//
// Threads: safe.
// Source: AWS, "Signature Version 4 signing process"; Amazon S3 API Reference,
//   "Authenticating Requests: Using the Authorization Header"; Google, "Cloud
//   Storage XML API", "Canonical requests".
#ifndef COMMON_OBJECTS_AWS_SIGNATURE_H_
#define COMMON_OBJECTS_AWS_SIGNATURE_H_

#include <cstdint>
#include <string>

#include "common/objects/http.h"

namespace weir {

struct AwsCredentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // "": the keys are for long

  bool operator==(const AwsCredentials&) const = default;
};

struct AwsScope {
  std::string region;          // "eu-central-1"
  std::string service = "s3";  // whose paths are encoded once
  // Cloud Storage signs in the same way under other names, and refuses requests
  // that have headers of both. Its service is "storage".
  bool google = false;
};

// Adds the headers host, x-amz-date, x-amz-content-sha256, with a session token
// x-amz-security-token, and authorization; for Google x-goog-date and so on.
// All headers of `request` are signed, so none may be added afterwards. With
// `sign_body` the signature holds the body's SHA-256; without it the connection
// has to protect the body.
// REQUIRES: the names of headers are in lower case, and none is there twice.
void SignRequest(const AwsCredentials& credentials, const AwsScope& scope,
                 int64_t wall_ns, bool sign_body, HttpRequest* request);

}  // namespace weir

#endif  // COMMON_OBJECTS_AWS_SIGNATURE_H_
