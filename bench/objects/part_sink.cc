// An object store that drops what it gets and sends zeros, so that a bench of
// its clients measures them and not the store.
//
//   part_sink PORT MIB DELAY_MS
//
// Every object can be read and has MIB MiB, or, once it was written, as many
// bytes as came. Each answer waits for DELAY_MS ms, as if the way to the store
// and back took so long; the link's bandwidth is not limited.
//
// Place: ./weir bench objects. A client that breaks the protocol is cut off.
// Threads: one for each connection.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/mutex.h"
#include "common/io/file_descriptor.h"

namespace weir {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr size_t kHeadBytesMax = size_t{64} << 10;

struct Request {
  std::string method;
  std::string path;
  std::string query;
  std::map<std::string, std::string> headers;  // names in lower case

  bool begins_upload() const {
    return method == "POST" && absl::StartsWith(query, "uploads");
  }
  int64_t body_bytes() const {
    const auto found = headers.find("content-length");
    int64_t bytes = 0;
    return found != headers.end() && absl::SimpleAtoi(found->second, &bytes)
               ? bytes
               : 0;
  }
};

class Sink {
 public:
  Sink(int64_t bytes, std::chrono::milliseconds delay)
      : bytes_(bytes), delay_(delay) {}

  // Serves one connection until it ends.
  void Serve(FileDescriptor connection) {
    std::vector<char> buffer(kBufferBytes);
    std::string held;  // read beyond the request before
    Request request;
    while (ReadHead(connection.get(), &held, &request) &&
           DropBody(connection.get(), request, &held, &buffer) &&
           Answer(connection.get(), request, buffer)) {
    }
  }

 private:
  static bool SendAll(int connection, absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent =
          send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) {
        return false;
      }
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  static bool ReadHead(int connection, std::string* held, Request* request) {
    size_t end = 0;
    while ((end = held->find("\r\n\r\n")) == std::string::npos) {
      char piece[4096];
      const ssize_t got = recv(connection, piece, sizeof(piece), 0);
      if (got <= 0 || held->size() > kHeadBytesMax) {
        return false;
      }
      held->append(piece, static_cast<size_t>(got));
    }
    const std::vector<std::string> lines =
        absl::StrSplit(held->substr(0, end), "\r\n");
    held->erase(0, end + 4);
    const std::vector<std::string> words = absl::StrSplit(lines[0], ' ');
    if (words.size() != 3) {
      return false;
    }
    *request = Request();
    request->method = words[0];
    const std::pair<std::string, std::string> target =
        absl::StrSplit(words[1], absl::MaxSplits('?', 1));
    request->path = target.first;
    request->query = target.second;
    for (size_t i = 1; i < lines.size(); ++i) {
      const std::pair<std::string, std::string> field =
          absl::StrSplit(lines[i], absl::MaxSplits(':', 1));
      request->headers[absl::AsciiStrToLower(field.first)] =
          std::string(absl::StripAsciiWhitespace(field.second));
    }
    return true;
  }

  static bool DropBody(int connection, const Request& request,
                       std::string* held, std::vector<char>* buffer) {
    const auto expect = request.headers.find("expect");
    if (expect != request.headers.end() &&
        !SendAll(connection, "HTTP/1.1 100 Continue\r\n\r\n")) {
      return false;
    }
    auto left = static_cast<size_t>(request.body_bytes());
    const size_t taken = std::min(left, held->size());
    held->erase(0, taken);
    left -= taken;
    while (left > 0) {
      const ssize_t got =
          recv(connection, buffer->data(), std::min(left, buffer->size()), 0);
      if (got <= 0) {
        return false;
      }
      left -= static_cast<size_t>(got);
    }
    return true;
  }

  bool Answer(int connection, const Request& request,
              const std::vector<char>& buffer) {
    std::this_thread::sleep_for(delay_);
    std::string body;
    std::string headers = "ETag: \"0\"\r\n";
    int64_t object_bytes = SizeOf(request);
    int64_t first = 0;
    int status = 200;
    if (request.begins_upload()) {
      body =
          "<InitiateMultipartUploadResult><UploadId>1</UploadId>"
          "</InitiateMultipartUploadResult>";
    } else if (request.method == "POST") {
      body =
          "<CompleteMultipartUploadResult><ETag>0</ETag>"
          "</CompleteMultipartUploadResult>";
    } else if (request.method == "GET" || request.method == "HEAD") {
      const auto range = request.headers.find("range");
      int64_t last = object_bytes - 1;
      if (range != request.headers.end()) {
        absl::string_view text = range->second;
        absl::ConsumePrefix(&text, "bytes=");
        const std::pair<std::string, std::string> ends =
            absl::StrSplit(text, absl::MaxSplits('-', 1));
        if (!absl::SimpleAtoi(ends.first, &first)) {
          return false;
        }
        int64_t asked = 0;
        if (absl::SimpleAtoi(ends.second, &asked)) {
          last = std::min(last, asked);
        }
        status = 206;
        absl::StrAppend(&headers, "Content-Range: bytes ", first, "-", last,
                        "/", object_bytes, "\r\n");
      }
      object_bytes = last + 1 - first;
      absl::StrAppend(&headers,
                      "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n");
    }
    const bool reads = request.method == "GET" || request.method == "HEAD";
    const int64_t length =
        reads ? object_bytes : static_cast<int64_t>(body.size());
    if (!SendAll(connection,
                 absl::StrCat("HTTP/1.1 ", status, " OK\r\n", headers,
                              "Content-Length: ", length, "\r\n\r\n", body))) {
      return false;
    }
    if (request.method != "GET") {
      return true;
    }
    for (int64_t left = object_bytes; left > 0;) {
      const size_t piece = std::min(static_cast<size_t>(left), buffer.size());
      if (!SendAll(connection, absl::string_view(buffer.data(), piece))) {
        return false;
      }
      left -= static_cast<int64_t>(piece);
    }
    return true;
  }

  // The bytes of the request's object, with what the request brings.
  int64_t SizeOf(const Request& request) {
    MutexLock lock(&mutex_);
    if (request.method == "PUT" || request.begins_upload()) {
      int64_t& bytes = written_[request.path];
      // A new object begins with its only PUT, or with its upload.
      bytes = absl::StrContains(request.query, "partNumber=") ? bytes : 0;
      bytes += request.body_bytes();
    }
    const auto found = written_.find(request.path);
    return found == written_.end() ? bytes_ : found->second;
  }

  const int64_t bytes_;
  const std::chrono::milliseconds delay_;
  Mutex mutex_;
  std::map<std::string, int64_t> written_ ABSL_GUARDED_BY(mutex_);
};

int Main(int argc, char** argv) {
  int port = 0;
  int64_t mib = 0;
  int delay_ms = 0;
  if (argc != 4 || !absl::SimpleAtoi(argv[1], &port) ||
      !absl::SimpleAtoi(argv[2], &mib) ||
      !absl::SimpleAtoi(argv[3], &delay_ms)) {
    std::fprintf(stderr, "usage: part_sink PORT MIB DELAY_MS\n");
    return 2;
  }
  Sink sink(mib << 20, std::chrono::milliseconds(delay_ms));
  const FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address),
           sizeof(address)) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0) {
    std::perror("part_sink");
    return 1;
  }
  for (;;) {
    FileDescriptor connection(
        accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.get() < 0) {
      continue;
    }
    setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    std::thread([&sink, connection = std::move(connection)]() mutable {
      sink.Serve(std::move(connection));
    }).detach();
  }
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return weir::Main(argc, argv); }
