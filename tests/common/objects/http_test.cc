// libcurl's client against a server of cpp-httplib.
#include "common/objects/http.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "httplib.h"

namespace weir {
namespace {

class Server {
 public:
  Server() : port_(server_.bind_to_any_port("127.0.0.1")) {}
  ~Server() {
    server_.stop();
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  httplib::Server* operator->() { return &server_; }
  void Start() {
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) {
      std::this_thread::yield();
    }
  }
  HttpRequest To(const std::string& path) const {
    HttpRequest request;
    request.scheme = "http";
    request.host = absl::StrCat("127.0.0.1:", port_);
    request.path = path;
    return request;
  }

 private:
  httplib::Server server_;
  const int port_;  // is bound already
  std::thread thread_;
};

TEST(HttpTest, SendsAndReceivesWhatIsMeant) {
  Server server;
  server->Put("/a b", [](const httplib::Request& request,
                         httplib::Response& response) {
    response.set_header("X-Seen", request.get_header_value("x-mine"));
    response.set_content(request.body + "|" + request.get_param_value("q") +
                             "|" + request.get_header_value("content-type") +
                             request.get_header_value("expect"),
                         "text/plain");
  });
  server.Start();
  const auto client = HttpClient::Create({});
  HttpRequest request = server.To("/a b");
  request.method = "PUT";
  request.query = {{"q", "x&y"}};
  request.headers = {{"x-mine", "yes"}};
  const std::string body("b\0dy", 4);
  request.body = body;
  const auto response = client->Do(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(response->Header("x-seen"), "yes");
  EXPECT_EQ(response->body, body + "|x&y|");
}

TEST(HttpTest, ReceivesIntoTheCallersMemory) {
  Server server;
  server->Get("/data",
              [](const httplib::Request&, httplib::Response& response) {
                response.set_content("0123456789", "text/plain");
              });
  server->Get("/error",
              [](const httplib::Request&, httplib::Response& response) {
                response.status = 404;
                response.set_content("what is wrong", "text/plain");
              });
  server.Start();
  const auto client = HttpClient::Create({});
  char data[10];
  HttpRequest request = server.To("/data");
  request.receive_to = data;
  request.receive_bytes = sizeof(data);
  const auto response = client->Do(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(std::string(data, response->received), "0123456789");
  // More than there is room for, though the server means it well.
  request.receive_bytes = 9;
  const absl::Status status = client->Do(request).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("more than the 9 bytes that were asked for: "
                                 "does the store ignore Range?"));
  // An error's text goes to the body.
  request.path = "/error";
  const auto error = client->Do(request);
  ASSERT_TRUE(error.ok()) << error.status();
  EXPECT_EQ(error->status, 404);
  EXPECT_EQ(error->body, "what is wrong");
  EXPECT_EQ(error->received, 0u);
}

TEST(HttpTest, AnAnswerThatIsCutIsNone) {
  Server server;
  server->Get("/cut", [](const httplib::Request&, httplib::Response& response) {
    response.set_content_provider(
        100, "text/plain",
        [](size_t /*offset*/, size_t /*length*/, httplib::DataSink& sink) {
          sink.write("half", 4);
          return false;  // closes the connection
        });
  });
  server.Start();
  const auto client = HttpClient::Create({});
  const absl::Status status = client->Do(server.To("/cut")).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

// Slow is not stalled: a byte now and then is enough.
TEST(HttpTest, AnAnswerThatStallsIsNoneAndASlowOneIsWhole) {
  Server server;
  const auto answer = [&](const std::string& path, size_t bytes_moved) {
    server->Get(path, [bytes_moved](const httplib::Request&,
                                    httplib::Response& response) {
      response.set_content_provider(
          8, "text/plain",
          [bytes_moved](size_t offset, size_t, httplib::DataSink& sink) {
            std::this_thread::sleep_for(
                std::chrono::milliseconds(offset < bytes_moved ? 400 : 4000));
            return sink.write("x", 1);
          });
    });
  };
  answer("/slow", 8);
  answer("/stalls", 3);
  server.Start();
  const auto client = HttpClient::Create({.ca_file = "", .stalled_seconds = 1});
  const auto slow = client->Do(server.To("/slow"));
  ASSERT_TRUE(slow.ok()) << slow.status();
  EXPECT_EQ(slow->body, "xxxxxxxx");
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status status = client->Do(server.To("/stalls")).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(HttpTest, NobodyListens) {
  HttpRequest request;
  {
    // A server that never ran would keep its port.
    Server server;
    server.Start();
    request = server.To("/");
  }
  const auto client = HttpClient::Create({});
  const absl::Status status = client->Do(request).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(std::string(status.message()).find(request.host), std::string::npos)
      << status;
}

TEST(HttpTest, ARedirectionIsTheAnswer) {
  Server server;
  server->Get("/", [](const httplib::Request&, httplib::Response& response) {
    response.set_redirect("http://127.0.0.1:1/other");
  });
  server.Start();
  const auto client = HttpClient::Create({});
  const auto response = client->Do(server.To("/"));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 302);
}

TEST(HttpTest, EncodesForPathsAndQueries) {
  EXPECT_EQ(PercentEncode("a/b c~-_.\xc3\xa4"), "a%2Fb%20c~-_.%C3%A4");
  EXPECT_EQ(PercentEncode("a/b", /*keep_slashes=*/true), "a/b");
  EXPECT_EQ(EncodeQuery({{"b", "2"}, {"a", "x y"}, {"A", ""}}),
            "A=&a=x%20y&b=2");
}

}  // namespace
}  // namespace weir
