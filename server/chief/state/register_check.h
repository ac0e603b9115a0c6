// Whether a worker may join the job, from what it registers with.
//
// Place: inside JobState, which asks before it answers Register and gives the
// slot afterwards (roster.h).
//
// The first worker that is admitted says what the chief does not know: the
// model's variables and the number of samples, or in an SDK job the whole
// declaration. Everybody after it must bring the same.
//
// Invariants
//   I1. A request that is refused changes nothing.
//   I2. All admitted workers have the same job: variables and number of samples
//       of a spec job, the declaration of an SDK job.
// Threads: compatible.
// Errors: INVALID_ARGUMENT  the request does not fit this cluster, this kind of
//                           job, or the other workers; names both values.
//         ALREADY_EXISTS    SDK job: another declaration; names a difference.
#ifndef SERVER_CHIEF_STATE_REGISTER_CHECK_H_
#define SERVER_CHIEF_STATE_REGISTER_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/chief.pb.h"
#include "proto/ps.pb.h"

namespace weir {

class RegisterCheck {
 public:
  struct Options {
    bool sdk_job = false;
    JobSpec spec;  // resolved
    std::vector<std::string> ps_addresses;
    int worker_count = 1;
    uint64_t cluster_fingerprint = 0;
  };

  explicit RegisterCheck(Options options) : options_(std::move(options)) {}

  absl::Status Check(const RegisterRequest& request);

  // The shards hold this declaration now: workers must bring the same.
  void SetDeclaration(const Declaration& declaration);

  // Spec job: the variables with their groups. Empty before the first worker.
  const google::protobuf::RepeatedPtrField<Variable>& variables() const {
    return variables_;
  }
  // SDK job: what the first worker declared, or what the shards hold.
  const std::optional<Declaration>& declaration() const { return declaration_; }

 private:
  // `who` is the worker's name for messages.
  absl::Status CheckCluster(const RegisterRequest& request,
                            const std::string& who) const;
  absl::Status CheckSpecJob(const RegisterRequest& request,
                            const std::string& who);
  absl::Status CheckSdkJob(const Declaration& declaration,
                           const std::string& who);
  // What a declaration must have before it is compared with others.
  absl::Status CheckSdkDeclaration(const Declaration& declaration,
                                   const std::string& who) const;

  const Options options_;
  google::protobuf::RepeatedPtrField<Variable> variables_;
  uint64_t sample_count_ = 0;  // 0: nobody said it yet
  std::optional<Declaration> declaration_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_STATE_REGISTER_CHECK_H_
