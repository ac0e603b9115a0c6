// What a caller may see of a shard's slots, and do with them, beside what the
// table of methods (proto/security/authorisation.h) says.
//
// Place: ParameterService asks it in Hello, GetStatus and SetSlots.
//
// Invariants
//   I1. A worker sees its own slot alone, so that it cannot learn who else is
//       at work, and sets no other one.
// Threads: safe.
#ifndef SERVER_PS_SERVICE_SLOT_RIGHTS_H_
#define SERVER_PS_SERVICE_SLOT_RIGHTS_H_

#include <optional>

#include "absl/status/status.h"
#include "proto/ps.pb.h"
#include "proto/security/peer_identity.h"
#include "server/ps/store/store.h"

namespace weir {

struct SlotRights {
  // Unset in insecure mode: anybody, who may do all.
  std::optional<PeerIdentity> caller;
  bool has_chief = false;  // the cluster has a task for the chief

  // Whether it does what a chief does: the chief, or worker 0 in a job whose
  // cluster has no task for it.
  bool Leads() const;
  // I1. Leaves the slots that it may see.
  void Limit(HelloReply* reply) const;
  // I1. Sets slots of `store`. UNAUTHENTICATED for those that are not its own,
  // and for more than to retire that one where the cluster has a chief.
  absl::Status SetSlots(const SetSlotsRequest& request, Store* store) const;
};

}  // namespace weir

#endif  // SERVER_PS_SERVICE_SLOT_RIGHTS_H_
