#include "common/objects/aws_signature.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/io/sha256.h"

namespace weir {
namespace {

// What is called otherwise by each.
struct Names {
  const char* algorithm;
  const char* key_prefix;
  const char* header_prefix;
  const char* scope_end;
};
constexpr Names kAws = {"AWS4-HMAC-SHA256", "AWS4", "x-amz-", "aws4_request"};
constexpr Names kGoogle = {"GOOG4-HMAC-SHA256", "GOOG4", "x-goog-",
                           "goog4_request"};
constexpr char kUnsigned[] = "UNSIGNED-PAYLOAD";

std::string Hmac(const std::string& key, const std::string& text) {
  unsigned char code[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), code,
       &bytes);
  return std::string(reinterpret_cast<const char*>(code), bytes);
}

// "20260102T030405Z"
std::string Stamp(int64_t wall_ns) {
  const std::time_t seconds = wall_ns / 1'000'000'000;
  std::tm utc = {};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y%m%dT%H%M%SZ", &utc);
  return text;
}

// Values without blanks at their ends, and one blank for several in a row.
std::string Trimmed(const std::string& value) {
  std::string trimmed;
  for (const char c : value) {
    if (c != ' ' || (!trimmed.empty() && trimmed.back() != ' ')) {
      trimmed.push_back(c);
    }
  }
  if (!trimmed.empty() && trimmed.back() == ' ') {
    trimmed.pop_back();
  }
  return trimmed;
}

std::string SigningKey(const AwsCredentials& credentials,
                       const std::string& date, const AwsScope& scope,
                       const Names& names) {
  const std::string of_date =
      Hmac(absl::StrCat(names.key_prefix, credentials.secret_key), date);
  return Hmac(Hmac(Hmac(of_date, scope.region), scope.service),
              names.scope_end);
}

}  // namespace

void SignRequest(const AwsCredentials& credentials, const AwsScope& scope,
                 int64_t wall_ns, bool sign_body, HttpRequest* request) {
  const Names& names = scope.google ? kGoogle : kAws;
  const std::string prefix = names.header_prefix;
  const std::string stamp = Stamp(wall_ns);
  const std::string date = stamp.substr(0, 8);
  const std::string body_hash =
      sign_body ? Sha256Hex(request->body) : std::string(kUnsigned);
  HttpRequest::Fields& headers = request->headers;
  headers.emplace_back("host", request->host);
  headers.emplace_back(prefix + "content-sha256", body_hash);
  headers.emplace_back(prefix + "date", stamp);
  if (!credentials.session_token.empty()) {
    headers.emplace_back(prefix + "security-token", credentials.session_token);
  }
  HttpRequest::Fields sorted = headers;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::string> header_names;
  std::string lines;
  for (const auto& [name, value] : sorted) {
    header_names.push_back(name);
    absl::StrAppend(&lines, name, ":", Trimmed(value), "\n");
  }
  const std::string signed_names = absl::StrJoin(header_names, ";");
  std::string path = PercentEncode(request->path, /*keep_slashes=*/true);
  if (scope.service != "s3" && !scope.google) {
    path = PercentEncode(path, /*keep_slashes=*/true);
  }
  const std::string canonical = absl::StrCat(
      request->method, "\n", path, "\n", EncodeQuery(request->query), "\n",
      lines, "\n", signed_names, "\n", body_hash);
  const std::string where = absl::StrCat(date, "/", scope.region, "/",
                                         scope.service, "/", names.scope_end);
  const std::string to_sign = absl::StrCat(names.algorithm, "\n", stamp, "\n",
                                           where, "\n", Sha256Hex(canonical));
  const std::string signature = absl::BytesToHexString(
      Hmac(SigningKey(credentials, date, scope, names), to_sign));
  headers.emplace_back(
      "authorization",
      absl::StrCat(names.algorithm, " Credential=", credentials.access_key, "/",
                   where, ", SignedHeaders=", signed_names,
                   ", Signature=", signature));
}

}  // namespace weir
