// What answers mean, and when a request is repeated.
#include "common/objects/s3_client.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/fake_s3_store.h"

namespace weir {
namespace {

using Fault = FakeS3::Fault;

// One answer for all requests, which it keeps.
class OneAnswer : public HttpClient {
 public:
  HttpResponse answer;
  std::vector<HttpRequest> requests;
  absl::StatusOr<HttpResponse> Do(const HttpRequest& request) override {
    requests.push_back(request);
    return answer;
  }
};

// Says that a session has ended, unless it is `good`. To HEAD a store has no
// more than a number to say.
class SessionStore : public HttpClient {
 public:
  std::string good;
  int requests = 0;
  absl::StatusOr<HttpResponse> Do(const HttpRequest& request) override {
    ++requests;
    const HttpRequest::Fields& sent = request.headers;
    HttpResponse answer;
    answer.status =
        std::count(sent.begin(), sent.end(),
                   std::pair(std::string("x-amz-security-token"), good)) == 1
            ? 200
            : 400;
    if (answer.status != 200 && request.method != "HEAD") {
      answer.body = "<Error><Code>ExpiredToken</Code></Error>";
    }
    return answer;
  }
};

struct Asked {
  OneAnswer http;
  std::unique_ptr<CredentialSource> credentials;
  std::unique_ptr<S3Client> client;
};

std::unique_ptr<Asked> Ask(S3Client::Options options, int status,
                           const std::string& body) {
  auto asked = std::make_unique<Asked>();
  asked->http.answer.status = status;
  asked->http.answer.body = body;
  CredentialSource::Options credentials;
  credentials.environment = [](const std::string& name) {
    return absl::StrContains(name, "KEY") ? std::optional<std::string>("hidden")
                                          : std::nullopt;
  };
  asked->credentials = std::make_unique<CredentialSource>(credentials);
  options.http = &asked->http;
  options.credentials = asked->credentials.get();
  options.sleep = [](std::chrono::milliseconds) {};
  if (options.bucket.empty()) {
    options.bucket = "bucket";
  }
  options.region = "eu-west-1";
  auto client = S3Client::Create(options);
  EXPECT_TRUE(client.ok()) << client.status();
  asked->client = *std::move(client);
  return asked;
}

std::string ErrorXml(const std::string& code, const std::string& more = "") {
  return absl::StrCat("<?xml version=\"1.0\"?><Error><Code>", code,
                      "</Code><Message>why</Message>", more, "</Error>");
}

TEST(S3ClientTest, AnswersAreInstructions) {
  const struct {
    int status;
    std::string body;
    absl::StatusCode code;
    std::string message;
  } cases[] = {
      {404, ErrorXml("NoSuchKey"), absl::StatusCode::kNotFound,
       "GET s3://bucket/a/key: 404 NoSuchKey: why"},
      {404, "", absl::StatusCode::kNotFound, "GET s3://bucket/a/key: 404"},
      {404, ErrorXml("NoSuchBucket"), absl::StatusCode::kInvalidArgument,
       "make the bucket 'bucket'"},
      {403, ErrorXml("AccessDenied"), absl::StatusCode::kUnauthenticated,
       "the keys have no right"},
      {403, ErrorXml("SignatureDoesNotMatch"),
       absl::StatusCode::kUnauthenticated, "look at AWS_ACCESS_KEY_ID"},
      {403, ErrorXml("RequestTimeTooSkewed"),
       absl::StatusCode::kUnauthenticated, "set this machine's clock"},
      {400,
       ErrorXml("AuthorizationHeaderMalformed", "<Region>us-east-2</Region>"),
       absl::StatusCode::kInvalidArgument, "set AWS_REGION=us-east-2"},
      {301, ErrorXml("PermanentRedirect"), absl::StatusCode::kInvalidArgument,
       "set AWS_REGION"},
      {412, ErrorXml("PreconditionFailed"), absl::StatusCode::kAlreadyExists,
       "412"},
      {416, ErrorXml("InvalidRange"), absl::StatusCode::kDataLoss, "416"},
      {400, ErrorXml("EntityTooSmall"), absl::StatusCode::kInvalidArgument,
       "EntityTooSmall"},
      {400, ErrorXml("RequestTimeout"), absl::StatusCode::kUnavailable,
       "(tried 9 times)"},
      {409, ErrorXml("ConditionalRequestConflict"),
       absl::StatusCode::kUnavailable, "(tried 9 times)"},
      {429, "", absl::StatusCode::kUnavailable, "(tried 9 times)"},
      {503, ErrorXml("SlowDown"), absl::StatusCode::kUnavailable,
       "(tried 9 times)"},
      // What a server says goes into one line, whatever it says.
      {400, "<Error><Code>a\nb</Code></Error>",
       absl::StatusCode::kInvalidArgument, "a\\nb"},
      {400, "no XML", absl::StatusCode::kInvalidArgument, "400"},
  };
  for (const auto& c : cases) {
    const auto asked = Ask({}, c.status, c.body);
    const absl::Status status = asked->client->Call({.key = "a/key"}).status();
    EXPECT_EQ(status.code(), c.code) << c.body << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), c.message))
        << c.message << " is not in " << status;
    EXPECT_FALSE(absl::StrContains(status.message(), "hidden")) << status;
    EXPECT_EQ(asked->http.requests.size(),
              c.code == absl::StatusCode::kUnavailable ? 9u : 1u)
        << status;
  }
}

// Whoever has ended starts again with the keys that are there then.
TEST(S3ClientTest, KeysThatHaveEndedAreFetchedAnewOnce) {
  for (const char* method : {"GET", "HEAD"}) {
    std::string session = "first";
    SessionStore http;
    http.good = "first";
    CredentialSource::Options of_keys;
    of_keys.environment =
        [&session](const std::string& name) -> std::optional<std::string> {
      return name == "AWS_SESSION_TOKEN" ? session : "hidden";
    };
    CredentialSource credentials(of_keys);
    S3Client::Options options;
    options.bucket = "bucket";
    options.region = "eu-west-1";
    options.http = &http;
    options.credentials = &credentials;
    options.sleep = [](std::chrono::milliseconds) {};
    const auto client = S3Client::Create(options);
    ASSERT_TRUE(client.ok()) << client.status();
    S3Request request;
    request.method = method;
    request.key = "key";
    ASSERT_TRUE((*client)->Call(request).ok()) << method;
    session = "second";
    http.good = "second";
    EXPECT_TRUE((*client)->Call(request).ok()) << method;
    EXPECT_EQ(http.requests, 3);
    http.good = "third";  // and nobody has it
    const absl::Status status = (*client)->Call(request).status();
    EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(),
                                  "the session of the keys has ended"))
        << status;
    EXPECT_EQ(http.requests, 5);
  }
}

TEST(S3ClientTest, AnErrorInAnAnswerOf200IsOne) {
  const auto asked = Ask({}, 200, ErrorXml("InternalError"));
  const S3Request request = {.method = "POST", .key = "key"};
  EXPECT_TRUE(absl::IsUnavailable(asked->client->Call(request).status()));
}

TEST(S3ClientTest, TheBucketIsInTheHostOrInThePath) {
  const struct {
    S3Client::Options options;
    std::string url;
  } cases[] = {
      {{}, "https://bucket.s3.eu-west-1.amazonaws.com/key"},
      {{.bucket = "with.dots"},
       "https://s3.eu-west-1.amazonaws.com/with.dots/key"},
      {{.path_style = true}, "https://s3.eu-west-1.amazonaws.com/bucket/key"},
      {{.endpoint = "http://minio:9000/"}, "http://minio:9000/bucket/key"},
      {{.endpoint = "https://store.example", .path_style = false},
       "https://bucket.store.example/key"},
  };
  for (const auto& c : cases) {
    const auto asked = Ask(c.options, 200, "");
    ASSERT_TRUE(asked->client->Call({.key = "key"}).ok());
    const HttpRequest& sent = asked->http.requests.at(0);
    EXPECT_EQ(absl::StrCat(sent.scheme, "://", sent.host, sent.path), c.url);
  }
}

TEST(S3ClientTest, NamesAreChecked) {
  for (const char* bucket : {"", "ab", "Big", "a/b", "a b"}) {
    S3Client::Options options;
    options.bucket = bucket;
    options.region = "r";
    EXPECT_TRUE(absl::IsInvalidArgument(S3Client::Create(options).status()))
        << bucket;
  }
  for (const char* endpoint :
       {"minio:9000", "ftp://x", "http://", "http://a/b"}) {
    S3Client::Options options;
    options.bucket = "bucket";
    options.region = "r";
    options.endpoint = endpoint;
    const absl::Status status = S3Client::Create(options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << endpoint;
    EXPECT_TRUE(absl::StrContains(status.message(), endpoint)) << status;
  }
}

// I1.
TEST(S3ClientTest, PausesGrow) {
  FakeS3Store fake;
  fake.s3()->SetFaults([](const HttpRequest&) { return Fault::kSlowDown; });
  EXPECT_TRUE(absl::IsUnavailable(
      fake.store()->WriteAtomically("s3://bucket/key", "x")));
  const auto pauses = fake.pauses();
  ASSERT_EQ(pauses.size(), size_t{S3Client::kTriesMax - 1});
  std::chrono::milliseconds whole = S3Client::kPauseMin;
  for (const std::chrono::milliseconds pause : pauses) {
    EXPECT_LE(pause, whole);
    EXPECT_GE(pause, whole / 2);
    whole = std::min(whole * 2, S3Client::kPauseMax);
  }
}

TEST(S3ClientTest, EveryTryIsSignedAnew) {
  const auto asked = Ask({}, 503, "");
  EXPECT_FALSE(asked->client->Call({.key = "key"}).ok());
  for (const HttpRequest& sent : asked->http.requests) {
    int signatures = 0;
    for (const auto& [name, value] : sent.headers) {
      signatures += name == "authorization" ? 1 : 0;
    }
    EXPECT_EQ(signatures, 1);
  }
}

TEST(S3ClientTest, GoogleIsKnownByItsHost) {
  for (const auto& [endpoint, google] : std::map<std::string, bool>{
           {"https://storage.googleapis.com", true},
           {"https://Storage.googleapis.com:443", true},
           {"https://bucket.storage.googleapis.com", true},
           {"https://mystorage.googleapis.com", false},
           {"https://storage.googleapis.com.example.org", false}}) {
    S3Client::Options options;
    options.endpoint = endpoint;
    const auto asked = Ask(options, 200, "");
    S3Request request;
    request.method = "PUT";
    request.key = "a";
    request.only_if_absent = true;
    ASSERT_TRUE(asked->client->Call(request).ok());
    bool found = false;
    for (const auto& [name, value] : asked->http.requests.at(0).headers) {
      found |= name == "x-goog-if-generation-match" && value == "0";
    }
    EXPECT_EQ(found, google) << endpoint;
  }
}

}  // namespace
}  // namespace weir
