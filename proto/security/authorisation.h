// Which role may call which method: one table for the ps and the chief.
//
// Place: AccessControl asks at the beginning of every call. What a method looks
// at besides, such as the capability of a slot, is checked where it is used.
//
// Invariants
//   I1. A method that has no row is refused for everyone.
// Threads: safe.
#ifndef PROTO_SECURITY_AUTHORISATION_H_
#define PROTO_SECURITY_AUTHORISATION_H_

#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/security/peer_identity.h"

namespace weir {

enum class Access {
  kNo,
  kYes,
  // Worker 0, which gives the values of a program of the SDK.
  kFirst,
  // In a job whose cluster has no task for the chief: worker 0, in whose
  // process the chief runs, or which does a chief's work itself.
  kLeads,
  // Every worker, about its own slot alone: to take it in a job without a
  // chief, and to retire it.
  kOwnSlot,
};

struct AccessRow {
  absl::string_view method;  // "/weir.ParameterServer/Hello"
  Access chief;
  Access worker;
  Access reader;
  Access admin;
  Access ps = Access::kNo;  // calls nobody but itself, to see that it serves
};

// All rows.
std::span<const AccessRow> AccessTable();

// OK when a caller of this identity may call `method`. `has_chief`: the cluster
// has a task for the chief. Else UNAUTHENTICATED, with what would be allowed.
absl::Status Authorise(absl::string_view method, const PeerIdentity& caller,
                       bool has_chief);

}  // namespace weir

#endif  // PROTO_SECURITY_AUTHORISATION_H_
