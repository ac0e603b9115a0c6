// Who a task says it is, as its certificate names it:
// "weir://<job>/<role>/<index>".
//
// Place: certificates are made with one (certificates.h), and servers read the
// caller's from the connection (security.h).
//
// Threads: safe.
#ifndef PROTO_SECURITY_PEER_IDENTITY_H_
#define PROTO_SECURITY_PEER_IDENTITY_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weir {

enum class PeerRole {
  kPs,
  kChief,
  kWorker,
  kReader,  // reads parameters and changes nothing; the evaluator, too
  kAdmin,   // a person's command line, and the launcher
};

// "ps", "chief", "worker", "reader" or "admin".
const char* PeerRoleName(PeerRole role);
// The opposite; "evaluator" is a reader. INVALID_ARGUMENT for other words.
absl::StatusOr<PeerRole> ParsePeerRole(absl::string_view name);

struct PeerIdentity {
  std::string job;  // names the job among those that share an authority
  PeerRole role = PeerRole::kReader;
  // Of the task among those of its role. Unset: the certificate names a group
  // of tasks, as a service account does, and any index will do.
  std::optional<int> index = 0;

  // "weir://<job>/<role>/<index>".
  std::string ToUri() const;
  // The opposite of ToUri. INVALID_ARGUMENT for any other text.
  static absl::StatusOr<PeerIdentity> FromUri(absl::string_view uri);
};

// Whether `job` can stand in an identity: 1 to 128 letters, digits, '.', '_'
// and '-'.
bool IsIdentityJob(absl::string_view job);

}  // namespace weir

#endif  // PROTO_SECURITY_PEER_IDENTITY_H_
