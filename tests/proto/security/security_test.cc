#include "proto/security/security.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/security/certificates.h"
#include "tests/common/expect_error.h"
#include "tests/common/temp_dir.h"
#include "tests/proto/security/echo_server.h"
#include "tests/support/wait_until.h"

namespace weir {
namespace {

using testing::EndsWith;

class Environment : public testing::Environment {
  void SetUp() override { SetUpTls(); }
};
const auto* const kEnvironment =
    testing::AddGlobalTestEnvironment(new Environment);

Security::Options WithSecret(char c) {
  Security::Options options;
  options.secret = std::string(32, c);
  return options;
}

std::shared_ptr<const Security> Make(const Security::Options& options,
                                     PeerRole role, int index = 0) {
  auto made = Security::Create(options, role, index);
  EXPECT_TRUE(made.ok()) << made.status();
  return *made;
}

void Write(const std::string& path, const std::string& text) {
  // As certificate managers do: a new file takes the old one's place.
  std::ofstream(path + ".new") << text;
  std::filesystem::rename(path + ".new", path);
}

void WriteFiles(const std::string& dir, const TaskCertificate& task) {
  std::filesystem::create_directories(dir);
  Write(dir + "/tls.key", task.key);
  Write(dir + "/tls.crt", task.certificate);
  Write(dir + "/ca.crt", task.authority);
}

// A directory with the certificate of a task.
Security::Options WithFiles(const CertificateAuthority& authority,
                            const PeerIdentity& identity,
                            Validity validity = {}) {
  Security::Options options;
  options.tls_dir = MakeTempDir();
  options.refresh_seconds = 1;
  WriteFiles(options.tls_dir, authority.Issue(identity, validity));
  return options;
}

PeerIdentity Id(PeerRole role, int index = 0, const std::string& job = "j") {
  return {.job = job, .role = role, .index = index};
}

TEST(SecurityTest, TasksWithTheSecretKnowEachOther) {
  EchoServer ps(Make(WithSecret('a'), PeerRole::kPs));
  const auto worker = Make(WithSecret('a'), PeerRole::kWorker, 3);
  const auto answer = ps.Call(worker->ToPs());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*answer, worker->self().ToUri());
  EXPECT_THAT(*answer, EndsWith("/worker/3"));
}

TEST(SecurityTest, NobodyElseGetsAnAnswer) {
  EchoServer ps(Make(WithSecret('a'), PeerRole::kPs));
  // Another secret, and no TLS.
  EXPECT_EQ(
      ps.Call(Make(WithSecret('b'), PeerRole::kWorker)->ToPs()).status().code(),
      absl::StatusCode::kUnavailable);
  EXPECT_EQ(ps.Call(grpc::InsecureChannelCredentials()).status().code(),
            absl::StatusCode::kUnavailable);
  // TLS without a certificate: the authority alone is no proof.
  const auto authority =
      CertificateAuthority::FromSecret(*JobSecret::Parse(std::string(32, 'a')));
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = authority.certificate();
  EXPECT_EQ(ps.Call(grpc::SslCredentials(ssl)).status().code(),
            absl::StatusCode::kUnavailable);
  // The handshakes are over when the peers are gone.
  const auto counts = [&] { return ps.listener().counts(); };
  EXPECT_EQ(counts().proven, 0);
  EXPECT_GE(counts().accepted, 3);
}

TEST(SecurityTest, AClientHoldsTheServerToItsRole) {
  EchoServer worker(Make(WithSecret('a'), PeerRole::kWorker, 0));
  EchoServer other(Make(WithSecret('a'), PeerRole::kWorker, 1));
  const auto self = Make(WithSecret('a'), PeerRole::kWorker, 2);
  // Worker 0 may host the chief, and is no ps; worker 1 is neither.
  EXPECT_TRUE(worker.Call(self->ToChief()).ok());
  EXPECT_EQ(worker.Call(self->ToPs()).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(other.Call(self->ToChief()).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(SecurityTest, CertificatesOfFilesDoTheSame) {
  const auto authority = CertificateAuthority::Draw();
  EchoServer ps(Make(WithFiles(authority, Id(PeerRole::kPs)), PeerRole::kPs));
  const auto worker = Make(WithFiles(authority, Id(PeerRole::kWorker, 3)),
                           PeerRole::kWorker, 3);
  const auto answer = ps.Call(worker->ToPs());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*answer, "weir://j/worker/3");
  // Another job of the same authority reaches the server, which says why not.
  Security::Options other =
      WithFiles(authority, Id(PeerRole::kWorker, 0, "other"));
  grpc::SslCredentialsOptions ssl;
  const TaskCertificate stranger =
      authority.Issue(Id(PeerRole::kWorker, 0, "other"));
  EXPECT_EQ(ps.Call(Make(other, PeerRole::kWorker)->ToPs()).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(SecurityTest, AnExpiredCertificateIsNone) {
  const auto authority = CertificateAuthority::Draw();
  EchoServer ps(Make(WithFiles(authority, Id(PeerRole::kPs)), PeerRole::kPs));
  const auto expired =
      Make(WithFiles(authority, Id(PeerRole::kWorker),
                     {.begin_s = 0, .end_s = time(nullptr) - 10}),
           PeerRole::kWorker);
  EXPECT_FALSE(ps.Call(expired->ToPs()).ok());
  const auto early = Make(WithFiles(authority, Id(PeerRole::kWorker),
                                    {.begin_s = time(nullptr) + 3600}),
                          PeerRole::kWorker);
  EXPECT_FALSE(ps.Call(early->ToPs()).ok());
}

TEST(SecurityTest, TakesUpNewFiles) {
  const auto authority = CertificateAuthority::Draw();
  const auto next = CertificateAuthority::Draw();
  const Security::Options ps_files = WithFiles(authority, Id(PeerRole::kPs));
  EchoServer ps(Make(ps_files, PeerRole::kPs));
  const auto worker =
      Make(WithFiles(next, Id(PeerRole::kWorker)), PeerRole::kWorker);
  EXPECT_FALSE(ps.Call(worker->ToPs()).ok());
  WriteFiles(ps_files.tls_dir, next.Issue(Id(PeerRole::kPs)));
  EXPECT_TRUE(WaitUntil([&] { return ps.Call(worker->ToPs()).ok(); }));
}

TEST(SecurityTest, MapsNamesOfAnotherForm) {
  const auto rules = IdentityRules::Create(
      "j", {"spiffe://td/ns/n/sa/weir-worker=worker", "spiffe://td/x=admin"});
  ASSERT_TRUE(rules.ok());
  const auto worker = rules->Identify({"spiffe://td/ns/n/sa/weir-worker"});
  ASSERT_TRUE(worker.ok());
  EXPECT_EQ(worker->ToUri(), "weir://j/worker/*");
  ExpectError(rules->Identify({"spiffe://td/ns/n/sa/other"}).status(),
              absl::StatusCode::kUnauthenticated,
              "is of no task of job j: it names spiffe://td/ns/n/sa/other");
  ExpectError(rules->Identify({"weir://k/worker/0"}).status(),
              absl::StatusCode::kUnauthenticated, "weir://k/worker/0");
  ExpectError(rules->Identify({}).status(), absl::StatusCode::kUnauthenticated,
              "it names nobody");
  ExpectInvalid(IdentityRules::Create("j", {"spiffe://td/x=king"}).status(),
                "--identity spiffe://td/x=king");
  ExpectInvalid(IdentityRules::Create("j", {"worker"}).status(),
                "is not <URI>=<role>");
}

TEST(SecurityTest, NothingIsOpenByAccident) {
  ExpectInvalid(Security::Create({}, PeerRole::kPs, 0).status(),
                "set WEIR_SECRET or WEIR_SECRET_FILE");
  Security::Options two = WithSecret('a');
  two.insecure = true;
  ExpectInvalid(Security::Create(two, PeerRole::kPs, 0).status(),
                "--insecure (WEIR_INSECURE) and WEIR_SECRET are both set");
  Security::Options insecure;
  insecure.insecure = true;
  EXPECT_FALSE(Make(insecure, PeerRole::kPs)->secured());
}

TEST(SecurityTest, SaysWhatIsWrongWithTheFiles) {
  const auto authority = CertificateAuthority::Draw();
  Security::Options options = WithFiles(authority, Id(PeerRole::kWorker, 1));
  ExpectInvalid(Security::Create(options, PeerRole::kPs, 1).status(),
                "is of weir://j/worker/1, and this task is ps 1");
  ExpectInvalid(Security::Create(options, PeerRole::kWorker, 2).status(),
                "this task is worker 2");
  Write(options.tls_dir + "/tls.crt", "junk");
  ExpectInvalid(Security::Create(options, PeerRole::kWorker, 1).status(),
                "no certificate in PEM");
  std::filesystem::remove(options.tls_dir + "/tls.key");
  ExpectInvalid(Security::Create(options, PeerRole::kWorker, 1).status(),
                "tls.key");
}

TEST(SecurityTest, WarnsOfACertificateThatNobodyWouldTrust) {
  const auto authority = CertificateAuthority::Draw();
  Security::Options options = WithFiles(authority, Id(PeerRole::kWorker));
  testing::internal::CaptureStderr();
  EXPECT_TRUE(Security::Create(options, PeerRole::kWorker, 0).ok());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  Write(options.tls_dir + "/ca.crt",
        CertificateAuthority::Draw().certificate());
  testing::internal::CaptureStderr();
  EXPECT_TRUE(Security::Create(options, PeerRole::kWorker, 0).ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("peers with the same ca.crt refuse this"));
}

// The newest version of TLS that a server takes up with a client that knows
// `version` alone, or "" if it refuses. The client has the job's certificate.
std::string Handshake(const EchoServer& server, int version,
                      std::string* cipher) {
  const TaskCertificate task =
      CertificateAuthority::FromSecret(*JobSecret::Parse(std::string(32, 'a')))
          .Issue(Id(PeerRole::kWorker));
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_min_proto_version(context, version);
  SSL_CTX_set_max_proto_version(context, version);
  BIO* bio = BIO_new_mem_buf(task.certificate.data(), -1);
  X509* const certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  SSL_CTX_use_certificate(context, certificate);
  BIO_free(bio);
  bio = BIO_new_mem_buf(task.key.data(), -1);
  EVP_PKEY* const key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
  SSL_CTX_use_PrivateKey(context, key);
  BIO_free(bio);
  BIO* const connection = BIO_new_ssl_connect(context);
  BIO_set_conn_hostname(connection, server.address().c_str());
  SSL* ssl = nullptr;
  BIO_get_ssl(connection, &ssl);
  const unsigned char h2[] = {2, 'h', '2'};
  SSL_set_alpn_protos(ssl, h2, sizeof(h2));
  std::string result;
  if (BIO_do_connect(connection) > 0 && BIO_do_handshake(connection) > 0) {
    result = SSL_get_version(ssl);
    *cipher = SSL_get_cipher_name(ssl);
  }
  BIO_free_all(connection);
  X509_free(certificate);
  EVP_PKEY_free(key);
  SSL_CTX_free(context);
  return result;
}

TEST(SecurityTest, SpeaksTls13AndNothingOlder) {
  EchoServer ps(Make(WithSecret('a'), PeerRole::kPs));
  std::string cipher;
  EXPECT_EQ(Handshake(ps, TLS1_3_VERSION, &cipher), "TLSv1.3");
  EXPECT_EQ(cipher, "TLS_AES_128_GCM_SHA256");
  EXPECT_EQ(Handshake(ps, TLS1_2_VERSION, &cipher), "");
}

}  // namespace
}  // namespace weir
