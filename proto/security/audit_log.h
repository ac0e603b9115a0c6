// Who controlled a task or was refused, one line of JSON each.
//
// Place: AccessControl and the listener write it. docs/security.md shows the
// members of a line.
//
// Invariants
//   I1. What a peer sent cannot begin a line or change a terminal: JSON escapes
//       it, and it is cut.
//   I2. What was refused or has failed adds at most kRefusalLinesPerSecond
//       lines a second, so that nobody fills the disk; the next such line says
//       how many were left out.
// Threads: safe.
#ifndef PROTO_SECURITY_AUDIT_LOG_H_
#define PROTO_SECURITY_AUDIT_LOG_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/mutex.h"
#include "common/io/file_descriptor.h"

namespace weir {

class AuditLog {
 public:
  // Appends to `path`, which only this user may read, from the first line on;
  // "", or a file that cannot be opened, writes to the task's own log.
  explicit AuditLog(std::string path, Clock* clock = Clock::Real())
      : path_(std::move(path)), clock_(clock) {}

  struct Event {
    std::string peer;     // an identity, or "" if nothing was proven
    std::string address;  // as gRPC writes it: "ipv4:10.0.0.1:3345"
    std::string method;   // "" for a connection
    absl::Status status;
    std::string detail;
  };
  // Something that was done, was refused or has failed: `status` tells (I2).
  void Add(const Event& event);

 private:
  void Write(const Event& event, int64_t left_out);
  // The file, or -1 if there is none.
  int File();

  const std::string path_;
  Clock* const clock_;

  Mutex mutex_;
  bool tried_ ABSL_GUARDED_BY(mutex_) = false;
  FileDescriptor file_ ABSL_GUARDED_BY(mutex_);
  int64_t second_ ABSL_GUARDED_BY(mutex_) = 0;
  int in_second_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace weir

#endif  // PROTO_SECURITY_AUDIT_LOG_H_
