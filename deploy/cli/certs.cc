// weir certs: writes the certificates of a job's tasks.
//
// DIR/<role>-<index>/ gets tls.crt, tls.key and ca.crt, which is what --tls_dir
// of the task wants. DIR/ca.crt and DIR/ca.key are the authority; another run
// with the same DIR uses them again, so that it renews the certificates of a
// job that runs.
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/exit_code.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "deploy/cli/command.h"
#include "proto/security/certificates.h"
#include "proto/security/key_files.h"
#include "proto/security/security.h"

namespace weir {
namespace {

struct Options {
  std::string out;
  std::string job;
  bool from_secret = false;
  int ps = 1;
  int workers = 1;
  int chiefs = 1;
  int readers = 1;
  int admins = 1;
  int days = 365;
};

// A clock that is behind by this much still takes a new certificate.
constexpr int64_t kBehindSeconds = 3600;

absl::StatusOr<CertificateAuthority> OwnAuthority(const std::string& out) {
  const std::string certificate = JoinPath(out, "ca.crt");
  const std::string key = JoinPath(out, "ca.key");
  const auto had_key = Files::Real()->ReadAll(key);
  if (had_key.ok()) {
    WEIR_ASSIGN_OR_RETURN(const std::string had,
                          Files::Real()->ReadAll(certificate));
    auto authority = CertificateAuthority::FromPem(had, *had_key);
    return authority.ok() ? std::move(authority)
                          : Annotate(authority.status(), out);
  }
  if (!absl::IsNotFound(had_key.status())) {
    return had_key.status();
  }
  CertificateAuthority authority = CertificateAuthority::Draw();
  WEIR_RETURN_IF_ERROR(
      Files::Real()->WriteAtomically(certificate, authority.certificate()));
  WEIR_RETURN_IF_ERROR(Files::Real()->WriteAtomically(key, authority.key()));
  return authority;
}

absl::Status CheckOptions(const Options& options) {
  if (options.from_secret != options.job.empty()) {
    return absl::InvalidArgumentError(
        "say --job NAME, the job's name in its certificates, or --from_secret, "
        "for certificates that the holders of WEIR_SECRET accept");
  }
  if (!options.from_secret && !IsIdentityJob(options.job)) {
    return Invalid("--job '", absl::CHexEscape(options.job),
                   "' is not 1 to 128 letters, digits, '.', '_' and '-'");
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Write(const Options& options) {
  WEIR_RETURN_IF_ERROR(CheckOptions(options));
  WEIR_RETURN_IF_ERROR(
      Annotate(Files::Real()->MakeDirectories(options.out), "--out"));
  std::string job = options.job;
  std::unique_ptr<CertificateAuthority> authority;
  if (options.from_secret) {
    WEIR_ASSIGN_OR_RETURN(
        const JobSecret secret,
        Security::SecretOf(Security::Options::FromEnvironment()));
    job = Security::JobOf(secret);
    authority = std::make_unique<CertificateAuthority>(
        CertificateAuthority::FromSecret(secret));
  } else {
    WEIR_ASSIGN_OR_RETURN(CertificateAuthority own, OwnAuthority(options.out));
    authority = std::make_unique<CertificateAuthority>(std::move(own));
  }
  const int64_t now_s = time(nullptr);
  const Validity validity = {.begin_s = now_s - kBehindSeconds,
                             .end_s = now_s + int64_t{options.days} * 86400};
  const std::vector<std::pair<PeerRole, int>> tasks = {
      {PeerRole::kPs, options.ps},
      {PeerRole::kChief, options.chiefs},
      {PeerRole::kWorker, options.workers},
      {PeerRole::kReader, options.readers},
      {PeerRole::kAdmin, options.admins}};
  int count = 0;
  for (const auto& [role, of_role] : tasks) {
    for (int i = 0; i < of_role; ++i, ++count) {
      const PeerIdentity identity = {.job = job, .role = role, .index = i};
      WEIR_RETURN_IF_ERROR(WriteTaskCertificate(
          JoinPath(options.out, absl::StrCat(PeerRoleName(role), "-", i)),
          authority->Issue(identity, validity)));
    }
  }
  absl::PrintF("%d certificates of job %s, good for %d days: %s\n", count, job,
               options.days, options.out);
  return kExitOk;
}

}  // namespace

void AddCertsCommand(CLI::App* app, Command* command) {
  auto options = std::make_shared<Options>();
  CLI::App* sub =
      AddSubcommand(app, "certs", "write certificates for the tasks of a job",
                    options, Write, command);
  AddOption(sub, "--out", &options->out,
            "directory; a later run with the same one renews them")
      .Required();
  AddOption(sub, "--job", &options->job, "the job's name in the certificates");
  AddFlag(sub, "--from_secret", &options->from_secret,
          "certificates that belong to WEIR_SECRET or WEIR_SECRET_FILE, "
          "for gRPC clients in other languages");
  const auto add = [&](const char* name, int* count, const char* about) {
    AddOption(sub, name, count, about).Range(0, 4096).ShowDefault();
  };
  add("--ps", &options->ps, "parameter servers");
  add("--workers", &options->workers, "workers");
  add("--chiefs", &options->chiefs, "chiefs");
  add("--readers", &options->readers, "clients that only read");
  add("--admins", &options->admins, "people's command lines");
  AddOption(sub, "--days", &options->days, "how long they are good")
      .Range(1, 36500)
      .ShowDefault();
}

}  // namespace weir
