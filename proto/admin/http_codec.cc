#include "proto/admin/http_codec.h"

#include <signal.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "httplib.h"

namespace weir {
namespace {

constexpr absl::string_view kFieldsUsed[] = {
    "host:", "authorization:", "cookie:"};

const httplib::Headers& DefaultHeaders() {
  static const auto& headers = *new httplib::Headers{
      {"Cache-Control", "no-store"},
      {"Content-Security-Policy",
       "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; "
       "base-uri 'none'; form-action 'none'"},
      {"Referrer-Policy", "no-referrer"},
      {"X-Content-Type-Options", "nosniff"},
  };
  return headers;
}

// The request line and the fields that are used.
std::string Reduce(absl::string_view head) {
  std::string reduced;
  bool is_first = true;
  for (const absl::string_view line : absl::StrSplit(head, "\r\n")) {
    const bool is_used = std::any_of(
        std::begin(kFieldsUsed), std::end(kFieldsUsed), [&](const auto field) {
          return absl::StartsWithIgnoreCase(line, field);
        });
    if (is_first || is_used) {
      absl::StrAppend(&reduced, line, "\r\n");
    }
    is_first = false;
  }
  return reduced + "\r\n";
}

// What the library reads from and writes to in place of a connection.
class Exchange : public httplib::Stream {
 public:
  explicit Exchange(std::string in) : in_(std::move(in)) {}

  bool is_readable() const override { return read_ < in_.size(); }
  bool is_writable() const override { return true; }
  ssize_t read(char* to, size_t bytes) override {
    const size_t count = std::min(bytes, in_.size() - read_);
    std::memcpy(to, in_.data() + read_, count);
    read_ += count;
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char* from, size_t bytes) override {
    out_.append(from, bytes);
    return static_cast<ssize_t>(bytes);
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return -1; }

  std::string TakeAnswer() { return std::move(out_); }

 private:
  const std::string in_;
  size_t read_ = 0;
  std::string out_;
};

HttpCodec::Request Understood(const httplib::Request& request) {
  HttpCodec::Request understood;
  understood.path = request.path;
  const size_t mark = request.target.find('?');
  if (mark != std::string::npos) {
    understood.query = request.target.substr(mark + 1);
  }
  understood.params = request.params;
  understood.host = request.get_header_value("Host");
  understood.authorization = request.get_header_value("Authorization");
  understood.cookie = request.get_header_value("Cookie");
  return understood;
}

// Around the constructor of a server of the library, which has SIGPIPE ignored.
// That is for the program to decide, and nothing here needs it.
class KeptSigpipe {
 public:
  KeptSigpipe() { sigaction(SIGPIPE, nullptr, &before_); }
  ~KeptSigpipe() { sigaction(SIGPIPE, &before_, nullptr); }

 private:
  struct sigaction before_ = {};
};

}  // namespace

class HttpCodec::Library : public httplib::Server {
 public:
  explicit Library(std::function<Response(const Request&)> route)
      : route_(std::move(route)) {
    set_default_headers(DefaultHeaders());
    set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          Route(request, &response);
          return HandlerResponse::Handled;
        });
  }

  std::string Process(absl::string_view head) {
    Exchange exchange(Reduce(head));
    bool closed = false;
    process_request(exchange, /*close_connection=*/true, closed, nullptr);
    return exchange.TakeAnswer();
  }

 private:
  void Route(const httplib::Request& request, httplib::Response* response) {
    Response answer;
    if (request.method == "GET" || request.method == "HEAD") {
      answer = route_(Understood(request));
    } else {
      answer = {.status = 405, .body = "GET and HEAD only\n"};
      answer.headers = {{"Allow", "GET, HEAD"}};
    }
    response->status = answer.status;
    response->set_content(answer.body, answer.content_type);
    for (const auto& [name, value] : answer.headers) {
      response->set_header(name, value);
    }
  }

  const std::function<Response(const Request&)> route_;
};

HttpCodec::HttpCodec(std::function<Response(const Request&)> route)
    : library_([&route] {
        const KeptSigpipe kept;
        return std::make_unique<Library>(std::move(route));
      }()) {}

HttpCodec::~HttpCodec() = default;

std::string HttpCodec::Answer(absl::string_view head) {
  return library_->Process(head);
}

}  // namespace weir
