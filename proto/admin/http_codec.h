// Turns the head of an HTTP request into the bytes of its answer.
//
// Place: HttpListener brings heads and sends answers, AdminServer decides what
// an answer is. Between them cpp-httplib reads the one and writes the other.
//
// Of a head the library gets the request line and the few fields that an
// admin port uses. So no client makes it compress, cut into ranges, wait for a
// body or keep the connection: each costs time or memory that nobody here
// asks for. Methods are GET and HEAD.
//
// Every answer says that the page may load nothing from elsewhere, be in no
// frame, and be kept nowhere.
//
// Threads: compatible.
#ifndef PROTO_ADMIN_HTTP_CODEC_H_
#define PROTO_ADMIN_HTTP_CODEC_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace weir {

class HttpCodec {
 public:
  struct Request {
    std::string path;   // decoded
    std::string query;  // behind the question mark, as it came
    std::multimap<std::string, std::string> params;  // of the query, decoded
    // Header fields; "" where there is none.
    std::string host;
    std::string authorization;
    std::string cookie;
  };

  struct Response {
    int status = 200;
    std::string content_type = "text/plain; charset=utf-8";
    std::string body;
    std::vector<std::pair<std::string, std::string>> headers = {};
  };

  explicit HttpCodec(std::function<Response(const Request&)> route);
  ~HttpCodec();

  // `head`: a request up to and with its empty line. Returns the whole answer,
  // after which the connection is to be closed.
  std::string Answer(absl::string_view head);

 private:
  class Library;

  const std::unique_ptr<Library> library_;
};

}  // namespace weir

#endif  // PROTO_ADMIN_HTTP_CODEC_H_
