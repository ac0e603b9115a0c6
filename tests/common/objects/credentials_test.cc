// Each source of keys, with a network that a test makes up.
#include "common/objects/credentials.h"

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

// Answers by "METHOD host/path"; whatever else is asked finds nobody.
class FakeNetwork : public HttpClient {
 public:
  std::map<std::string, HttpResponse> answers;
  std::vector<HttpRequest> requests;
  std::string last_body;
  std::function<void()> meanwhile;  // is called once, before the answer

  absl::StatusOr<HttpResponse> Do(const HttpRequest& request) override {
    requests.push_back(request);
    last_body = std::string(request.body);
    if (const auto act = std::exchange(meanwhile, nullptr)) {
      act();
    }
    const auto found = answers.find(
        absl::StrCat(request.method, " ", request.host, request.path));
    if (found == answers.end()) {
      return absl::UnavailableError("nobody is there");
    }
    return found->second;
  }
  void Answer(const std::string& what, int status, std::string body) {
    HttpResponse response;
    response.status = status;
    response.body = std::move(body);
    answers[what] = response;
  }
};

class CredentialsTest : public testing::Test {
 protected:
  CredentialsTest() { set_["AWS_SHARED_CREDENTIALS_FILE"] = "/nonexistent"; }

  absl::StatusOr<AwsCredentials> Get() {
    if (source_ == nullptr) {
      CredentialSource::Options options;
      options.environment =
          [this](const std::string& name) -> std::optional<std::string> {
        const auto found = set_.find(name);
        return found == set_.end() ? std::nullopt
                                   : std::optional(found->second);
      };
      options.http = &network_;
      options.clock = &clock_;
      options.region = "eu-west-1";
      source_ = std::make_unique<CredentialSource>(options);
    }
    return source_->Get();
  }
  std::string KeyOrError() {
    const auto keys = Get();
    return keys.ok() ? keys->access_key : keys.status().ToString();
  }
  std::string File(const std::string& text) {
    const std::string path = MakeTempDir() + "/file";
    EXPECT_TRUE(Files::Real()->WriteAtomically(path, text).ok());
    return path;
  }

  std::map<std::string, std::string> set_;
  FakeNetwork network_;
  FakeClock clock_;
  std::unique_ptr<CredentialSource> source_;
};

constexpr char kStsAnswer[] =
    "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts\">"
    "<AssumeRoleWithWebIdentityResult><Credentials>"
    "<AccessKeyId>web</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"
    "<SessionToken>t</SessionToken>"
    "<Expiration>1970-01-01T01:00:00Z</Expiration>"
    "</Credentials></AssumeRoleWithWebIdentityResult>"
    "</AssumeRoleWithWebIdentityResponse>";

TEST_F(CredentialsTest, OfTheEnvironment) {
  set_["AWS_ACCESS_KEY_ID"] = "id";
  set_["AWS_SECRET_ACCESS_KEY"] = "secret";
  set_["AWS_SESSION_TOKEN"] = "token";
  const auto keys = Get();
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(keys->secret_key, "secret");
  EXPECT_EQ(keys->session_token, "token");
  EXPECT_TRUE(network_.requests.empty());
}

TEST_F(CredentialsTest, HalfAKeyIsSaid) {
  set_["AWS_ACCESS_KEY_ID"] = "id";
  EXPECT_TRUE(absl::IsInvalidArgument(Get().status())) << Get().status();
}

TEST_F(CredentialsTest, ALineBreakIsInNoKey) {
  set_["AWS_ACCESS_KEY_ID"] = "id\r\nx-injected: 1";
  set_["AWS_SECRET_ACCESS_KEY"] = "hidden";
  const absl::Status status = Get().status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_FALSE(absl::StrContains(status.message(), "injected")) << status;
}

TEST_F(CredentialsTest, OfAWebIdentity) {
  set_["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/weir";
  set_["AWS_WEB_IDENTITY_TOKEN_FILE"] = File("the-token\n");
  network_.Answer("POST sts.eu-west-1.amazonaws.com/", 200, kStsAnswer);
  EXPECT_EQ(KeyOrError(), "web");
  EXPECT_EQ(network_.last_body,
            "Action=AssumeRoleWithWebIdentity"
            "&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fweir"
            "&RoleSessionName=weir&Version=2011-06-15"
            "&WebIdentityToken=the-token");
}

// I1.
TEST_F(CredentialsTest, AWebIdentityThatIsRefusedIsSaidWithoutItsToken) {
  set_["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/weir";
  set_["AWS_WEB_IDENTITY_TOKEN_FILE"] = File("the-token");
  network_.Answer("POST sts.eu-west-1.amazonaws.com/", 403,
                  "<ErrorResponse><Error><Code>AccessDenied</Code>"
                  "<Message>not you</Message></Error></ErrorResponse>");
  const absl::Status status = Get().status();
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "AccessDenied: not you"));
  EXPECT_FALSE(absl::StrContains(status.message(), "the-token"));
}

// Whoever is told UNAUTHENTICATED may give up for good.
TEST_F(CredentialsTest, ASourceThatIsBusyIsUnavailable) {
  set_["AWS_ROLE_ARN"] = "role";
  set_["AWS_WEB_IDENTITY_TOKEN_FILE"] = File("token");
  const std::pair<int, std::string> answers[] = {
      {503, "ServiceUnavailable"},   {429, ""},
      {400, "Throttling"},           {400, "ThrottlingException"},
      {400, "RequestLimitExceeded"}, {400, "IDPCommunicationError"}};
  for (const auto& [status, code] : answers) {
    network_.Answer("POST sts.eu-west-1.amazonaws.com/", status,
                    absl::StrCat("<ErrorResponse><Error><Code>", code,
                                 "</Code></Error></ErrorResponse>"));
    EXPECT_TRUE(absl::IsUnavailable(Get().status())) << Get().status();
  }
  source_ = nullptr;
  set_ = {{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/keys"},
          {"AWS_SHARED_CREDENTIALS_FILE", "/nonexistent"}};
  network_.Answer("GET 169.254.170.23/keys", 500, "");
  EXPECT_TRUE(absl::IsUnavailable(Get().status())) << Get().status();
}

// I2.
TEST_F(CredentialsTest, KeysAreFetchedAnewBeforeTheyEnd) {
  set_["AWS_ROLE_ARN"] = "role";
  set_["AWS_WEB_IDENTITY_TOKEN_FILE"] = File("token");
  network_.Answer("POST sts.eu-west-1.amazonaws.com/", 200, kStsAnswer);
  EXPECT_EQ(KeyOrError(), "web");
  clock_.Advance(std::chrono::minutes(54));
  EXPECT_EQ(KeyOrError(), "web");
  EXPECT_EQ(network_.requests.size(), 1u);
  // STS does not answer: the old ones do to their end.
  network_.answers.clear();
  clock_.Advance(std::chrono::minutes(2));
  EXPECT_EQ(KeyOrError(), "web");
  EXPECT_EQ(network_.requests.size(), 2u);
  // It is not asked by each request.
  EXPECT_EQ(KeyOrError(), "web");
  EXPECT_EQ(network_.requests.size(), 2u);
  clock_.Advance(CredentialSource::kPause);
  EXPECT_EQ(KeyOrError(), "web");
  EXPECT_EQ(network_.requests.size(), 3u);
  clock_.Advance(std::chrono::minutes(5));
  EXPECT_TRUE(absl::IsUnavailable(Get().status())) << Get().status();
}

// I2.
TEST_F(CredentialsTest, OthersUseTheOldKeysWhileNewOnesAreFetched) {
  set_["AWS_ROLE_ARN"] = "role";
  set_["AWS_WEB_IDENTITY_TOKEN_FILE"] = File("token");
  network_.Answer("POST sts.eu-west-1.amazonaws.com/", 200, kStsAnswer);
  EXPECT_EQ(KeyOrError(), "web");
  clock_.Advance(std::chrono::minutes(56));
  std::future<std::string> other;
  network_.meanwhile = [&] {
    other = std::async(std::launch::async, [this] { return KeyOrError(); });
    EXPECT_EQ(other.wait_for(std::chrono::seconds(10)),
              std::future_status::ready);
  };
  EXPECT_EQ(KeyOrError(), "web");
  EXPECT_EQ(other.get(), "web");
  EXPECT_EQ(network_.requests.size(), 2u);
}

TEST_F(CredentialsTest, OfAProfile) {
  set_["AWS_SHARED_CREDENTIALS_FILE"] = File(
      "# mine\n[default]\naws_access_key_id = first\n"
      "aws_secret_access_key=a\n\n[other]\n  aws_access_key_id=second\n"
      "aws_secret_access_key = b\naws_session_token = c\n");
  EXPECT_EQ(KeyOrError(), "first");
  source_ = nullptr;
  set_["AWS_PROFILE"] = "other";
  const auto keys = Get();
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(keys->access_key, "second");
  EXPECT_EQ(keys->session_token, "c");
  source_ = nullptr;
  set_["AWS_PROFILE"] = "third";
  EXPECT_TRUE(absl::IsInvalidArgument(Get().status())) << Get().status();
}

TEST_F(CredentialsTest, OfAContainersAgent) {
  set_["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://169.254.170.23/v1/keys";
  set_["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = File("pod-token\n");
  network_.Answer("GET 169.254.170.23/v1/keys", 200,
                  R"({"AccessKeyId": "pod", "SecretAccessKey": "s",
                      "Token": "t", "Expiration": "1970-01-01T01:00:00Z"})");
  EXPECT_EQ(KeyOrError(), "pod");
  EXPECT_EQ(network_.requests[0].headers,
            (HttpRequest::Fields{{"authorization", "pod-token"}}));
}

TEST_F(CredentialsTest, OfTheMachine) {
  const std::string path =
      "169.254.169.254/latest/meta-data/iam/security-credentials/";
  network_.Answer("PUT 169.254.169.254/latest/api/token", 200, "session");
  network_.Answer("GET " + path, 200, "role-of-machine\n");
  network_.Answer("GET " + path + "role-of-machine", 200,
                  R"({"AccessKeyId": "machine", "SecretAccessKey": "s"})");
  EXPECT_EQ(KeyOrError(), "machine");
  EXPECT_EQ(network_.requests[2].headers,
            (HttpRequest::Fields{{"x-aws-ec2-metadata-token", "session"}}));
}

TEST_F(CredentialsTest, AMachineThatIsBusyIsUnavailable) {
  const std::string token = "PUT 169.254.169.254/latest/api/token";
  const std::string roles =
      "GET 169.254.169.254/latest/meta-data/iam/security-credentials/";
  network_.Answer(token, 200, "session");
  network_.Answer(roles, 429, "");
  EXPECT_TRUE(absl::IsUnavailable(Get().status())) << Get().status();
  network_.Answer(roles, 200, "role");
  network_.Answer(roles + "role", 500, "");
  EXPECT_TRUE(absl::IsUnavailable(Get().status())) << Get().status();
  network_.Answer(roles + "role", 200,
                  R"({"AccessKeyId": "machine", "SecretAccessKey": "s",
                      "Expiration": "1970-01-01T01:00:00Z"})");
  EXPECT_EQ(KeyOrError(), "machine");
  // It is there, so no answer does not mean that there is none.
  network_.answers.clear();
  clock_.Advance(std::chrono::hours(2));
  EXPECT_TRUE(absl::IsUnavailable(Get().status())) << Get().status();
  network_.Answer(token, 503, "");
  EXPECT_TRUE(absl::IsUnavailable(Get().status())) << Get().status();
  network_.Answer(token, 200, "session");
  network_.Answer(roles, 404, "");  // the machine has lost its role
  EXPECT_TRUE(absl::IsUnauthenticated(Get().status())) << Get().status();
}

TEST_F(CredentialsTest, NoneAtAllSaysWhereTheyWereLookedFor) {
  const absl::Status status = Get().status();
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "AWS_ACCESS_KEY_ID"));
  EXPECT_EQ(network_.requests.size(), 1u);  // the machine's, in vain
  source_ = nullptr;
  set_["AWS_EC2_METADATA_DISABLED"] = "true";
  EXPECT_TRUE(absl::IsUnauthenticated(Get().status()));
  EXPECT_EQ(network_.requests.size(), 1u);
}

}  // namespace
}  // namespace weir
