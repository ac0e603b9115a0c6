#include "proto/security/certificates.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <ctime>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/expect_error.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

JobSecret Secret(char c) { return *JobSecret::Parse(std::string(32, c)); }

PeerIdentity Worker() {
  return {.job = "j", .role = PeerRole::kWorker, .index = 3};
}

std::shared_ptr<X509> Read(const std::string& pem) {
  BIO* const bio = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  std::shared_ptr<X509> read(PEM_read_bio_X509(bio, nullptr, nullptr, nullptr),
                             X509_free);
  BIO_free(bio);
  return read;
}

// Whether OpenSSL takes `certificate` for one of `authority` at `when`.
bool Verifies(const std::string& authority, const std::string& certificate,
              int64_t when_s = time(nullptr)) {
  const auto root = Read(authority);
  const auto leaf = Read(certificate);
  X509_STORE* const store = X509_STORE_new();
  X509_STORE_add_cert(store, root.get());
  X509_STORE_CTX* const context = X509_STORE_CTX_new();
  X509_STORE_CTX_init(context, store, leaf.get(), nullptr);
  X509_STORE_CTX_set_time(context, 0, static_cast<time_t>(when_s));
  X509_STORE_CTX_set_purpose(context, X509_PURPOSE_SSL_CLIENT);
  const bool good = X509_verify_cert(context) == 1;
  X509_STORE_CTX_free(context);
  X509_STORE_free(store);
  return good;
}

TEST(CertificatesTest, TasksWithOneSecretVerifyEachOther) {
  const auto one = CertificateAuthority::FromSecret(Secret('a'));
  const auto other = CertificateAuthority::FromSecret(Secret('a'));
  const TaskCertificate task = one.Issue(Worker());
  EXPECT_NE(one.certificate(), other.certificate());  // the signatures
  EXPECT_TRUE(Verifies(one.certificate(), task.certificate));
  EXPECT_TRUE(Verifies(other.certificate(), task.certificate));
}

TEST(CertificatesTest, AnotherSecretVerifiesNothing) {
  const auto one = CertificateAuthority::FromSecret(Secret('a'));
  const auto other = CertificateAuthority::FromSecret(Secret('b'));
  EXPECT_FALSE(Verifies(other.certificate(), one.Issue(Worker()).certificate));
  EXPECT_FALSE(
      Verifies(CertificateAuthority::Draw().certificate(),
               CertificateAuthority::Draw().Issue(Worker()).certificate));
}

TEST(CertificatesTest, NamesTheTask) {
  const auto authority = CertificateAuthority::Draw();
  const TaskCertificate task = authority.Issue(Worker());
  const auto uris = UrisOf(task.certificate);
  ASSERT_TRUE(uris.ok());
  EXPECT_THAT(*uris, ElementsAre("weir://j/worker/3"));
  EXPECT_EQ(
      X509_check_host(Read(task.certificate).get(), "weir", 0, 0, nullptr), 1);
  ExpectInvalid(UrisOf("nothing").status(), "no certificate in PEM");
}

TEST(CertificatesTest, EndsWhenItIsToldTo) {
  const auto authority = CertificateAuthority::Draw();
  const TaskCertificate task =
      authority.Issue(Worker(), {.begin_s = 1000000000, .end_s = 2000000000});
  EXPECT_TRUE(Verifies(authority.certificate(), task.certificate, 1500000000));
  EXPECT_FALSE(Verifies(authority.certificate(), task.certificate, 2000000001));
  EXPECT_FALSE(Verifies(authority.certificate(), task.certificate, 999999999));
}

TEST(CertificatesTest, SaysWhyNobodyWouldTrustOne) {
  const auto one = CertificateAuthority::Draw();
  const auto other = CertificateAuthority::Draw();
  const TaskCertificate task = one.Issue(Worker());
  EXPECT_TRUE(CheckSigned(task.certificate, one.certificate()).ok());
  EXPECT_TRUE(
      CheckSigned(task.certificate, other.certificate() + one.certificate())
          .ok());
  EXPECT_EQ(CheckSigned(task.certificate, other.certificate()).code(),
            absl::StatusCode::kFailedPrecondition);
  const TaskCertificate ended =
      one.Issue(Worker(), {.begin_s = 1000000000, .end_s = 1000000001});
  EXPECT_THAT(
      std::string(CheckSigned(ended.certificate, one.certificate()).message()),
      HasSubstr("expired"));
  ExpectInvalid(CheckSigned("", one.certificate()), "no certificate in PEM");
}

TEST(CertificatesTest, ATaskIsNoAuthority) {
  const auto authority = CertificateAuthority::Draw();
  const TaskCertificate task = authority.Issue(Worker());
  const auto forged = CertificateAuthority::FromPem(task.certificate, task.key);
  ASSERT_TRUE(forged.ok()) << forged.status();
  EXPECT_FALSE(Verifies(task.certificate, forged->Issue(Worker()).certificate));
}

TEST(CertificatesTest, ComesBackFromFiles) {
  const auto authority = CertificateAuthority::Draw();
  const auto back =
      CertificateAuthority::FromPem(authority.certificate(), authority.key());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(
      Verifies(authority.certificate(), back->Issue(Worker()).certificate));
  ExpectInvalid(CertificateAuthority::FromPem(
                    authority.certificate(), CertificateAuthority::Draw().key())
                    .status(),
                "do not belong together");
  ExpectInvalid(CertificateAuthority::FromPem("x", "y").status(), "damaged");
}

}  // namespace
}  // namespace weir
