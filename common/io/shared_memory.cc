#include "common/io/shared_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace weir {
namespace {

std::string Why() { return std::generic_category().message(errno); }

absl::StatusOr<char*> MapFd(int fd, size_t bytes, int protection) {
  void* const data =
      mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (data == MAP_FAILED) {
    return absl::UnavailableError(
        absl::StrCat("cannot map ", bytes, " bytes of shared memory: ", Why()));
  }
  return static_cast<char*>(data);
}

}  // namespace

absl::StatusOr<std::shared_ptr<SharedMemory>> SharedMemory::Create(
    size_t bytes) {
  // Beyond this limit ftruncate ends the process (SIGXFSZ).
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
    return absl::UnavailableError(
        absl::StrCat("no shared memory of ", bytes, " bytes: a file of this ",
                     "process has at most ", limit.rlim_cur, " (ulimit -f)"));
  }
  // I1: sealed before anybody else gets the descriptor, and F_SEAL_SEAL keeps
  // the seals as they are.
  FileDescriptor fd(memfd_create("weir", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) !=
          0) {
    return absl::UnavailableError(
        absl::StrCat("no shared memory of ", bytes, " bytes: ", Why()));
  }
  WEIR_ASSIGN_OR_RETURN(char* const data,
                        MapFd(fd.get(), bytes, PROT_READ | PROT_WRITE));
  return std::shared_ptr<SharedMemory>(
      new SharedMemory(std::move(fd), data, bytes));
}

absl::StatusOr<std::shared_ptr<SharedMemory>> SharedMemory::Map(
    FileDescriptor fd, size_t bytes, Access access) {
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  struct stat info = {};
  struct statfs system = {};
  // Where no huge page is free, reading a hugetlbfs file faults.
  if (fstatfs(fd.get(), &system) == 0 && system.f_type == HUGETLBFS_MAGIC) {
    return absl::InvalidArgumentError(
        "a peer's shared memory is of reserved huge pages");
  }
  // I1 for what a peer made: a file without the seal could be cut short under
  // the mapping, and a read behind its end would kill this process (SIGBUS).
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
      fstat(fd.get(), &info) != 0 || bytes == 0 ||
      static_cast<uint64_t>(info.st_size) != bytes) {
    return Invalid("a peer's shared memory is not sealed, or not of the ",
                   bytes, " bytes that it says");
  }
  int protection = PROT_READ;
  if (access == Access::kReadWrite) {
    protection |= PROT_WRITE;
  }
  WEIR_ASSIGN_OR_RETURN(char* const data, MapFd(fd.get(), bytes, protection));
  // The mapping needs no descriptor, and a peer hands over as much memory as it
  // likes: its descriptor is closed here.
  return std::shared_ptr<SharedMemory>(
      new SharedMemory(FileDescriptor(), data, bytes));
}

SharedMemory::~SharedMemory() { munmap(data_, bytes_); }

absl::Status SharedMemory::MakePrivate() {
  // MAP_FIXED replaces the mapping at its place, so pointers into it stay good.
  if (mmap(data_, bytes_, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd_.get(),
           0) == MAP_FAILED) {
    return absl::UnavailableError(
        absl::StrCat("cannot keep shared memory apart: ", Why()));
  }
  return absl::OkStatus();
}

absl::StatusOr<FileDescriptor> SharedMemory::ReadOnlyFd() const {
  // A copy of the descriptor (dup) would keep the right to write; opening the
  // file anew does not.
  FileDescriptor fd(open(absl::StrCat("/proc/self/fd/", fd_.get()).c_str(),
                         O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    return absl::UnavailableError(
        absl::StrCat("cannot share memory for reading: ", Why()));
  }
  return fd;
}

}  // namespace weir
