// Decides what a stream's error means for the worker: repeat, or end.
//
// Place: ShardExchange and TableClient ask when a stream or a call has failed.
// "Status codes are instructions" in docs/architecture.md has the codes.
//
// Threads: safe; pure functions.
#ifndef CLIENT_CC_PARAMETERS_STREAM_ERRORS_H_
#define CLIENT_CC_PARAMETERS_STREAM_ERRORS_H_

#include "absl/status/status.h"

namespace weir {

// Whether a PushPull stream that ended with `code` is opened again, and what
// has no receipt is repeated on it.
bool IsRetriable(absl::StatusCode code);

// The error with which this worker ends. OUT_OF_RANGE (a sequence number was
// skipped) and DATA_LOSS (payloads arrive damaged) become FAILED_PRECONDITION:
// a new process of this worker can mend both, while their own codes would end
// the whole job. Other errors stay as they are.
absl::Status ForThisTask(const absl::Status& status);

}  // namespace weir

#endif  // CLIENT_CC_PARAMETERS_STREAM_ERRORS_H_
