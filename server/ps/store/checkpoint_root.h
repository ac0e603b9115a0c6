// The one directory below which a ps reads and writes checkpoints.
//
// Place: store.cc asks before Restore and Snapshot, whose directories a peer
// names.
//
// Threads: safe.
// Errors: INVALID_ARGUMENT  the directory lies elsewhere; names both.
#ifndef SERVER_PS_STORE_CHECKPOINT_ROOT_H_
#define SERVER_PS_STORE_CHECKPOINT_ROOT_H_

#include <string>

#include "absl/status/status.h"

namespace weir {

// OK when `directory` is `root` or lies below it, links followed, and is named
// without "..". An empty `root` allows every directory. The file system is
// asked now: who may write below `root` could put a link there afterwards.
absl::Status CheckBelowRoot(const std::string& root,
                            const std::string& directory);

}  // namespace weir

#endif  // SERVER_PS_STORE_CHECKPOINT_ROOT_H_
