// Certificates of tasks, and the authority that signs them.
//
// Place: Security (security.h) has one signed for the process at its start when
// the job has a secret; `weir certs` writes them to files. gRPC reads what
// comes out, in PEM.
//
// The authority's key is computed from the secret, so every task of the job has
// the same one without a file. Each makes a copy of the authority's certificate
// of its own; they differ in their signature alone, and so they verify each
// other's tasks.
//
// Keys are P-256, signatures ECDSA with SHA-256.
//
// Threads: safe.
// Errors: INVALID_ARGUMENT     files that are no certificate, key or authority.
//         FAILED_PRECONDITION  a certificate that nobody would trust.
#ifndef PROTO_SECURITY_CERTIFICATES_H_
#define PROTO_SECURITY_CERTIFICATES_H_

#include <openssl/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/security/job_secret.h"
#include "proto/security/peer_identity.h"

namespace weir {

// What a task needs to prove who it is, each in PEM.
struct TaskCertificate {
  std::string authority;    // ca.crt, the certificates that are trusted
  std::string certificate;  // tls.crt
  std::string key;          // tls.key
};

// When a certificate is good, in seconds since 1970.
struct Validity {
  int64_t begin_s = 946684800;  // the year 2000, so clocks hardly matter
  int64_t end_s = 4102444800;   // the year 2100
};

class CertificateAuthority {
 public:
  // The job's, from its secret.
  static CertificateAuthority FromSecret(const JobSecret& secret);
  // A new one that nobody else has.
  static CertificateAuthority Draw();
  // The one that `certificate` and `key` (PEM) are of.
  static absl::StatusOr<CertificateAuthority> FromPem(
      const std::string& certificate, const std::string& key);

  // A certificate of its own for a task. The name in it besides the identity is
  // "weir", for clients that insist on a host name.
  TaskCertificate Issue(const PeerIdentity& identity,
                        Validity validity = {}) const;

  const std::string& certificate() const { return certificate_; }  // PEM
  std::string key() const;                                         // PEM

 private:
  struct KeyDeleter {
    void operator()(EVP_PKEY* key) const;
  };
  using Key = std::unique_ptr<EVP_PKEY, KeyDeleter>;

  // Signs its own certificate.
  explicit CertificateAuthority(Key key);
  CertificateAuthority(Key key, std::string certificate)
      : key_(std::move(key)), certificate_(std::move(certificate)) {}

  Key key_;
  std::string certificate_;
};

// Whether one of `authorities`, PEM texts one after the other, has signed the
// first certificate of `certificate`, perhaps through others of that text, and
// it is good now. FAILED_PRECONDITION with the reason if not.
absl::Status CheckSigned(const std::string& certificate,
                         const std::string& authorities);

// The URIs that the first certificate of a PEM text names.
absl::StatusOr<std::vector<std::string>> UrisOf(const std::string& certificate);

}  // namespace weir

#endif  // PROTO_SECURITY_CERTIFICATES_H_
