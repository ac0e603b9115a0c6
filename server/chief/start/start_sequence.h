// From "every shard answered" to "every shard holds this job".
//
// Place: the first part of JobState; ends with a Declaration that every shard
// holds, or with an error.
//
//   new       variables of the first worker -> Declare -> [Assign] -> ready
//   resume    newest checkpoint -> Restore -> ready
//   adopt     GetStatus -> compare -> ready: the chief was restarted
//   SDK job   declaration of the first worker -> Declare -> values of worker 0
//             -> ready
//             newest checkpoint -> declaration of the first worker -> Restore
//             -> ready
//
// Invariants
//   I1. Every Declare and every Restore has a history id of its own; a chief
//       sends each shard at most one of them.
//   I2. An ACTIVE shard is never sent a Declare.
// Threads: compatible.
// Errors: INVALID_ARGUMENT     the JobSpec differs from the one that the shards
//                              or the checkpoint were made with, or a
//                              checkpoint is in the way; names the difference.
//         FAILED_PRECONDITION  a lost or foreign shard; names it.
//         DATA_LOSS            a damaged checkpoint; names it.
//         and what a shard answered; names the shard.
#ifndef SERVER_CHIEF_START_START_SEQUENCE_H_
#define SERVER_CHIEF_START_START_SEQUENCE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/layout.h"
#include "proto/ps.pb.h"
#include "server/chief/state/actions.h"

namespace weir {

class StartSequence {
 public:
  struct Options {
    bool sdk_job = false;   // the workers bring the job: no JobSpec
    JobSpec spec;           // resolved
    std::string spec_hash;  // of its canonical text
    int worker_count = 1;
    bool resume = false;
    bool init_from = false;
    std::string checkpoint_directory;  // for messages
    uint64_t trained_to = 0;           // the last step of train.jsonl
    std::string chief_secret;          // for the ps; may be empty
    std::vector<std::string> shard_names;
    std::function<uint64_t()> random;  // history ids
  };
  enum class State {
    kHello,           // the caller collects Hellos
    kFinding,         // a checkpoint
    kNeedsVariables,  // of the first worker
    kDeclaring,
    kAssigning,
    kRestoring,
    kReadingStatus,
    kReady,
    kFailed,
  };

  explicit StartSequence(Options options) : options_(std::move(options)) {}

  State state() const { return state_; }
  const absl::Status& status() const { return status_; }  // kFailed
  std::string Describe() const;  // what it waits for, for messages
  // What the shards hold. REQUIRES: kReady.
  const Declaration& declaration() const { return declaration_; }
  const Layout& layout() const { return *layout_; }
  bool adopted() const { return adopted_; }
  bool restored() const { return restored_; }
  // The incarnation of each shard, 0 where no answer named one.
  // REQUIRES: kReady.
  const std::vector<uint64_t>& incarnations() const { return incarnations_; }

  // Call when every shard has answered its Hello.
  void OnHellos(const std::vector<HelloReply>& hellos,
                std::vector<Action>* actions);
  void OnCheckpointFound(
      const absl::StatusOr<std::optional<FoundCheckpoint>>& found,
      std::vector<Action>* actions);
  // kNeedsVariables of a spec job; `list` has its groups.
  void OnVariables(const google::protobuf::RepeatedPtrField<Variable>& list,
                   std::vector<Action>* actions);
  // kNeedsVariables of an SDK job.
  void OnSdkDeclaration(const Declaration& declaration,
                        std::vector<Action>* actions);
  // kAssigning of an SDK job: worker 0 has assigned the values.
  void OnValuesAssigned();
  // The shard's answer to Declare or Restore.
  void OnDeclared(int shard, const absl::StatusOr<DeclareReply>& reply,
                  std::vector<Action>* actions);
  void OnAssigned(int shard, const absl::Status& status);
  void OnStatus(int shard, const absl::StatusOr<PsStatus>& reply,
                std::vector<Action>* actions);

 private:
  void Fail(absl::Status status);
  // Goes on, or fails, where no checkpoint was found.
  void StartWithoutCheckpoint(std::vector<Action>* actions);
  void Restore(const FoundCheckpoint& found, std::vector<Action>* actions);
  // Fills in what follows from the JobSpec; INVALID_ARGUMENT if no layout fits.
  absl::Status CompleteDeclaration();
  // Draws a history id and makes the layout; INVALID_ARGUMENT if none fits.
  absl::Status BeginHistory();
  void DeclareShards(std::vector<Action>* actions);
  void RestoreShards(const std::string& directory,
                     std::vector<Action>* actions);
  void Adopt(std::vector<Action>* actions);
  int shard_count() const {
    return static_cast<int>(options_.shard_names.size());
  }
  // Records an answer of `shard`. Returns true if it was the last one.
  bool LastAnswer(int shard);

  const Options options_;
  State state_ = State::kHello;
  absl::Status status_;
  absl::Status lost_;     // not OK: a shard is lost, so a restore is needed
  absl::Status differs_;  // not OK: the shards train another JobSpec
  std::optional<FoundCheckpoint> found_;  // SDK job: to continue from
  bool adopted_ = false;
  bool restored_ = false;
  Declaration declaration_;
  std::optional<Layout> layout_;
  std::vector<bool> answered_;
  std::vector<uint64_t> incarnations_;
  std::vector<uint64_t> seen_histories_;  // of the first Hellos; 0: none
  std::vector<PsStatus> statuses_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_START_START_SEQUENCE_H_
