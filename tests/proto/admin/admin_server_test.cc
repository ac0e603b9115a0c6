#include "proto/admin/admin_server.h"

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/proto/admin/http_client.h"

namespace weir {
namespace {

const char kToken[] =
    "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

AdminServer::Options WithToken() {
  AdminServer::Options options;
  options.token = kToken;
  options.task = {.role = "chief", .index = 0, .host = "here"};
  return options;
}

std::unique_ptr<AdminServer> Start(AdminServer::Options options) {
  auto server = AdminServer::Start(std::move(options));
  EXPECT_TRUE(server.ok()) << server.status();
  (*server)->Handle("/report", AdminServer::Access::kToken,
                    [](const AdminServer::Request& request) {
                      return AdminServer::Answer{
                          "application/json",
                          absl::StrCat("{", request.Param("of"), "}")};
                    });
  (*server)->Handle("/version", AdminServer::Access::kOpen,
                    [](const AdminServer::Request&) {
                      return AdminServer::Answer{"text/plain", "1"};
                    });
  return *std::move(server);
}

int Code(const std::string& answer) {
  return absl::StartsWith(answer, "HTTP/1.1 ") ? std::stoi(answer.substr(9, 3))
                                               : -1;
}

std::string Field(const std::string& answer, const std::string& name) {
  const size_t at = answer.find("\r\n" + name + ": ");
  if (at == std::string::npos) {
    return "";
  }
  const size_t begin = at + name.size() + 4;
  return answer.substr(begin, answer.find("\r\n", begin) - begin);
}

std::string Body(const std::string& answer) {
  return answer.substr(answer.find("\r\n\r\n") + 4);
}

TEST(AdminServerTest, SaysToEverybodyThatItIsWell) {
  const auto server = Start(WithToken());
  const std::string answer = HttpGet(server->port(), "/healthz");
  EXPECT_EQ(Code(answer), 200);
  EXPECT_EQ(Body(answer), "ok\n");
}

TEST(AdminServerTest, IsReadyWhenTheTaskSaysSo) {
  const auto server = Start(WithToken());
  std::string answer = HttpGet(server->port(), "/readyz");
  EXPECT_EQ(Code(answer), 503);
  EXPECT_EQ(Body(answer), "the task is starting\n");
  absl::Status ready = absl::UnavailableError("waits for a slot");
  server->SetReady([&ready] { return ready; });
  answer = HttpGet(server->port(), "/readyz");
  EXPECT_EQ(Code(answer), 503);
  EXPECT_EQ(Body(answer), "waits for a slot\n");
  ready = absl::OkStatus();
  EXPECT_EQ(Code(HttpGet(server->port(), "/readyz")), 200);
}

TEST(AdminServerTest, WantsTheTokenForAllThatIsNotOpen) {
  const auto server = Start(WithToken());
  const int port = server->port();
  EXPECT_EQ(Code(HttpGet(port, "/version")), 200);
  std::string wrong = kToken;
  wrong.back() ^= 1;
  for (const std::string& target :
       {std::string("/report"), absl::StrCat("/report?token=", wrong),
        absl::StrCat("/report?token=", kToken, "0"),
        std::string("/report?token="), std::string("/metrics"),
        std::string("//report"), std::string("/./report"),
        std::string("/x/../report"), std::string("/..%2freport"),
        std::string("/healthz/../report"), std::string("/report/")}) {
    const std::string answer = HttpGet(port, target);
    EXPECT_TRUE(Code(answer) == 401 || Code(answer) == 404) << target;
    EXPECT_FALSE(absl::StrContains(answer, "{")) << target;
    EXPECT_FALSE(absl::StrContains(answer, "Set-Cookie")) << target;
  }
  for (const std::string& field :
       {std::string("Bearer "), absl::StrCat("Bearer ", wrong),
        absl::StrCat("Basic ", kToken), std::string(kToken)}) {
    EXPECT_EQ(Code(HttpGet(port, "/report",
                           absl::StrCat("Authorization: ", field, "\r\n"))),
              401)
        << field;
  }
  EXPECT_EQ(Code(HttpGet(port, "/report",
                         absl::StrCat("Cookie: weir=", kToken, "\r\n"))),
            401);
}

TEST(AdminServerTest, AnswersABearerOfTheToken) {
  const auto server = Start(WithToken());
  const std::string by = absl::StrCat("Authorization: Bearer ", kToken, "\r\n");
  const std::string answer = HttpGet(server->port(), "/report?of=a", by);
  EXPECT_EQ(Code(answer), 200);
  EXPECT_EQ(Field(answer, "Content-Type"), "application/json");
  EXPECT_EQ(Body(answer), "{a}");
  EXPECT_EQ(Code(HttpGet(server->port(), "/metrics", by)), 200);
}

TEST(AdminServerTest, TakesTheTokenOfALinkForACookie) {
  const auto server = Start(WithToken());
  const std::string first = HttpGet(
      server->port(), absl::StrCat("/report?of=a&token=", kToken, "&to=b"));
  EXPECT_EQ(Code(first), 303);
  EXPECT_EQ(Field(first, "Location"), "./report?of=a&to=b");
  EXPECT_FALSE(absl::StrContains(first, "{a}"));
  const std::string cookie = Field(first, "Set-Cookie");
  EXPECT_TRUE(absl::StrContains(cookie, "; HttpOnly; SameSite=Lax")) << cookie;
  const std::string pair = cookie.substr(0, cookie.find(';'));
  const std::string second =
      HttpGet(server->port(), "/report?of=a",
              absl::StrCat("Cookie: other=1; ", pair, "; more=2\r\n"));
  EXPECT_EQ(Code(second), 200);
  EXPECT_EQ(Body(second), "{a}");
}

// A browser sends the cookies of all ports of a host.
TEST(AdminServerTest, HasACookieOfItsOwnForEachJob) {
  const auto server = Start(WithToken());
  AdminServer::Options other = WithToken();
  other.token.front() = 'f';
  const auto another = Start(other);
  const auto name = [](const AdminServer& of, const std::string& token) {
    const std::string cookie =
        Field(HttpGet(of.port(), "/report?token=" + token), "Set-Cookie");
    return cookie.substr(0, cookie.find('='));
  };
  EXPECT_NE(name(*server, kToken), name(*another, other.token));
  EXPECT_FALSE(absl::StrContains(name(*server, kToken), "0011"));
}

TEST(AdminServerTest, ShowsMetricsToEverybodyWhereThatWasAskedFor) {
  AdminServer::Options options = WithToken();
  options.metrics_open = true;
  const auto server = Start(options);
  server->AddMetrics([](MetricPage* page) {
    page->AddGauge("weir_job_loss", "The newest loss.", {}, 0.5);
  });
  const std::string answer = HttpGet(server->port(), "/metrics");
  EXPECT_EQ(Code(answer), 200);
  EXPECT_EQ(Field(answer, "Content-Type"), MetricPage::kContentType);
  for (const char* line : {"\nweir_job_loss 0.5\n", "\nweir_build_info{version",
                           "\nprocess_open_fds "}) {
    EXPECT_TRUE(absl::StrContains(answer, line)) << line << answer;
  }
  EXPECT_EQ(Code(HttpGet(server->port(), "/report")), 401);
}

TEST(AdminServerTest, IsOpenToThisHostWhereNobodyProvesWhoHeIs) {
  AdminServer::Options options;
  options.insecure = true;
  const auto server = Start(options);
  EXPECT_EQ(Code(HttpGet(server->port(), "/report")), 200);
  EXPECT_EQ(Code(HttpGet(server->port(), "/metrics")), 200);
  // A page of the web whose name was made to point to this host.
  RawClient rebound(server->port());
  rebound.Send("GET /report HTTP/1.1\r\nHost: evil.example:80\r\n\r\n");
  EXPECT_EQ(Code(rebound.ReadAll()), 403);
}

TEST(AdminServerTest, IsClosedWhereAnInsecureJobCanBeReachedFromElsewhere) {
  AdminServer::Options options;
  options.insecure = true;
  options.address = "0.0.0.0";
  options.metrics_open = true;
  const auto server = Start(options);
  EXPECT_EQ(Code(HttpGet(server->port(), "/report")), 403);
  EXPECT_EQ(Code(HttpGet(server->port(), "/metrics")), 200);
  EXPECT_EQ(Code(HttpGet(server->port(), "/healthz")), 200);
}

// A secured job whose task was given nothing to know people by.
TEST(AdminServerTest, IsClosedWithoutATokenInASecuredJob) {
  const auto server = Start({});
  EXPECT_EQ(Code(HttpGet(server->port(), "/report")), 403);
  EXPECT_EQ(Code(HttpGet(server->port(), "/report?token=")), 403);
  EXPECT_EQ(Code(HttpGet(server->port(), "/metrics")), 403);
}

TEST(AdminServerTest, SaysByItsCodeWhatWentWrong) {
  const auto server = Start(WithToken());
  server->Handle("/curve", AdminServer::Access::kOpen,
                 [](const AdminServer::Request& request)
                     -> absl::StatusOr<AdminServer::Answer> {
                   if (request.Param("of") == "b") {
                     return absl::NotFoundError("no such curve");
                   }
                   return absl::UnavailableError("no step is done yet");
                 });
  EXPECT_EQ(Code(HttpGet(server->port(), "/curve?of=b")), 404);
  const std::string answer = HttpGet(server->port(), "/curve?of=a");
  EXPECT_EQ(Code(answer), 503);
  EXPECT_EQ(Body(answer), "no step is done yet\n");
}

// I3.
TEST(AdminServerTest, ForgetsAllAtTheEndOfTheScope) {
  AdminServer::Options options = WithToken();
  options.metrics_open = true;
  const auto server = Start(options);
  {
    double loss = 0.25;
    const AdminScope scope(server.get());
    EXPECT_EQ(Code(HttpGet(server->port(), "/readyz")), 200);
    server->AddMetrics([&loss](MetricPage* page) {
      page->AddGauge("weir_job_loss", "The newest loss.", {}, loss);
    });
    EXPECT_TRUE(absl::StrContains(HttpGet(server->port(), "/metrics"),
                                  "weir_job_loss 0.25"));
  }
  EXPECT_FALSE(
      absl::StrContains(HttpGet(server->port(), "/metrics"), "weir_job_loss"));
  EXPECT_EQ(Body(HttpGet(server->port(), "/readyz")), "the task is ending\n");
  EXPECT_EQ(Code(HttpGet(server->port(), "/version")), 404);
  EXPECT_EQ(Code(HttpGet(server->port(), "/healthz")), 200);
}

TEST(AdminServerTest, SaysHowToReachIt) {
  const auto server = Start(WithToken());
  EXPECT_EQ(server->address(), absl::StrCat("127.0.0.1:", server->port()));
}

}  // namespace
}  // namespace weir
