// A chief's claim on its work directory: one chief at a time.
//
// Place: chief_runner.cc takes it before it touches anything in the directory,
// and keeps it as long as it may write there.
//
//   <directory>/.chief          locked (flock) by the living chief; holds its
//                               name
//   <directory>/.chief_secret   what a ps asks of a chief that ends it; mode
//                               0600
//
// The secret is drawn once for a directory, so that a chief that is started
// again knows it. Both files stay when the claim ends: a chief that removed
// them could remove those of its successor. The kernel gives the lock back when
// the process ends, however it ends; a share gives it back when the host's
// lease runs out.
//
// Threads: compatible.
// Errors: UNAVAILABLE  another chief had the claim for all of `wait`; names
//                      that chief.
//         and those of Files, for the two files.
#ifndef SERVER_CHIEF_START_WORKDIR_CLAIM_H_
#define SERVER_CHIEF_START_WORKDIR_CLAIM_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/file_descriptor.h"
#include "common/io/object_store.h"

namespace weir {

class WorkdirClaim {
 public:
  struct Options {
    std::string directory;         // exists
    ObjectStore* store = nullptr;  // where a directory that is a URL is
    // How long to wait for a predecessor that is about to end.
    std::chrono::milliseconds wait{5000};
    // Takes the place of flock(2), so that a test can be a file system without
    // locks.
    std::function<int(int descriptor, int operation)> lock;
  };

  static absl::StatusOr<std::unique_ptr<WorkdirClaim>> Take(
      const Options& options);

  // False if the place has no locks: another chief may be alive.
  bool exclusive() const { return exclusive_; }
  const std::string& secret() const { return secret_; }
  // No chief has had this directory before: the secret was drawn now.
  bool first() const { return first_; }

 private:
  WorkdirClaim(FileDescriptor file, bool exclusive, std::string secret,
               bool first)
      : file_(std::move(file)),
        exclusive_(exclusive),
        secret_(std::move(secret)),
        first_(first) {}

  const FileDescriptor file_;  // closing it ends the claim
  const bool exclusive_;
  const std::string secret_;
  const bool first_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_START_WORKDIR_CLAIM_H_
