#include "proto/admin/http_codec.h"

#include <signal.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

// Answers with what it was asked.
HttpCodec Echo() {
  return HttpCodec([](const HttpCodec::Request& request) {
    HttpCodec::Response answer;
    answer.body = absl::StrCat("path=", request.path, " query=", request.query);
    for (const auto& [name, value] : request.params) {
      absl::StrAppend(&answer.body, " ", name, "=", value);
    }
    absl::StrAppend(&answer.body, " host=", request.host,
                    " cookie=", request.cookie, " by=", request.authorization);
    answer.headers = {{"X-Mine", "yes"}};
    return answer;
  });
}

TEST(HttpCodecTest, ReadsARequestAndWritesItsAnswer) {
  HttpCodec codec = Echo();
  const std::string answer = codec.Answer(
      "GET /a%20b?x=1%2B2&y HTTP/1.1\r\nHost: here:1\r\nCookie: c=d\r\n"
      "authorization: Bearer t\r\n\r\n");
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_TRUE(absl::EndsWith(answer,
                             "\r\n\r\npath=/a b query=x=1%2B2&y x=1+2 y= "
                             "host=here:1 cookie=c=d by=Bearer t"))
      << answer;
  for (const char* field :
       {"Connection: close\r\n", "Content-Type: text/plain; charset=utf-8\r\n",
        "X-Mine: yes\r\n", "Cache-Control: no-store\r\n",
        "X-Content-Type-Options: nosniff\r\n",
        "Referrer-Policy: no-referrer\r\n",
        "Content-Security-Policy: default-src 'self';"}) {
    EXPECT_TRUE(absl::StrContains(answer, field)) << field << answer;
  }
}

TEST(HttpCodecTest, AnswersHeadWithoutTheBody) {
  HttpCodec codec = Echo();
  const std::string answer = codec.Answer("HEAD / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_TRUE(absl::EndsWith(answer, "\r\n\r\n")) << answer;
}

TEST(HttpCodecTest, TakesNoOtherMethod) {
  HttpCodec codec = Echo();
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE"}) {
    const std::string answer =
        codec.Answer(absl::StrCat(method,
                                  " / HTTP/1.1\r\nContent-Length: 5\r\n"
                                  "Expect: 100-continue\r\n\r\n"));
    EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 405 ")) << answer;
    EXPECT_TRUE(absl::StrContains(answer, "Allow: GET, HEAD\r\n"));
  }
}

TEST(HttpCodecTest, RefusesWhatIsNoRequest) {
  HttpCodec codec = Echo();
  for (const std::string& head :
       {std::string("nonsense\r\n\r\n"), std::string("GET /\r\n\r\n"),
        std::string("GET / HTTP/2.0\r\n\r\n"),
        std::string("BREW / HTTP/1.1\r\n\r\n"),
        std::string("GET /\0 HTTP/1.1\r\n\r\n", 19), std::string("\r\n\r\n"),
        std::string("\x16\x03\x01\x02\r\n\r\n")}) {
    EXPECT_TRUE(absl::StartsWith(codec.Answer(head), "HTTP/1.1 400 "))
        << codec.Answer(head);
  }
}

// What would multiply the answer, or take time, does not reach the library.
TEST(HttpCodecTest, NeitherCutsNorCompresses) {
  HttpCodec codec([](const HttpCodec::Request&) {
    return HttpCodec::Response{.body = std::string(1000, 'a')};
  });
  std::string ranges = "Range: bytes=0-0";
  while (ranges.size() < 7000) {
    ranges += ",0-0";
  }
  const std::string answer = codec.Answer(absl::StrCat(
      "GET / HTTP/1.1\r\nAccept-Encoding: br, gzip\r\n", ranges, "\r\n\r\n"));
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_TRUE(absl::EndsWith(answer, std::string(1000, 'a')));
  EXPECT_LT(answer.size(), 2000u);
}

TEST(HttpCodecTest, LetsNoAnswerForgeFields) {
  HttpCodec codec([](const HttpCodec::Request& request) {
    HttpCodec::Response answer;
    answer.headers = {{"Location", request.path}};
    return answer;
  });
  const std::string answer =
      codec.Answer("GET /%0d%0aSet-Cookie:%20a=b HTTP/1.1\r\n\r\n");
  EXPECT_FALSE(absl::StrContains(answer, "Set-Cookie")) << answer;
}

TEST(HttpCodecTest, LeavesTheProgramsSignalsAlone) {
  struct sigaction before = {};
  sigaction(SIGPIPE, nullptr, &before);
  HttpCodec codec = Echo();
  struct sigaction after = {};
  sigaction(SIGPIPE, nullptr, &after);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
}

}  // namespace
}  // namespace weir
