#include "server/chief/start/workdir_claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/identity.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "common/objects/any_store.h"

namespace weir {
namespace {

constexpr char kClaimName[] = ".chief";
constexpr char kSecretName[] = ".chief_secret";
constexpr size_t kSecretBytes = 64;  // hexadecimal digits
constexpr std::chrono::milliseconds kLookEvery{50};

std::string WhoIAm() {
  return absl::StrCat("process ", getpid(), " on ", HostName(), "\n");
}

// What the holder wrote, in one line.
std::string Holder(int file) {
  char text[512];
  const ssize_t bytes = pread(file, text, sizeof(text), 0);
  // -1: it cannot be read, and then has no name to show.
  std::string holder(text, static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  holder = holder.substr(0, holder.find('\n'));
  return holder.empty() ? "a process that has not said its name" : holder;
}

// True if `path` still names the open file. If somebody removed it, another
// chief may hold the lock of a new file of this name.
bool IsAt(int file, const std::string& path) {
  struct stat opened = {};
  struct stat there = {};
  return fstat(file, &opened) == 0 && stat(path.c_str(), &there) == 0 &&
         opened.st_dev == there.st_dev && opened.st_ino == there.st_ino;
}

absl::StatusOr<FileDescriptor> OpenClaim(const std::string& path) {
  FileDescriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid()) {
    return FileError(errno, "open", path);
  }
  return file;
}

// A new file of mode 0600, durable, under `path`.
absl::Status WriteSecret(const std::string& path, const std::string& secret) {
  const std::string temporary = TemporaryPath(path);
  const FileDescriptor file(
      open(temporary.c_str(),
           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) {
    return FileError(errno, "open", temporary);
  }
  if (write(file.get(), secret.data(), secret.size()) !=
          static_cast<ssize_t>(secret.size()) ||
      fsync(file.get()) != 0) {
    const absl::Status status = FileError(errno, "write", temporary);
    unlink(temporary.c_str());
    return status;
  }
  return Files::Real()->Publish(temporary, path);
}

absl::StatusOr<std::string> FindSecret(const std::string& path) {
  for (const bool drawn : {false, true}) {
    if (drawn) {
      WEIR_RETURN_IF_ERROR(WriteSecret(path, RandomHex(kSecretBytes)));
    }
    // What was just written is read back, too: without locks another chief may
    // have put its secret over it, and the ps must hear of one secret only.
    absl::StatusOr<std::string> secret = Files::Real()->ReadAll(path);
    if (secret.ok() && secret->size() == kSecretBytes) {
      return secret;
    }
    if (!secret.ok() && !absl::IsNotFound(secret.status())) {
      return secret;
    }
  }
  return absl::InternalError(
      absl::StrCat("'", path, "' changes while it is read"));
}

// The secret in an object store, and whether it was drawn now.
absl::StatusOr<std::pair<std::string, bool>> SecretInStore(
    ObjectStore* store, const std::string& name) {
  const std::string drawn = RandomHex(kSecretBytes);
  const absl::Status status = store->WriteNew(name, drawn);
  if (status.ok()) {
    return std::make_pair(drawn, true);
  }
  if (!absl::IsAlreadyExists(status)) {
    return status;
  }
  WEIR_ASSIGN_OR_RETURN(const std::string there, store->ReadAll(name));
  if (there.size() != kSecretBytes) {
    return absl::DataLossError(absl::StrCat(name, " has ", there.size(),
                                            " bytes, not ", kSecretBytes));
  }
  return std::make_pair(there, false);
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkdirClaim>> WorkdirClaim::Take(
    const Options& options) {
  if (IsObjectUrl(options.directory)) {
    WEIR_ASSIGN_OR_RETURN(
        auto secret,
        SecretInStore(options.store, JoinPath(options.directory, kSecretName)));
    return std::unique_ptr<WorkdirClaim>(
        new WorkdirClaim(FileDescriptor(), /*exclusive=*/false,
                         std::move(secret.first), secret.second));
  }
  const std::string path = JoinPath(options.directory, kClaimName);
  const std::string secret_path = JoinPath(options.directory, kSecretName);
  const auto deadline = MonotonicClock::now() + options.wait;
  for (;;) {
    WEIR_ASSIGN_OR_RETURN(FileDescriptor file, OpenClaim(path));
    const int operation = LOCK_EX | LOCK_NB;
    const int result = options.lock ? options.lock(file.get(), operation)
                                    : flock(file.get(), operation);
    int error = 0;
    if (result != 0) {
      error = errno;
    }
    const bool exclusive = error == 0 && IsAt(file.get(), path);
    // The file system has no locks. Training without one is worth more than no
    // training, and the shards refuse a second chief by its history.
    const bool no_locks = error != 0 && error != EWOULDBLOCK && error != EINTR;
    if (exclusive) {
      const std::string who = WhoIAm();
      if (ftruncate(file.get(), 0) != 0 ||
          pwrite(file.get(), who.data(), who.size(), 0) < 0) {
        // Only the name is lost, for instance on a full disk.
        LOG_WARN("{}", std::string(FileError(errno, "write", path).message()));
      }
    } else if (no_locks) {
      LOG_WARN("{}: nothing keeps a second chief off this work directory",
               std::string(FileError(error, "lock", path).message()));
    }
    if (exclusive || no_locks) {
      const bool first = access(secret_path.c_str(), F_OK) != 0;
      WEIR_ASSIGN_OR_RETURN(std::string secret, FindSecret(secret_path));
      return std::unique_ptr<WorkdirClaim>(new WorkdirClaim(
          std::move(file), exclusive, std::move(secret), first));
    }
    // flock with a timeout does not exist, and a predecessor that is about to
    // end is worth a short wait.
    if (MonotonicClock::now() >= deadline) {
      return absl::UnavailableError(absl::StrCat(
          "another chief works in ", DirectoryOf(options.directory), ": ",
          Holder(file.get()), "; end it, or choose another --workdir"));
    }
    Clock::Real()->SleepFor(kLookEvery);
  }
}

}  // namespace weir
