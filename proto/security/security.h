// How a process proves who it is to the others of its job, and checks them.
//
// Place: a main, or the SDK, makes one at its start; every channel and server
// takes its credentials from it. There are three modes and one way through the
// code: TLS 1.3 on both sides with an identity in each certificate, whether
// that was made from the job's secret or read from files; or nothing at all.
//
// Terms
//   mode  secret        WEIR_SECRET or WEIR_SECRET_FILE, the same for every
//                       task of the job.
//         certificates  a directory with tls.crt, tls.key and ca.crt, which is
//                       watched: new files are taken up while the task runs.
//         insecure      no proof and no encryption; only when asked for.
//
// Invariants
//   I1. Without a mode there is no Security: nothing is open by accident.
//   I2. A client talks to a server only if that proves to be a task of the
//       same job in the role that was called.
// Threads: safe.
// Errors: INVALID_ARGUMENT  no mode or two; files or a secret that are wrong.
//         UNAUTHENTICATED   the peer is not of this job.
#ifndef PROTO_SECURITY_SECURITY_H_
#define PROTO_SECURITY_SECURITY_H_

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/security/job_secret.h"
#include "proto/security/peer_identity.h"

namespace weir {

// Maps the names of certificates to identities of one job.
class IdentityRules {
 public:
  // `job`: what "weir://" names must say. `rules`: "<URI>=<role>", for names of
  // another form, such as "spiffe://td/ns/n/sa/weir-worker=worker".
  static absl::StatusOr<IdentityRules> Create(
      std::string job, const std::vector<std::string>& rules);

  // The identity that the first matching name of a certificate gives;
  // UNAUTHENTICATED if none of them is of this job.
  absl::StatusOr<PeerIdentity> Identify(
      const std::vector<std::string>& uris) const;

 private:
  std::string job_;
  std::vector<std::pair<std::string, PeerRole>> roles_;
};

class Security {
 public:
  enum class Mode { kInsecure, kSecret, kCertificates };

  struct Options {
    bool insecure = false;
    std::string secret;       // the secret itself
    std::string secret_file;  // or where it stands
    std::string tls_dir;
    std::vector<std::string> identity_rules;  // with tls_dir; IdentityRules
    // How often files are looked at again.
    unsigned refresh_seconds = 10;

    // WEIR_SECRET, WEIR_SECRET_FILE, WEIR_TLS_DIR, WEIR_IDENTITY (rules with
    // commas between them), WEIR_INSECURE (1).
    static Options FromEnvironment();
    // True if one of the three modes was chosen.
    bool any() const {
      return insecure || !secret.empty() || !secret_file.empty() ||
             !tls_dir.empty();
    }
  };

  // The secret that the options name.
  static absl::StatusOr<JobSecret> SecretOf(const Options& options);
  // The job in the identities of a secret's holders. The job's name is not
  // known to every task, and its secret is.
  static std::string JobOf(const JobSecret& secret);

  // `role` and `index` say what this process is. A certificate of files must
  // agree.
  static absl::StatusOr<std::shared_ptr<const Security>> Create(
      const Options& options, PeerRole role, int index);
  // The insecure one, for whoever is given none: tests and benches, which run
  // both sides in one place.
  static std::shared_ptr<const Security> Insecure();
  static std::shared_ptr<const Security> OrInsecure(
      std::shared_ptr<const Security> security) {
    return security == nullptr ? Insecure() : std::move(security);
  }

  Mode mode() const { return mode_; }
  // "secret", "certificates" or "insecure".
  const char* ModeName() const;
  bool secured() const { return mode_ != Mode::kInsecure; }
  // REQUIRES: secured().
  const PeerIdentity& self() const { return self_; }

  // What is made with these credentials ends before this does: without it new
  // connections may get no certificate.
  std::shared_ptr<grpc::ServerCredentials> ForServer() const;
  // For calls to a ps, and to the chief, which may be worker 0.
  std::shared_ptr<grpc::ChannelCredentials> ToPs() const { return to_ps_; }
  std::shared_ptr<grpc::ChannelCredentials> ToChief() const {
    return to_chief_;
  }

  // Who is at the other end of a server's connection. REQUIRES: secured().
  absl::StatusOr<PeerIdentity> Identify(const grpc::AuthContext& context) const;

 private:
  class StandingWatch;

  Security() = default;
  absl::Status UseSecret(const Options& options, PeerRole role, int index);
  absl::Status UseFiles(const Options& options, PeerRole role, int index);
  void MakeChannelCredentials();

  Mode mode_ = Mode::kInsecure;
  PeerIdentity self_;
  IdentityRules rules_;
  // gRPC's source of certificates; null if insecure.
  std::shared_ptr<grpc::experimental::CertificateProviderInterface>
      certificates_;
  std::shared_ptr<StandingWatch> standing_watch_;
  std::shared_ptr<grpc::ChannelCredentials> to_ps_;
  std::shared_ptr<grpc::ChannelCredentials> to_chief_;
};

// Makes this process prefer AES with 128 bits, which costs least, in TLS 1.3.
// Call it before the first connection.
void PreferCheapCiphers();

// For the process of a task: does so, and makes its servers refuse TLS below
// 1.3. Call it before anything of gRPC, and not where other code of the process
// may use gRPC, too.
void SetUpTls();

}  // namespace weir

#endif  // PROTO_SECURITY_SECURITY_H_
