// A chief's claim on its work directory: one chief at a time.
//
// Place: chief_runner.cc takes it before it touches anything in the directory,
// and keeps it as long as it may write there.
//
//   <directory>/.chief          locked by the living chief; holds its name. An
//                               object store has no locks, and no such file.
//   <directory>/.chief_secret   what a ps asks of a chief that ends it; mode
//                               0600
//
// The secret is drawn once for a directory, so that a chief that is started
// again knows it. Both files stay when the claim ends.
//
// Threads: compatible.
// Errors: UNAVAILABLE  another chief had the claim for all of `wait`; names
//                      that chief.
//         DATA_LOSS    the secret is damaged, where there are no locks.
//         and those of ObjectStore, for the two files.
#ifndef SERVER_CHIEF_START_WORKDIR_CLAIM_H_
#define SERVER_CHIEF_START_WORKDIR_CLAIM_H_

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/files.h"
#include "common/io/object_store.h"

namespace weir {

class WorkdirClaim {
 public:
  struct Options {
    std::string directory;  // exists
    ObjectStore* store = Files::Real();
    // How long to wait for a predecessor that is about to end.
    std::chrono::milliseconds wait{5000};
  };

  static absl::StatusOr<std::unique_ptr<WorkdirClaim>> Take(
      const Options& options);

  // False if the place has no locks: another chief may be alive.
  bool exclusive() const { return lock_ != nullptr; }
  const std::string& secret() const { return secret_; }
  // No chief has had this directory before: the secret was drawn now.
  bool first() const { return first_; }

 private:
  WorkdirClaim(std::unique_ptr<HeldLock> lock, std::string secret, bool first)
      : lock_(std::move(lock)), secret_(std::move(secret)), first_(first) {}

  const std::unique_ptr<HeldLock> lock_;  // null: the place has none
  const std::string secret_;
  const bool first_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_START_WORKDIR_CLAIM_H_
