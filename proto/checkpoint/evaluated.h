// Says which checkpoints of a run have been evaluated.
//
// Place: the evaluator goes on behind them when it is started again, and the
// chief waits for the last one.
#ifndef PROTO_CHECKPOINT_EVALUATED_H_
#define PROTO_CHECKPOINT_EVALUATED_H_

#include <set>
#include <string>

#include "common/io/files.h"

namespace weir {

// A file in the work directory with a line of JSON for each checkpoint that the
// evaluator has evaluated (worker/evaluate/evaluator.h).
inline constexpr char kEvaluationsName[] = "eval.jsonl";

// Returns the names of the checkpoints that have a line in that file. A line
// that a crash cut is not JSON and does not count.
std::set<std::string> EvaluatedCheckpoints(ObjectStore* files,
                                           const std::string& workdir);

}  // namespace weir

#endif  // PROTO_CHECKPOINT_EVALUATED_H_
