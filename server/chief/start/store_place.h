// What an object store has to be before a job's chief trains there.
//
// Place: the first thing that chief_runner.cc does with a URL. On a disk a lock
// does what is asked for here (workdir_claim.h).
//
// Threads: safe.
// Errors: INVALID_ARGUMENT  something else is there, or the store lets two
//                           chiefs write over each other's checkpoints.
//         and those of ObjectStore, by which a bucket that is not there or keys
//         without rights are found out.
#ifndef SERVER_CHIEF_START_STORE_PLACE_H_
#define SERVER_CHIEF_START_STORE_PLACE_H_

#include <string>

#include "absl/status/status.h"
#include "common/io/object_store.h"

namespace weir {

// `place` is the run's, and has its checkpoints below it. With
// `allow_unguarded` a store without the condition will do.
absl::Status CheckStorePlace(ObjectStore* store, const std::string& place,
                             bool allow_unguarded);

}  // namespace weir

#endif  // SERVER_CHIEF_START_STORE_PLACE_H_
