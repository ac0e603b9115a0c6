// Decides at the beginning of every call whether the caller may make it, and
// keeps what it decided.
//
// Place: a server listens through it, and its service asks it first of all, so
// that no method can forget to. It knows who calls (security.h), what each role
// may do (authorisation.h), which connections there are (listener.h) and where
// it is written down (audit_log.h).
//
// Invariants
//   I1. Without a proof of identity nothing passes but in insecure mode.
// Threads: safe.
// Errors: UNAUTHENTICATED  the caller is nobody of this job, or its role may
//                          not call the method.
#ifndef PROTO_SECURITY_ACCESS_CONTROL_H_
#define PROTO_SECURITY_ACCESS_CONTROL_H_

#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/limits.h"
#include "common/base/mutex.h"
#include "proto/security/audit_log.h"
#include "proto/security/listener.h"
#include "proto/security/peer_identity.h"
#include "proto/security/security.h"

namespace weir {

// Who makes a call.
struct Caller {
  // Unset in insecure mode: anybody.
  std::optional<PeerIdentity> identity;
  std::string address;  // as gRPC writes it

  std::string name() const { return identity ? identity->ToUri() : ""; }
  // True in insecure mode, too.
  bool MayBe(PeerRole role) const {
    return !identity.has_value() || identity->role == role;
  }
};

class AccessControl {
 public:
  struct Options {
    std::shared_ptr<const Security> security;  // null: insecure
    // The cluster has a task for the chief.
    bool has_chief = false;
    std::string audit_path;  // as AuditLog::Open takes it
    // Connections at a time; see listener.h.
    int connections_max = kConnectionsMax;
    int unproven_max = kConnectionsBase;
    // Of connections, where certificates come from files.
    std::chrono::milliseconds connection_age = kConnectionAge;
    std::chrono::milliseconds connection_grace = kConnectionGrace;
  };

  explicit AccessControl(Options options);

  // Listens at `address`, "host:port", with the credentials of the mode.
  // REQUIRES: it is called once, and calls come after it.
  absl::Status Listen(const std::string& address, grpc::ServerBuilder* builder);
  // Null before Listen.
  Listener* listener() const { return listener_.get(); }

  // Returns who calls `method`, or why it may not.
  absl::StatusOr<Caller> Admit(const std::string& method,
                               const grpc::ServerContextBase& context);

  // Tells it of a call that ended before it had sent anything; `peer` is its
  // connection. Every server counts these calls of all its methods.
  void OnEmptyCall(const std::string& peer) {
    if (listener_ != nullptr) {
      listener_->CountEmptyCall(peer);
    }
  }

  // Writes down what a call that controls the job did.
  void Record(const Caller& caller, const std::string& method,
              const absl::Status& status, const std::string& detail = "");
  // Writes down and counts a call that was admitted and is refused after all,
  // for what it asks.
  void RecordRefusal(const Caller& caller, const std::string& method,
                     const absl::Status& status);

  struct Counts {
    uint64_t calls = 0;    // that were admitted
    uint64_t refused = 0;  // that were not
  };
  // By the caller's name; "" counts callers without one.
  std::map<std::string, Counts> counts() const;

  const Security& security() const { return *security_; }
  bool has_chief() const { return options_.has_chief; }

 private:
  // Fills in who calls, as far as that is proven.
  absl::Status Check(const std::string& method,
                     const grpc::ServerContextBase& context,
                     Caller* caller) const;
  Counts* CountsOf(const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const std::shared_ptr<const Security> security_;
  AuditLog audit_;
  std::unique_ptr<Listener> listener_;

  mutable Mutex mutex_;
  std::map<std::string, Counts> counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // PROTO_SECURITY_ACCESS_CONTROL_H_
