#include "server/chief/start/workdir_claim.h"

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/identity.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "common/objects/any_store.h"

namespace weir {
namespace {

constexpr char kClaimName[] = ".chief";
constexpr char kSecretName[] = ".chief_secret";
constexpr size_t kSecretBytes = 64;  // hexadecimal digits
constexpr std::chrono::milliseconds kLookEvery{50};

// Null where the place has no locks. Training without one is worth more than no
// training, and the shards refuse a second chief by its history.
absl::StatusOr<std::unique_ptr<HeldLock>> WaitForLock(
    const WorkdirClaim::Options& options) {
  const std::string path = JoinPath(options.directory, kClaimName);
  const std::string who =
      absl::StrCat("process ", ProcessId(), " on ", HostName());
  const auto deadline = MonotonicClock::now() + options.wait;
  for (;;) {
    auto lock = options.store->TryLock(path, who);
    if (absl::IsUnimplemented(lock.status())) {
      if (!IsObjectUrl(path)) {
        LOG_WARN("{}: nothing keeps a second chief off this work directory",
                 std::string(lock.status().message()));
      }
      return nullptr;
    }
    if (!absl::IsAlreadyExists(lock.status())) {
      return lock;
    }
    // A predecessor that is about to end is worth a short wait.
    if (MonotonicClock::now() >= deadline) {
      return absl::UnavailableError(absl::StrCat(
          "another chief works in ", DirectoryOf(options.directory), ": ",
          lock.status().message(), "; end it, or choose another --workdir"));
    }
    Clock::Real()->SleepFor(kLookEvery);
  }
}

struct Secret {
  std::string text;
  bool drawn = false;  // now, for the first chief here
};

// `alone`: no other chief can be here.
absl::StatusOr<Secret> FindSecret(ObjectStore* store, const std::string& name,
                                  bool alone) {
  const std::string drawn = RandomHex(kSecretBytes);
  const absl::Status status = store->WriteNew(name, drawn);
  if (status.ok()) {
    return Secret{drawn, true};
  }
  if (!absl::IsAlreadyExists(status)) {
    return status;
  }
  WEIR_ASSIGN_OR_RETURN(const std::string there, store->ReadAll(name));
  if (there.size() == kSecretBytes) {
    return Secret{there, false};
  }
  if (!alone) {
    return absl::DataLossError(
        absl::StrCat(name, " has ", there.size(), " bytes, not ", kSecretBytes,
                     ": end all tasks of the job, and remove it"));
  }
  WEIR_RETURN_IF_ERROR(store->WriteAtomically(name, drawn));
  return Secret{drawn, false};
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkdirClaim>> WorkdirClaim::Take(
    const Options& options) {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<HeldLock> lock, WaitForLock(options));
  WEIR_ASSIGN_OR_RETURN(
      Secret secret,
      FindSecret(options.store, JoinPath(options.directory, kSecretName),
                 /*alone=*/lock != nullptr));
  return std::unique_ptr<WorkdirClaim>(
      new WorkdirClaim(std::move(lock), std::move(secret.text), secret.drawn));
}

}  // namespace weir
