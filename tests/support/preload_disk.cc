// A library that is preloaded into a program and spoils a directory's disk.
//
//   LD_PRELOAD=preload_disk.so WEIR_TEST_DISK=<directory>
//   WEIR_TEST_DISK_FAULT=<file> weir_ps ...
//
// While <file> exists, every write(), pwrite(), fsync() and mkdir() below
// <directory> fails: with ENOSPC where the file says "full", with EIO where it
// says "fail"; where it says "hang", it does not come back. A test makes and
// removes the file while the program runs.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace {

enum class Fault { kNone, kFull, kFail, kHang };

Fault Read() {
  const char* const path = getenv("WEIR_TEST_DISK_FAULT");  // NOLINT
  const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return Fault::kNone;
  }
  char text[8] = {};
  const ssize_t count = read(file, text, sizeof(text) - 1);
  close(file);
  if (count == 4 && strcmp(text, "hang") == 0) {
    return Fault::kHang;
  }
  return count == 4 && strcmp(text, "fail") == 0 ? Fault::kFail : Fault::kFull;
}

bool IsBelow(const char* path) {
  const char* const directory = getenv("WEIR_TEST_DISK");  // NOLINT
  return directory != nullptr &&
         strncmp(path, directory, strlen(directory)) == 0;
}

bool IsBelow(int file) {
  char link[64];
  char path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length < 0) {
    return false;
  }
  path[length] = '\0';
  return IsBelow(path);
}

// Returns true when the call is to fail, with errno set. `where` is a path or a
// descriptor.
template <class Where>
bool Spoiled(Where where) {
  const int before = errno;
  Fault fault = Read();
  if (fault == Fault::kNone || !IsBelow(where)) {
    errno = before;
    return false;
  }
  while (fault == Fault::kHang) {
    const timespec pause = {0, 10'000'000};
    nanosleep(&pause, nullptr);
    fault = Read();
  }
  if (fault == Fault::kNone) {
    errno = before;
    return false;
  }
  errno = fault == Fault::kFull ? ENOSPC : EIO;
  return true;
}

template <class Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t write(int file, const void* data, size_t bytes) {
  return Spoiled(file) ? -1 : syscall(SYS_write, file, data, bytes);
}

ssize_t pwrite(int file, const void* data, size_t bytes, off_t offset) {
  return Spoiled(file) ? -1 : syscall(SYS_pwrite64, file, data, bytes, offset);
}

int fsync(int file) {
  static const auto next = Next<int (*)(int)>("fsync");
  return Spoiled(file) ? -1 : next(file);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto next = Next<int (*)(const char*, mode_t)>("mkdir");
  return Spoiled(path) ? -1 : next(path, mode);
}

}  // extern "C"
