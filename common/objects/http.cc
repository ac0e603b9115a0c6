#include "common/objects/http.h"

#include <curl/curl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/mutex.h"
#include "common/base/status.h"

namespace weir {
namespace {

// Of an answer that goes to no buffer of the caller's: a manifest, a list.
constexpr size_t kBodyBytesMax = size_t{64} << 20;
constexpr size_t kHeaderCountMax = 200;
constexpr long kUploadBufferBytes = 512L << 10;
constexpr long kReceiveBufferBytes = 512L << 10;

// Where systems keep the CAs that they trust: Debian, Fedora, SUSE, Alpine. The
// libcurl of a bundle knows Debian's alone.
constexpr const char* kAuthorityFiles[] = {
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};

// The first of them that is there; "" for none.
std::string AuthorityFile() {
  for (const char* file : kAuthorityFiles) {
    if (access(file, R_OK) == 0) {
      return file;
    }
  }
  return "";
}

// Where libcurl puts one answer.
struct Answer {
  const HttpRequest* request;
  HttpResponse response;
  bool too_long = false;
};

size_t TakeHeader(char* data, size_t size, size_t count, void* user) {
  auto* answer = static_cast<Answer*>(user);
  const absl::string_view line(data, size * count);
  // "HTTP/1.1 200 OK". After "100 Continue" the real answer begins anew.
  if (line.substr(0, 5) == "HTTP/") {
    answer->response.headers.clear();
    const size_t blank = line.find(' ');
    if (blank == absl::string_view::npos ||
        !absl::SimpleAtoi(line.substr(blank + 1, 3),
                          &answer->response.status)) {
      return 0;
    }
    return line.size();
  }
  const size_t colon = line.find(':');
  if (colon != absl::string_view::npos &&
      answer->response.headers.size() < kHeaderCountMax) {
    answer->response.headers[absl::AsciiStrToLower(line.substr(0, colon))] =
        std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return line.size();
}

size_t TakeBody(char* data, size_t size, size_t count, void* user) {
  auto* answer = static_cast<Answer*>(user);
  HttpResponse& response = answer->response;
  const size_t bytes = size * count;
  if (answer->request->receive_to != nullptr && response.status / 100 == 2) {
    if (bytes > answer->request->receive_bytes - response.received) {
      answer->too_long = true;
      return 0;
    }
    std::memcpy(answer->request->receive_to + response.received, data, bytes);
    response.received += bytes;
    return bytes;
  }
  if (bytes > kBodyBytesMax - response.body.size()) {
    answer->too_long = true;
    return 0;
  }
  response.body.append(data, bytes);
  return bytes;
}

// The same request would have the same answer again.
absl::Status TooLong(const HttpRequest& request, const HttpResponse& response) {
  const std::string text =
      absl::StrCat(request.method, " ", request.scheme, "://", request.host,
                   request.path, ": the answer has more than ");
  if (request.receive_to == nullptr || response.status / 100 != 2) {
    return Invalid(text, kBodyBytesMax, " bytes, which is too long");
  }
  return Invalid(
      text, "the ", request.receive_bytes, " bytes that were asked for",
      response.status == 206 ? "" : ": does the store ignore Range?");
}

absl::Status CurlError(CURLcode code, const char* detail,
                       const HttpRequest& request) {
  const std::string text =
      absl::StrCat(request.scheme, "://", request.host, ": ",
                   detail[0] != '\0' ? detail : curl_easy_strerror(code));
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_ISSUER_ERROR:
      return absl::UnauthenticatedError(
          absl::StrCat(text,
                       "; name the file of the CA that signed the server's "
                       "certificate by AWS_CA_BUNDLE"));
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return absl::InvalidArgumentError(text);
    default:
      return absl::UnavailableError(text);
  }
}

class CurlClient : public HttpClient {
 public:
  explicit CurlClient(Options options) : options_(std::move(options)) {
    if (options_.ca_file.empty()) {
      options_.ca_file = AuthorityFile();
    }
    // Once for the process, and never undone: other threads may use libcurl.
    static const CURLcode initialized = curl_global_init(CURL_GLOBAL_DEFAULT);
    static_cast<void>(initialized);
  }
  ~CurlClient() override {
    for (CURL* handle : idle_) {
      curl_easy_cleanup(handle);
    }
  }

  absl::StatusOr<HttpResponse> Do(const HttpRequest& request) override {
    CURL* const handle = Take();
    if (handle == nullptr) {
      return absl::ResourceExhaustedError("no memory for an HTTP request");
    }
    Answer answer{&request, {}};
    char detail[CURL_ERROR_SIZE] = "";
    curl_slist* const headers = SetUp(handle, request);
    curl_easy_setopt(handle, CURLOPT_HEADERDATA, &answer);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, &answer);
    curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, detail);
    const CURLcode code = curl_easy_perform(handle);
    curl_slist_free_all(headers);
    if (code == CURLE_OK) {
      Keep(handle);
      return std::move(answer.response);
    }
    const absl::Status error = answer.too_long
                                   ? TooLong(request, answer.response)
                                   : CurlError(code, detail, request);
    curl_easy_cleanup(handle);
    return error;
  }

 private:
  // A handle without options, with its open connections.
  CURL* Take() {
    MutexLock lock(&mutex_);
    if (idle_.empty()) {
      return curl_easy_init();
    }
    CURL* const handle = idle_.back();
    idle_.pop_back();
    curl_easy_reset(handle);
    return handle;
  }
  void Keep(CURL* handle) {
    MutexLock lock(&mutex_);
    idle_.push_back(handle);
  }

  // Sets all options but the receivers. Returns the headers, which the caller
  // frees after the request.
  curl_slist* SetUp(CURL* handle, const HttpRequest& request) const {
    std::string url =
        absl::StrCat(request.scheme, "://", request.host,
                     PercentEncode(request.path, /*keep_slashes=*/true));
    if (!request.query.empty()) {
      absl::StrAppend(&url, "?", EncodeQuery(request.query));
    }
    curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
    curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    // What is signed is what is sent: "/a/../b" may be an object's name.
    curl_easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT,
                     static_cast<long>(request.connect_seconds > 0
                                           ? request.connect_seconds
                                           : options_.connect_seconds));
    curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME,
                     static_cast<long>(options_.stalled_seconds));
    curl_easy_setopt(handle, CURLOPT_UPLOAD_BUFFERSIZE, kUploadBufferBytes);
    curl_easy_setopt(handle, CURLOPT_BUFFERSIZE, kReceiveBufferBytes);
    curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, TakeHeader);
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, TakeBody);
    if (!options_.ca_file.empty()) {
      curl_easy_setopt(handle, CURLOPT_CAINFO, options_.ca_file.c_str());
    }
    if (request.method == "HEAD") {
      curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
    } else if (request.method != "GET") {
      curl_easy_setopt(
          handle, CURLOPT_POSTFIELDS,
          request.body.data() == nullptr ? "" : request.body.data());
      curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE,
                       static_cast<curl_off_t>(request.body.size()));
      curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
    }
    // libcurl's own: neither is signed, and the first costs a round trip.
    curl_slist* headers = curl_slist_append(nullptr, "Expect:");
    bool has_type = false;
    for (const auto& [name, value] : request.headers) {
      headers =
          curl_slist_append(headers, absl::StrCat(name, ": ", value).c_str());
      has_type |= name == "content-type";
    }
    if (!has_type) {
      headers = curl_slist_append(headers, "Content-Type:");
    }
    curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers);
    return headers;
  }

  Options options_;
  Mutex mutex_;
  std::vector<CURL*> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::string HttpResponse::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

bool IsPassingAnswer(int status) {
  return status >= 500 || status == 429 || status == 408;
}

std::unique_ptr<HttpClient> HttpClient::Create(const Options& options) {
  return std::make_unique<CurlClient>(options);
}

std::string PercentEncode(absl::string_view text, bool keep_slashes) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || c == '-' || c == '.' || c == '_' ||
        c == '~' || (keep_slashes && c == '/')) {
      encoded.push_back(c);
    } else {
      encoded.push_back('%');
      encoded.push_back(kDigits[byte >> 4]);
      encoded.push_back(kDigits[byte & 15]);
    }
  }
  return encoded;
}

std::string EncodeQuery(const HttpRequest::Fields& query) {
  HttpRequest::Fields encoded;
  for (const auto& [name, value] : query) {
    encoded.emplace_back(PercentEncode(name), PercentEncode(value));
  }
  std::sort(encoded.begin(), encoded.end());
  std::string text;
  for (const auto& [name, value] : encoded) {
    absl::StrAppend(&text, text.empty() ? "" : "&", name, "=", value);
  }
  return text;
}

}  // namespace weir
