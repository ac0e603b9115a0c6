#include "proto/security/peer_identity.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"

namespace weir {
namespace {

constexpr absl::string_view kScheme = "weir://";
constexpr size_t kJobCharsMax = 128;
constexpr int kIndexMax = 1 << 20;

}  // namespace

const char* PeerRoleName(PeerRole role) {
  switch (role) {
    case PeerRole::kPs:
      return "ps";
    case PeerRole::kChief:
      return "chief";
    case PeerRole::kWorker:
      return "worker";
    case PeerRole::kReader:
      return "reader";
    case PeerRole::kAdmin:
      return "admin";
  }
  return "";
}

absl::StatusOr<PeerRole> ParsePeerRole(absl::string_view name) {
  for (const PeerRole role :
       {PeerRole::kPs, PeerRole::kChief, PeerRole::kWorker, PeerRole::kReader,
        PeerRole::kAdmin}) {
    if (name == PeerRoleName(role)) {
      return role;
    }
  }
  if (name == "evaluator") {
    return PeerRole::kReader;
  }
  return Invalid("'", name,
                 "' is not ps, chief, worker, evaluator, reader or admin");
}

bool IsIdentityJob(absl::string_view job) {
  return !job.empty() && job.size() <= kJobCharsMax &&
         std::all_of(job.begin(), job.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
         });
}

std::string PeerIdentity::ToUri() const {
  return absl::StrCat(kScheme, job, "/", PeerRoleName(role), "/",
                      index.has_value() ? absl::StrCat(*index) : "*");
}

absl::StatusOr<PeerIdentity> PeerIdentity::FromUri(absl::string_view uri) {
  absl::string_view rest = uri;
  if (!absl::ConsumePrefix(&rest, kScheme)) {
    return Invalid("the identity does not begin with ", kScheme);
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(rest, '/');
  if (parts.size() != 3 || !IsIdentityJob(parts[0])) {
    return Invalid("the identity is not ", kScheme, "<job>/<role>/<index>");
  }
  PeerIdentity identity;
  identity.job = std::string(parts[0]);
  WEIR_ASSIGN_OR_RETURN(identity.role, ParsePeerRole(parts[1]));
  int index = -1;
  if (!absl::SimpleAtoi(parts[2], &index) || index < 0 || index > kIndexMax) {
    return Invalid("the identity's index is not a number from 0 to ",
                   kIndexMax);
  }
  identity.index = index;
  return identity;
}

}  // namespace weir
