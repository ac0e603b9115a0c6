// Signatures that AWS has published, and one of botocore's.
#include "common/objects/aws_signature.h"

#include <string>

#include "gtest/gtest.h"

namespace weir {
namespace {

// The keys of all examples in "Authenticating Requests: Using the Authorization
// Header", Amazon S3 API Reference.
const AwsCredentials kKeys = {"AKIAIOSFODNN7EXAMPLE",
                              "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
constexpr int64_t kThen = 1369353600'000'000'000;  // 2013-05-24T00:00:00Z

HttpRequest ToExampleBucket() {
  HttpRequest request;
  request.host = "examplebucket.s3.amazonaws.com";
  return request;
}

std::string SignatureOf(const HttpRequest& request) {
  for (const auto& [name, value] : request.headers) {
    if (name == "authorization") {
      return value.substr(value.rfind('=') + 1);
    }
  }
  return "none";
}

std::string Signed(HttpRequest request, bool sign_body = true) {
  SignRequest(kKeys, {.region = "us-east-1"}, kThen, sign_body, &request);
  return SignatureOf(request);
}

TEST(AwsSignatureTest, OfAnObjectsRange) {
  HttpRequest request = ToExampleBucket();
  request.path = "/test.txt";
  request.headers = {{"range", "bytes=0-9"}};
  EXPECT_EQ(Signed(request),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(AwsSignatureTest, OfABodyAndAPathThatIsEncoded) {
  HttpRequest request = ToExampleBucket();
  request.method = "PUT";
  request.path = "/test$file.text";
  request.headers = {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                     {"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
  request.body = "Welcome to Amazon S3.";
  EXPECT_EQ(Signed(request),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

TEST(AwsSignatureTest, OfAQueryWithoutAValue) {
  HttpRequest request = ToExampleBucket();
  request.query = {{"lifecycle", ""}};
  EXPECT_EQ(Signed(request),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

TEST(AwsSignatureTest, OfAQueryThatIsSorted) {
  HttpRequest request = ToExampleBucket();
  request.query = {{"prefix", "J"}, {"max-keys", "2"}};
  EXPECT_EQ(Signed(request),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

// aws_signatures.py prints these, from botocore 1.44.8.
TEST(AwsSignatureTest, IsThatOfBotocore) {
  HttpRequest request;
  request.scheme = "http";
  request.host = "localhost:9000";
  request.method = "PUT";
  request.path = "/bucket/a b/\xc3\xa4+~.bin";
  request.query = {{"uploadId", "x/y=="}, {"partNumber", "12"}};
  request.body = "a part";
  const AwsCredentials keys = {"ACCESS", "secret/+", "a-session-token"};
  HttpRequest in_the_open = request;
  SignRequest(keys, {.region = "eu-central-1"}, kThen, /*sign_body=*/true,
              &in_the_open);
  EXPECT_EQ(SignatureOf(in_the_open),
            "41801d17ddbfd61bcf8bce8354c9d19cfdc0d0c1f3a39bc80d0896653fc3fc97");
  SignRequest(keys, {.region = "eu-central-1"}, kThen, /*sign_body=*/false,
              &request);
  EXPECT_EQ(SignatureOf(request),
            "54acd86e025f1ae04abc67d27f268fab02d8d61a2754fcdf6a189d04aa07ee50");
}

// aws_signatures.py again: botocore's signer under Google's names.
TEST(AwsSignatureTest, OfGoogle) {
  HttpRequest request;
  request.host = "storage.googleapis.com";
  request.method = "PUT";
  request.path = "/bucket/a b/\xc3\xa4+~.bin";
  request.headers = {{"x-goog-if-generation-match", "0"}};
  request.body = "an object";
  AwsScope scope;
  scope.region = "auto";
  scope.service = "storage";
  scope.google = true;
  SignRequest({"GOOG1EXAMPLE", "secret/+", ""}, scope, kThen,
              /*sign_body=*/true, &request);
  EXPECT_EQ(SignatureOf(request),
            "fe8f198646ec29070c61b2140c7ab3ce63d611ebbbcb63beedf9a6ff676e64bb");
  EXPECT_EQ(request.headers.back().second.find(
                "GOOG4-HMAC-SHA256 Credential=GOOG1EXAMPLE/20130524/auto/"
                "storage/goog4_request, SignedHeaders=host;"
                "x-goog-content-sha256;x-goog-date;"
                "x-goog-if-generation-match, Signature="),
            0U);
}

}  // namespace
}  // namespace weir
