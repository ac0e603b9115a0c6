#include "proto/security/certificates.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/obj_mac.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace weir {
namespace {

// Deletes what OpenSSL made, by its own function.
template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
template <typename T, auto Free>
using Owned = std::unique_ptr<T, Deleter<Free>>;

using OwnedBio = Owned<BIO, BIO_free>;
using OwnedNumber = Owned<BIGNUM, BN_clear_free>;
using OwnedX509 = Owned<X509, X509_free>;
using OwnedStore = Owned<X509_STORE, X509_STORE_free>;
using OwnedContext = Owned<X509_STORE_CTX, X509_STORE_CTX_free>;

// Calls of OpenSSL fail here only for want of memory.
void Must(int result) { WEIR_CHECK(result > 0); }

template <typename T>
T* Must(T* object) {
  WEIR_CHECK(object != nullptr);
  return object;
}

// A stack whose certificates belong to somebody else.
void FreeStack(STACK_OF(X509) * stack) { sk_X509_free(stack); }

OwnedBio Memory(const std::string& text) {
  return OwnedBio(
      Must(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))));
}

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<size_t>(bytes));
}

std::string ToPem(X509* certificate) {
  const OwnedBio bio(Must(BIO_new(BIO_s_mem())));
  Must(PEM_write_bio_X509(bio.get(), certificate));
  return TextOf(bio.get());
}

std::string ToPem(EVP_PKEY* key) {
  // A secure BIO is wiped when it is freed.
  const OwnedBio bio(Must(BIO_new(BIO_s_secmem())));
  Must(PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0,
                                     nullptr, nullptr));
  return TextOf(bio.get());
}

// The key on P-256 whose number is `scalar`.
EVP_PKEY* KeyOf(const BIGNUM* scalar) {
  const Owned<EC_GROUP, EC_GROUP_free> group(
      Must(EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1)));
  const Owned<EC_POINT, EC_POINT_free> point(Must(EC_POINT_new(group.get())));
  Must(EC_POINT_mul(group.get(), point.get(), scalar, nullptr, nullptr,
                    nullptr));
  unsigned char encoded[65];
  WEIR_CHECK(EC_POINT_point2oct(group.get(), point.get(),
                                POINT_CONVERSION_UNCOMPRESSED, encoded,
                                sizeof(encoded), nullptr) == sizeof(encoded));
  const Owned<OSSL_PARAM_BLD, OSSL_PARAM_BLD_free> builder(
      Must(OSSL_PARAM_BLD_new()));
  Must(OSSL_PARAM_BLD_push_utf8_string(
      builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0));
  Must(OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY,
                                        encoded, sizeof(encoded)));
  Must(OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_PRIV_KEY, scalar));
  const Owned<OSSL_PARAM, OSSL_PARAM_free> parameters(
      Must(OSSL_PARAM_BLD_to_param(builder.get())));
  const Owned<EVP_PKEY_CTX, EVP_PKEY_CTX_free> context(
      Must(EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr)));
  Must(EVP_PKEY_fromdata_init(context.get()));
  EVP_PKEY* key = nullptr;
  Must(EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_KEYPAIR,
                         parameters.get()));
  return key;
}

// A number from 1 to the order of P-256 less 1. 64 bits more than the order has
// make every number as likely as any other.
OwnedNumber ScalarFrom(const std::string& bytes) {
  const Owned<EC_GROUP, EC_GROUP_free> group(
      Must(EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1)));
  const Owned<BN_CTX, BN_CTX_free> context(Must(BN_CTX_secure_new()));
  const OwnedNumber wide(
      Must(BN_bin2bn(reinterpret_cast<const unsigned char*>(bytes.data()),
                     static_cast<int>(bytes.size()), nullptr)));
  const OwnedNumber less(Must(BN_dup(EC_GROUP_get0_order(group.get()))));
  OwnedNumber scalar(Must(BN_new()));
  Must(BN_sub_word(less.get(), 1));
  Must(BN_mod(scalar.get(), wide.get(), less.get(), context.get()));
  Must(BN_add_word(scalar.get(), 1));
  return scalar;
}

void SetTime(ASN1_TIME* time, int64_t seconds) {
  WEIR_CHECK(ASN1_TIME_set(time, static_cast<time_t>(seconds)) != nullptr);
}

void SetName(X509_NAME* name, const char* common) {
  Must(X509_NAME_add_entry_by_txt(
      name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(common),
      -1, -1, 0));
}

void AddExtension(X509* certificate, X509* issuer, int kind,
                  const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Owned<X509_EXTENSION, X509_EXTENSION_free> extension(
      Must(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str())));
  Must(X509_add_ext(certificate, extension.get(), -1));
}

// A certificate for `key`, which nobody has signed yet.
OwnedX509 Blank(const char* name, EVP_PKEY* key, Validity validity) {
  OwnedX509 certificate(Must(X509_new()));
  Must(X509_set_version(certificate.get(), X509_VERSION_3));
  SetName(X509_get_subject_name(certificate.get()), name);
  SetTime(X509_getm_notBefore(certificate.get()), validity.begin_s);
  SetTime(X509_getm_notAfter(certificate.get()), validity.end_s);
  Must(X509_set_pubkey(certificate.get(), key));
  return certificate;
}

constexpr char kAuthorityName[] = "weir authority";

std::vector<OwnedX509> ReadCertificates(const std::string& text) {
  const OwnedBio bio = Memory(text);
  std::vector<OwnedX509> all;
  while (X509* const next =
             PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    all.emplace_back(next);
  }
  ERR_clear_error();  // which says that there is no further one
  return all;
}

OwnedX509 ReadCertificate(const std::string& text) {
  std::vector<OwnedX509> all = ReadCertificates(text);
  return all.empty() ? nullptr : std::move(all.front());
}

}  // namespace

void CertificateAuthority::KeyDeleter::operator()(EVP_PKEY* key) const {
  EVP_PKEY_free(key);
}

CertificateAuthority::CertificateAuthority(Key key) : key_(std::move(key)) {
  const OwnedX509 certificate = Blank(kAuthorityName, key_.get(), {});
  Must(ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), 1));
  SetName(X509_get_issuer_name(certificate.get()), kAuthorityName);
  AddExtension(certificate.get(), certificate.get(), NID_basic_constraints,
               "critical,CA:TRUE,pathlen:0");
  AddExtension(certificate.get(), certificate.get(), NID_key_usage,
               "critical,keyCertSign");
  AddExtension(certificate.get(), certificate.get(), NID_subject_key_identifier,
               "hash");
  Must(X509_sign(certificate.get(), key_.get(), EVP_sha256()));
  certificate_ = ToPem(certificate.get());
}

CertificateAuthority CertificateAuthority::FromSecret(const JobSecret& secret) {
  const OwnedNumber scalar =
      ScalarFrom(secret.Derive("weir authority 1", /*bytes=*/40));
  return CertificateAuthority(Key(KeyOf(scalar.get())));
}

CertificateAuthority CertificateAuthority::Draw() {
  return CertificateAuthority(Key(Must(EVP_EC_gen("P-256"))));
}

absl::StatusOr<CertificateAuthority> CertificateAuthority::FromPem(
    const std::string& certificate, const std::string& key) {
  const OwnedBio bio = Memory(key);
  Key read(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  const OwnedX509 x509 = ReadCertificate(certificate);
  if (read == nullptr || x509 == nullptr ||
      X509_check_private_key(x509.get(), read.get()) != 1) {
    return Invalid(
        "the authority's certificate and key are damaged or do not belong "
        "together");
  }
  return CertificateAuthority(std::move(read), certificate);
}

TaskCertificate CertificateAuthority::Issue(const PeerIdentity& identity,
                                            Validity validity) const {
  const OwnedX509 issuer = ReadCertificate(certificate_);
  const Key key(Must(EVP_EC_gen("P-256")));
  const OwnedX509 certificate = Blank("weir", key.get(), validity);
  uint64_t serial = 0;
  Must(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial)));
  Must(ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()),
                               serial >> 1 | 1));  // positive
  Must(X509_set_issuer_name(certificate.get(),
                            X509_get_subject_name(issuer.get())));
  const auto add = [&](int kind, const std::string& value) {
    AddExtension(certificate.get(), issuer.get(), kind, value);
  };
  add(NID_basic_constraints, "critical,CA:FALSE");
  // All authorities have one name: which one it was is found by its key, where
  // ca.crt has an old one and a new one.
  if (X509_get0_subject_key_id(issuer.get()) != nullptr) {
    add(NID_authority_key_identifier, "keyid");
  }
  add(NID_key_usage, "critical,digitalSignature");
  add(NID_ext_key_usage, "serverAuth,clientAuth");
  add(NID_subject_alt_name,
      absl::StrCat("URI:", identity.ToUri(), ",DNS:weir"));
  Must(X509_sign(certificate.get(), key_.get(), EVP_sha256()));
  return {.authority = certificate_,
          .certificate = ToPem(certificate.get()),
          .key = ToPem(key.get())};
}

std::string CertificateAuthority::key() const { return ToPem(key_.get()); }

absl::Status CheckSigned(const std::string& certificate,
                         const std::string& authorities) {
  const std::vector<OwnedX509> chain = ReadCertificates(certificate);
  if (chain.empty()) {
    return absl::InvalidArgumentError("it holds no certificate in PEM");
  }
  const OwnedStore store(Must(X509_STORE_new()));
  // As gRPC: an authority need not be a root.
  Must(X509_STORE_set_flags(store.get(), X509_V_FLAG_PARTIAL_CHAIN));
  for (const OwnedX509& authority : ReadCertificates(authorities)) {
    Must(X509_STORE_add_cert(store.get(), authority.get()));
  }
  const Owned<STACK_OF(X509), FreeStack> others(Must(sk_X509_new_null()));
  for (const OwnedX509& other : chain) {
    Must(sk_X509_push(others.get(), other.get()));
  }
  const OwnedContext context(Must(X509_STORE_CTX_new()));
  Must(X509_STORE_CTX_init(context.get(), store.get(), chain.front().get(),
                           others.get()));
  if (X509_verify_cert(context.get()) == 1) {
    return absl::OkStatus();
  }
  ERR_clear_error();
  return absl::FailedPreconditionError(
      X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get())));
}

absl::StatusOr<std::vector<std::string>> UrisOf(
    const std::string& certificate) {
  const OwnedX509 x509 = ReadCertificate(certificate);
  if (x509 == nullptr) {
    return absl::InvalidArgumentError("it holds no certificate in PEM");
  }
  std::vector<std::string> uris;
  auto* const names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(x509.get(), NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names, i);
    if (name->type == GEN_URI) {
      const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
      uris.emplace_back(
          reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
          static_cast<size_t>(ASN1_STRING_length(uri)));
    }
  }
  GENERAL_NAMES_free(names);
  return uris;
}

}  // namespace weir
