// What the chief's decisions ask its shell to do.
//
// Place: JobState returns them; chief_runner.cc carries them out and reports
// back with an event. Actions for one shard are carried out in order.
#ifndef SERVER_CHIEF_STATE_ACTIONS_H_
#define SERVER_CHIEF_STATE_ACTIONS_H_

#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "proto/checkpoint.pb.h"
#include "proto/chief.pb.h"
#include "proto/ps.pb.h"

namespace weir {

struct HelloCall {};
struct StatusCall {};
// Asks for the status again and again, for the job's report. Answered by
// OnReportStatus.
struct ReportCall {};
// Assigns the values of --init_from to the shard.
struct AssignCall {
  Declaration declaration;
  Sender sender;
};

// The shell repeats every call after the codes of retry_policy.h until
// limits.lost_after_seconds are over, except HelloCall, ReportCall, Snapshot
// and Shutdown (shard_caller.h).
struct ShardCall {
  int shard = 0;
  std::variant<HelloCall, StatusCall, ReportCall, DeclareRequest,
               RestoreRequest, AssignCall, SetSlotsRequest, SnapshotRequest,
               ShutdownRequest>
      request;
};

// Sends `command` to the worker on heartbeat stream `stream`.
struct SendCommand {
  uint64_t stream = 0;
  Command command;
};

// Ends heartbeat stream `stream` with `status`.
struct EndStream {
  uint64_t stream = 0;
  absl::Status status;
};

// Looks for the newest checkpoint. Answered by OnCheckpointFound.
struct FindCheckpoint {
  bool verify = false;  // read every file; obey --allow_older
};

// Makes a directory for a checkpoint of `step`. Answered by OnPrepared with its
// name.
struct PrepareCheckpoint {
  uint64_t step = 0;
};

// Checks the shard files and writes the manifest. Answered by OnCommitted.
struct CommitCheckpoint {
  Manifest manifest;
};

// Empties a checkpoint that will not be committed. There is no answer.
struct DiscardCheckpoint {
  std::string name;
};

// Cuts train.jsonl after `step`. Answered by OnTrainLogCut.
struct CutTrainLog {
  uint64_t step = 0;
};

// Appends a line to train.jsonl. There is no answer.
struct AppendTrainLog {
  std::string line;
};

// Writes histograms for TensorBoard, under their tags. There is no answer.
struct AppendHistograms {
  uint64_t step = 0;
  std::vector<std::pair<std::string, Histogram>> histograms;
};

// Writes DONE into the work directory. Answered by OnDoneWritten, and with
// `wait` by OnEvaluated once the evaluator has written its line.
struct WriteDone {
  std::string checkpoint;
  bool wait = false;
};

// Looks whether DONE is still there. Answered by OnLooked.
struct LookForDone {};

// Removes a DONE that was there when the chief started. There is no answer.
struct RemoveDone {};

struct LogLine {
  bool warning = false;
  std::string text;
};

// The job is over; the last action.
struct Finish {
  absl::Status status;
};

using Action =
    std::variant<ShardCall, SendCommand, EndStream, FindCheckpoint,
                 PrepareCheckpoint, CommitCheckpoint, DiscardCheckpoint,
                 CutTrainLog, AppendTrainLog, AppendHistograms, WriteDone,
                 LookForDone, RemoveDone, LogLine, Finish>;

// Of Action, as timelines call them.
inline constexpr const char* kActionNames[] = {"call a ps",
                                               "send a command",
                                               "end a stream",
                                               "find a checkpoint",
                                               "prepare a checkpoint",
                                               "commit a checkpoint",
                                               "discard a checkpoint",
                                               "cut train.jsonl",
                                               "append to train.jsonl",
                                               "append histograms",
                                               "write DONE",
                                               "look for DONE",
                                               "remove DONE",
                                               "log",
                                               "finish"};
static_assert(std::size(kActionNames) == std::variant_size_v<Action>);

// A committed checkpoint that JobState may restore.
struct FoundCheckpoint {
  std::string directory;  // absolute; its last part is its name
  Manifest manifest;
};

}  // namespace weir

#endif  // SERVER_CHIEF_STATE_ACTIONS_H_
