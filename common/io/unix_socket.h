// Sends short records and descriptors between two processes of one user on one
// host.
//
// Place: it opens the shared-memory transport and tells when the other process
// is gone. It carries no bulk bytes.
//
// Terms
//   name  a name in Linux's abstract namespace. It belongs to the network
//         namespace, is in no file system, and goes with the process. So
//         connecting to it proves that the other end is on this host.
//
// Threads: one may Send while another Receives; Shutdown by any.
// Errors: UNAVAILABLE         nobody listens, or the other end is gone.
//         RESOURCE_EXHAUSTED  this process has no descriptor for a socket.
//         PERMISSION_DENIED   the other end belongs to another user.
//         INVALID_ARGUMENT    a record of another length, a name over 107
//                             bytes.
#ifndef COMMON_IO_UNIX_SOCKET_H_
#define COMMON_IO_UNIX_SOCKET_H_

#include <chrono>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/file_descriptor.h"

namespace weir {

class UnixSocket {
 public:
  UnixSocket() = default;
  static absl::StatusOr<UnixSocket> Listen(const std::string& name);
  static absl::StatusOr<UnixSocket> Connect(const std::string& name);

  // Blocks for the next peer; UNAVAILABLE after Shutdown.
  absl::StatusOr<UnixSocket> Accept();

  // One record, with a descriptor unless `fd` is -1.
  absl::Status Send(std::span<const char> record, int fd);
  // Blocks for the next record, of exactly this length, and the descriptor that
  // came with it, if any. INVALID_ARGUMENT: another length, or several
  // descriptors, which are closed.
  absl::StatusOr<FileDescriptor> Receive(std::span<char> record);
  // Waits until there is a record or the end; false if neither came in time.
  bool WaitReadable(std::chrono::milliseconds timeout) const;

  // Ends both directions: the other end sees it, and Accept and Receive here
  // return.
  void Shutdown();
  // Ends the sending direction: the other end sees it, and its records are
  // still received here.
  void ShutdownSend();

 private:
  explicit UnixSocket(FileDescriptor fd) : fd_(std::move(fd)) {}

  FileDescriptor fd_;
};

}  // namespace weir

#endif  // COMMON_IO_UNIX_SOCKET_H_
