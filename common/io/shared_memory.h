// Memory that two processes of one host map, without a name in any file system.
//
// Place: the shared-memory transport keeps in it the blocks of a ps, the
// gradients of a worker and the rings between them. One process makes it and
// hands it to the other as a descriptor over a Unix socket
// (common/io/unix_socket.h). It is gone with the last of them, whatever ended
// that process.
//
// Invariants
//   I1. The memory never shrinks under a mapping (it is sealed), so reading
//       what a peer has made cannot fault.
// Threads: safe; the users agree on who writes which bytes when.
// Errors: UNAVAILABLE       the system has no such memory to give.
//         INVALID_ARGUMENT  a peer's descriptor is not sealed memory of the
//                           size that it says.
#ifndef COMMON_IO_SHARED_MEMORY_H_
#define COMMON_IO_SHARED_MEMORY_H_

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/file_descriptor.h"

namespace weir {

class SharedMemory {
 public:
  enum class Access { kRead, kReadWrite };

  // New zeroed memory; only what is touched becomes resident.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Create(size_t bytes);
  // Maps what another process made, and closes `fd`.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Map(FileDescriptor fd,
                                                           size_t bytes,
                                                           Access access);
  ~SharedMemory();

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // Of memory that Create made; the calls below are for such memory, too.
  int fd() const { return fd_.get(); }
  // Makes what this process writes from now on its own; others keep what is
  // there now. Registrations of these pages by this process (a GPU's) become
  // void.
  absl::Status MakePrivate();
  // A descriptor that can only be mapped for reading.
  absl::StatusOr<FileDescriptor> ReadOnlyFd() const;

 private:
  SharedMemory(FileDescriptor fd, char* data, size_t bytes)
      : fd_(std::move(fd)), data_(data), bytes_(bytes) {}

  const FileDescriptor fd_;
  char* const data_;
  const size_t bytes_;
};

}  // namespace weir

#endif  // COMMON_IO_SHARED_MEMORY_H_
