// A file that one process at a time has locked, and that says who.
//
// Place: Files::Real()->TryLock.
//
// The kernel gives the lock (flock(2)) back when its process ends, however it
// ends; a share gives it back when its host's lease runs out. The file stays: a
// process that removed it could remove that of its successor.
//
// Threads: safe.
#ifndef COMMON_IO_FILE_LOCK_H_
#define COMMON_IO_FILE_LOCK_H_

#include <sys/file.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/io/object_store.h"

namespace weir {

// As ObjectStore::TryLock. `lock` takes the place of flock(2) in tests.
absl::StatusOr<std::unique_ptr<HeldLock>> LockFile(
    const std::string& path, const std::string& who,
    const std::function<int(int descriptor, int operation)>& lock = flock);

}  // namespace weir

#endif  // COMMON_IO_FILE_LOCK_H_
