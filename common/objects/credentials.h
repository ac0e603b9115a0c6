// Where the keys for an object store come from, and how they stay fresh.
//
// Place: S3Client asks before every request.
//
// The first source that has keys is taken, in the order of AWS's own SDKs:
//   1. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
//   2. a web identity, as Kubernetes gives it to a service account:
//      AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, exchanged at STS
//   3. the profile AWS_PROFILE, or "default", of the file
//      AWS_SHARED_CREDENTIALS_FILE, or ~/.aws/credentials
//   4. the agent that AWS_CONTAINER_CREDENTIALS_FULL_URI or
//      AWS_CONTAINER_CREDENTIALS_RELATIVE_URI names (ECS, EKS pod identity)
//   5. the machine's metadata service (IMDSv2), unless
//      AWS_EC2_METADATA_DISABLED is true
//
// Invariants
//   I1. No key, token or secret is in a message.
//   I2. Keys that end are fetched anew kEarly before that, by one caller at a
//       time, and every kPause at most. Meanwhile, and while that fails, the
//       old ones are used to their end.
//   I3. Keys that have ended, as a store says, are fetched anew at once, and
//       then every kPause at most while their source has the same ones.
// Threads: safe.
// Errors: UNAUTHENTICATED   there are no keys; the message says where they were
//                           looked for. Or a source refuses to give them.
//         UNAVAILABLE       a source that is there does not give them now.
//         INVALID_ARGUMENT  a source is there and is wrong.
//         and those of HttpClient.
// Source: AWS SDKs and Tools Reference Guide, "Standardized credential
//   providers".
#ifndef COMMON_OBJECTS_CREDENTIALS_H_
#define COMMON_OBJECTS_CREDENTIALS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/io/files.h"
#include "common/objects/aws_signature.h"
#include "common/objects/http.h"

namespace weir {

// The value of a variable of the environment; nullopt if it is not set or is
// empty.
using Environment =
    std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> ProcessEnvironment(const std::string& name);

class CredentialSource {
 public:
  static constexpr std::chrono::minutes kEarly{5};
  // Between two tries to get others in place of keys that are there.
  static constexpr std::chrono::seconds kPause{30};

  struct Options {
    Environment environment = ProcessEnvironment;
    Files* files = Files::Real();
    HttpClient* http = nullptr;  // borrowed
    Clock* clock = Clock::Real();
    std::string region;  // whose STS is asked
  };

  explicit CredentialSource(Options options) : options_(std::move(options)) {}

  absl::StatusOr<AwsCredentials> Get();
  // Hears that `keys`, which Get has returned, have ended, whatever was said of
  // their end. Returns whether Get may have others now (I3).
  bool Forget(const AwsCredentials& keys);

 private:
  struct Fetched {
    AwsCredentials keys;
    std::optional<int64_t> ends_wall_ns;  // nullopt: never
  };
  using Source = absl::StatusOr<std::optional<Fetched>>;

  // Whether there are keys that are good for so long.
  bool LastFor(std::chrono::nanoseconds time) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `had_keys`: they have come from one of the sources before.
  absl::StatusOr<Fetched> Fetch(bool had_keys) const;
  // Each returns nullopt if there is no such source here.
  Source FromEnvironment() const;
  Source FromWebIdentity() const;
  Source FromSharedFile() const;
  Source FromContainer() const;
  Source FromMachine(bool had_keys) const;
  absl::StatusOr<Fetched> FromJson(const HttpRequest& request,
                                   const std::string& who) const;
  std::string Variable(const std::string& name) const {
    return options_.environment(name).value_or("");
  }

  const Options options_;
  Mutex mutex_;
  CondVar changed_;  // fetching_
  std::optional<Fetched> fetched_ ABSL_GUARDED_BY(mutex_);
  std::optional<AwsCredentials> forgotten_ ABSL_GUARDED_BY(mutex_);
  bool fetching_ ABSL_GUARDED_BY(mutex_) = false;  // by one caller
  int64_t next_fetch_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace weir

#endif  // COMMON_OBJECTS_CREDENTIALS_H_
