// One HTTP request and its answer, and the client that sends it.
//
// Place: S3Client and the sources of credentials call it; tests put their own
// in its place.
//
// Threads: a client is safe. A request is one owner's.
// Errors: UNAVAILABLE       no whole answer came: no connection, one that was
//                           cut, or one on which nothing moved for 30 s.
//                           Whether the server has done what was asked is not
//                           known.
//         UNAUTHENTICATED   the server's certificate is not to be trusted.
//         INVALID_ARGUMENT  the URL or the file of CAs is of no use; or the
//                           answer is longer than what was asked for.
//         An answer of any status code is OK.
#ifndef COMMON_OBJECTS_HTTP_H_
#define COMMON_OBJECTS_HTTP_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weir {

struct HttpRequest {
  using Fields = std::vector<std::pair<std::string, std::string>>;

  std::string method = "GET";
  std::string scheme = "https";
  std::string host;  // with ":port" unless the scheme says it
  // As it is meant; the client encodes it. Begins with '/'.
  std::string path = "/";
  Fields query;                // as it is meant
  Fields headers;              // names in lower case
  absl::string_view body;      // borrowed until the answer
  char* receive_to = nullptr;  // where the body of an answer of 2xx goes
  size_t receive_bytes = 0;    // the room there
  int connect_seconds = 0;     // how long to try to connect; 0: the client's
};

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // unless it went to receive_to
  size_t received = 0;                         // bytes in receive_to

  // The value of a header; empty if it was not sent.
  std::string Header(const std::string& name) const;
};

// Whether the same request may have another answer a little later, as far as
// the status code says: 408, 429 and 5xx.
bool IsPassingAnswer(int status);

class HttpClient {
 public:
  struct Options {
    std::string ca_file;  // of trusted CAs, PEM; "": the system's
    int connect_seconds = 10;
    // A transfer ends when less than a byte a second moved for so long.
    int stalled_seconds = 30;
  };

  virtual ~HttpClient() = default;
  // Sends the request and waits for the answer. It is sent once, and no
  // redirection is followed.
  virtual absl::StatusOr<HttpResponse> Do(const HttpRequest& request) = 0;

  // The client of libcurl. It keeps connections open for the next request.
  static std::unique_ptr<HttpClient> Create(const Options& options);
};

// `text` with every byte but A-Z a-z 0-9 - . _ ~ as %XX, and '/' too unless
// `keep_slashes` (RFC 3986, section 2.1).
std::string PercentEncode(absl::string_view text, bool keep_slashes = false);
// "a=1&b=x%20y" in the order of the encoded names and values.
std::string EncodeQuery(const HttpRequest::Fields& query);

}  // namespace weir

#endif  // COMMON_OBJECTS_HTTP_H_
