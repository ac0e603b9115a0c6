#include "proto/security/security.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/bio.h>
#include <openssl/conf.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "proto/security/certificates.h"
#include "proto/security/job_secret.h"

namespace weir {
namespace {

namespace tls = grpc::experimental;

constexpr char kNoMode[] =
    "nobody would have to prove who they are: set WEIR_SECRET or "
    "WEIR_SECRET_FILE to the same secret for every task of the job (`weir "
    "secret` prints one), or give --tls_dir DIR (WEIR_TLS_DIR), or --insecure "
    "(WEIR_INSECURE=1) to go without";

// The value of an environment variable; "" without one.
std::string Variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT
  return value == nullptr ? "" : value;
}

// Holds a server to the role that a client called it for (I2).
class ServerCheck : public tls::ExternalCertificateVerifier {
 public:
  ServerCheck(IdentityRules rules, std::function<bool(const PeerIdentity&)> is,
              std::string wanted)
      : rules_(std::move(rules)),
        is_(std::move(is)),
        wanted_(std::move(wanted)) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    std::vector<std::string> uris;
    for (const grpc::string_ref& uri : request->uri_names()) {
      uris.emplace_back(uri.data(), uri.size());
    }
    const auto peer = rules_.Identify(uris);
    if (!peer.ok()) {
      *status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                             std::string(peer.status().message()));
    } else if (!is_(*peer)) {
      *status = grpc::Status(
          grpc::StatusCode::UNAUTHENTICATED,
          absl::StrCat("it is ", peer->ToUri(), ", not ", wanted_));
    }
    return true;  // done already
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  const IdentityRules rules_;
  const std::function<bool(const PeerIdentity&)> is_;
  const std::string wanted_;
};

}  // namespace

// A watch on certificates that never ends. When the end of their last watch
// crosses the beginning of the next, gRPC 1.51 can take them in the wrong
// order, and then that channel, and each that begins while it lives, never gets
// a certificate ("Unable to get latest root certificates"). With this one, no
// other watch is the last. It is that of a server which nothing can reach.
class Security::StandingWatch {
 public:
  explicit StandingWatch(
      const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    grpc::ServerBuilder builder;
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        credentials);
    // gRPC wants a queue, though no call ever comes.
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
  }
  ~StandingWatch() {
    server_->Shutdown();
    queue_->Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) {
    }
  }

 private:
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
};

absl::StatusOr<IdentityRules> IdentityRules::Create(
    std::string job, const std::vector<std::string>& rules) {
  IdentityRules made;
  made.job_ = std::move(job);
  for (const std::string& rule : rules) {
    const size_t end = rule.rfind('=');
    if (end == std::string::npos || end == 0) {
      return Invalid("--identity ", rule, " is not <URI>=<role>");
    }
    const auto role = ParsePeerRole(rule.substr(end + 1));
    if (!role.ok()) {
      return Annotate(role.status(), absl::StrCat("--identity ", rule));
    }
    made.roles_.emplace_back(rule.substr(0, end), *role);
  }
  return made;
}

absl::StatusOr<PeerIdentity> IdentityRules::Identify(
    const std::vector<std::string>& uris) const {
  for (const std::string& uri : uris) {
    for (const auto& [name, role] : roles_) {
      if (uri == name) {
        return PeerIdentity{.job = job_, .role = role, .index = std::nullopt};
      }
    }
    const auto identity = PeerIdentity::FromUri(uri);
    if (identity.ok() && identity->job == job_) {
      return *identity;
    }
  }
  return absl::UnauthenticatedError(absl::StrCat(
      "the certificate is of no task of job ", job_, ": it names ",
      uris.empty()
          ? "nobody"
          : absl::CHexEscape(absl::StrJoin(uris, ", ").substr(0, 200))));
}

Security::Options Security::Options::FromEnvironment() {
  Options options;
  options.insecure = Variable("WEIR_INSECURE") == "1";
  options.secret = Variable("WEIR_SECRET");
  options.secret_file = Variable("WEIR_SECRET_FILE");
  options.tls_dir = Variable("WEIR_TLS_DIR");
  options.identity_rules =
      absl::StrSplit(Variable("WEIR_IDENTITY"), ',', absl::SkipWhitespace());
  return options;
}

absl::StatusOr<std::shared_ptr<const Security>> Security::Create(
    const Options& options, PeerRole role, int index) {
  std::vector<std::string> given;
  if (options.insecure) {
    given.push_back("--insecure (WEIR_INSECURE)");
  }
  if (!options.secret.empty()) {
    given.push_back("WEIR_SECRET");
  }
  if (!options.secret_file.empty()) {
    given.push_back("WEIR_SECRET_FILE");
  }
  if (!options.tls_dir.empty()) {
    given.push_back("--tls_dir (WEIR_TLS_DIR)");
  }
  if (!options.any()) {  // I1
    return absl::InvalidArgumentError(kNoMode);
  }
  if (given.size() > 1) {
    return Invalid(absl::StrJoin(given, " and "),
                   " are both set; each is a way of its own to prove who the "
                   "tasks are, so keep one");
  }
  if (options.insecure) {
    return Insecure();
  }
  const std::shared_ptr<Security> security(new Security());
  if (options.tls_dir.empty()) {
    WEIR_RETURN_IF_ERROR(security->UseSecret(options, role, index));
  } else {
    WEIR_RETURN_IF_ERROR(security->UseFiles(options, role, index));
  }
  security->standing_watch_ =
      std::make_shared<StandingWatch>(security->ForServer());
  security->MakeChannelCredentials();
  return security;
}

std::shared_ptr<const Security> Security::Insecure() {
  const std::shared_ptr<Security> security(new Security());
  security->to_ps_ = grpc::InsecureChannelCredentials();
  security->to_chief_ = security->to_ps_;
  return security;
}

absl::StatusOr<JobSecret> Security::SecretOf(const Options& options) {
  if (!options.secret.empty()) {
    return JobSecret::Parse(options.secret);
  }
  if (!options.secret_file.empty()) {
    return JobSecret::FromFile(options.secret_file);
  }
  return absl::InvalidArgumentError(
      "neither WEIR_SECRET nor WEIR_SECRET_FILE is set");
}

std::string Security::JobOf(const JobSecret& secret) {
  return absl::BytesToHexString(secret.Derive("weir job 1", 8));
}

absl::Status Security::UseSecret(const Options& options, PeerRole role,
                                 int index) {
  WEIR_ASSIGN_OR_RETURN(const JobSecret secret, SecretOf(options));
  self_ = {.job = JobOf(secret), .role = role, .index = index};
  WEIR_ASSIGN_OR_RETURN(rules_, IdentityRules::Create(self_.job, {}));
  const TaskCertificate own =
      CertificateAuthority::FromSecret(secret).Issue(self_);
  mode_ = Mode::kSecret;
  certificates_ = std::make_shared<tls::StaticDataCertificateProvider>(
      own.authority,
      std::vector<tls::IdentityKeyCertPair>{
          {.private_key = own.key, .certificate_chain = own.certificate}});
  return absl::OkStatus();
}

absl::Status Security::UseFiles(const Options& options, PeerRole role,
                                int index) {
  const std::string& dir = options.tls_dir;
  const std::string key = JoinPath(dir, "tls.key");
  const std::string certificate = JoinPath(dir, "tls.crt");
  const std::string authority = JoinPath(dir, "ca.crt");
  const auto read = [&dir](const std::string& path) {
    auto text = Files::Real()->ReadAll(path);
    return text.ok()
               ? std::move(text)
               : Invalid("--tls_dir ", dir, ": ", text.status().message());
  };
  WEIR_RETURN_IF_ERROR(read(key).status());  // gRPC reads it
  WEIR_ASSIGN_OR_RETURN(const std::string trusted, read(authority));
  WEIR_ASSIGN_OR_RETURN(const std::string own_text, read(certificate));
  const auto uris = UrisOf(own_text);
  if (!uris.ok()) {
    return Annotate(uris.status(), certificate);
  }
  // Its own certificate says which job the task is of.
  std::string job = "job";
  for (const std::string& uri : *uris) {
    if (const auto own = PeerIdentity::FromUri(uri); own.ok()) {
      job = own->job;
    }
  }
  WEIR_ASSIGN_OR_RETURN(rules_,
                        IdentityRules::Create(job, options.identity_rules));
  const auto self = rules_.Identify(*uris);
  if (!self.ok()) {
    return Invalid(certificate, ": ", self.status().message(),
                   "; say what such a name is with --identity <URI>=<role>");
  }
  self_ = *self;
  if (self_.role != role || self_.index.value_or(index) != index) {
    return Invalid(certificate, " is of ", self_.ToUri(), ", and this task is ",
                   PeerRoleName(role), " ", index);
  }
  // A warning, because the files may be about to be renewed. gRPC says no more
  // of a handshake that a peer ends than that the peer cannot be reached.
  if (const absl::Status good = CheckSigned(own_text, trusted); !good.ok()) {
    LOG_WARN("{}: {} by {}; peers with the same ca.crt refuse this task",
             certificate, std::string(good.message()), authority);
  }
  mode_ = Mode::kCertificates;
  certificates_ = std::make_shared<tls::FileWatcherCertificateProvider>(
      key, certificate, authority, options.refresh_seconds);
  return absl::OkStatus();
}

const char* Security::ModeName() const {
  switch (mode_) {
    case Mode::kSecret:
      return "secret";
    case Mode::kCertificates:
      return "certificates";
    case Mode::kInsecure:
      break;
  }
  return "insecure";
}

std::shared_ptr<grpc::ServerCredentials> Security::ForServer() const {
  if (!secured()) {
    return grpc::InsecureServerCredentials();
  }
  tls::TlsServerCredentialsOptions options(certificates_);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return tls::TlsServerCredentials(options);
}

void Security::MakeChannelCredentials() {
  const auto make = [&](std::function<bool(const PeerIdentity&)> is,
                        const std::string& wanted) {
    tls::TlsChannelCredentialsOptions options;
    options.set_certificate_provider(certificates_);
    options.watch_root_certs();
    options.watch_identity_key_cert_pairs();
    options.set_certificate_verifier(
        tls::ExternalCertificateVerifier::Create<ServerCheck>(
            rules_, std::move(is), wanted));
    // The identity is what counts, not a host's name.
    options.set_check_call_host(false);
    return tls::TlsCredentials(options);
  };
  to_ps_ =
      make([](const PeerIdentity& peer) { return peer.role == PeerRole::kPs; },
           "a ps");
  to_chief_ = make(
      [](const PeerIdentity& peer) {
        return peer.role == PeerRole::kChief ||
               (peer.role == PeerRole::kWorker && peer.index.value_or(0) == 0);
      },
      "the chief");
}

absl::StatusOr<PeerIdentity> Security::Identify(
    const grpc::AuthContext& context) const {
  std::vector<std::string> uris;
  for (const grpc::string_ref& uri :
       context.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    uris.emplace_back(uri.data(), uri.size());
  }
  return rules_.Identify(uris);
}

void PreferCheapCiphers() {
  // The system's settings first: they would come later otherwise, and win.
  OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, nullptr);
  constexpr char kSettings[] =
      "openssl_conf = weir\n"
      "[weir]\n"
      "ssl_conf = weir_ssl\n"
      "[weir_ssl]\n"
      "system_default = weir_tls\n"
      "[weir_tls]\n"
      "Ciphersuites = TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"
      "TLS_CHACHA20_POLY1305_SHA256\n";
  CONF* const settings = NCONF_new(nullptr);
  BIO* const text = BIO_new_mem_buf(kSettings, -1);
  long line = 0;
  if (NCONF_load_bio(settings, text, &line) > 0) {
    CONF_modules_load(settings, "openssl_conf", 0);
  }
  BIO_free(text);
  NCONF_free(settings);
}

void SetUpTls() {
  // gRPC gives no way to ask for TLS 1.3 alone. A cipher of TLS 1.2 that needs
  // a key which no side has leaves nothing that a handshake of 1.2 could use.
  setenv("GRPC_SSL_CIPHER_SUITES", "PSK-AES128-GCM-SHA256", 1);  // NOLINT
  PreferCheapCiphers();
}

}  // namespace weir
