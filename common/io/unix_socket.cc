#include "common/io/unix_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace weir {
namespace {

constexpr int kBacklog = 64;

absl::Status Error(const std::string& what) {
  return absl::UnavailableError(
      absl::StrCat(what, ": ", std::generic_category().message(errno)));
}

// SEQPACKET keeps the bounds of records, and tells the end as a stream does.
absl::StatusOr<FileDescriptor> NewSocket() {
  FileDescriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no Unix socket: ", std::generic_category().message(errno)));
  }
  return fd;
}

// An address in the abstract namespace begins with a zero byte.
absl::StatusOr<socklen_t> Address(const std::string& name,
                                  sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  const size_t max = sizeof(address->sun_path) - 1;
  if (name.size() > max) {
    return Invalid("a socket's name has at most ", max, " bytes, '", name,
                   "' has ", name.size());
  }
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                name.size());
}

// The abstract namespace has no permissions: anyone on the host may connect, or
// listen under the name of a process that is gone. The kernel vouches for the
// user. Both ends check.
absl::Status CheckPeer(int fd) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return Error("the peer's user is not known");
  }
  if (peer.uid != geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrCat("the other process belongs to user ", peer.uid,
                     ", this one to ", geteuid()));
  }
  return absl::OkStatus();
}

// The descriptors that came with a message. The control buffer's padding has
// room for more than one.
std::vector<FileDescriptor> TakeDescriptors(msghdr* message) {
  std::vector<FileDescriptor> fds;
  for (cmsghdr* header = CMSG_FIRSTHDR(message); header != nullptr;
       header = CMSG_NXTHDR(message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      fds.emplace_back(number);
    }
  }
  return fds;
}

}  // namespace

absl::StatusOr<UnixSocket> UnixSocket::Listen(const std::string& name) {
  WEIR_ASSIGN_OR_RETURN(FileDescriptor fd, NewSocket());
  sockaddr_un address;
  WEIR_ASSIGN_OR_RETURN(const socklen_t length, Address(name, &address));
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return Error(absl::StrCat("cannot listen at @", name));
  }
  return UnixSocket(std::move(fd));
}

absl::StatusOr<UnixSocket> UnixSocket::Connect(const std::string& name) {
  WEIR_ASSIGN_OR_RETURN(FileDescriptor fd, NewSocket());
  sockaddr_un address;
  WEIR_ASSIGN_OR_RETURN(const socklen_t length, Address(name, &address));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    return Error(absl::StrCat("cannot reach @", name));
  }
  WEIR_RETURN_IF_ERROR(CheckPeer(fd.get()));
  return UnixSocket(std::move(fd));
}

absl::StatusOr<UnixSocket> UnixSocket::Accept() {
  for (;;) {
    FileDescriptor fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) {
        continue;  // a peer that is gone already does not end the listening
      }
      return Error("no peer");
    }
    WEIR_RETURN_IF_ERROR(CheckPeer(fd.get()));
    return UnixSocket(std::move(fd));
  }
}

absl::Status UnixSocket::Send(std::span<const char> record, int fd) {
  iovec part = {const_cast<char*>(record.data()), record.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  }
  ssize_t sent = -1;
  do {
    // Without MSG_NOSIGNAL a peer that is gone would end this process
    // (SIGPIPE).
    sent = sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) {
    return Error("the peer is gone");
  }
  return absl::OkStatus();
}

absl::StatusOr<FileDescriptor> UnixSocket::Receive(std::span<char> record) {
  iovec part = {record.data(), record.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t received = -1;
  do {
    received = recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) {
    return Error("the peer is gone");
  }
  // Taken over before the record is checked: whatever is wrong with the record,
  // the descriptors that came with it are closed.
  std::vector<FileDescriptor> fds = TakeDescriptors(&message);
  if (received == 0) {
    return absl::UnavailableError("the peer is gone");
  }
  if (static_cast<size_t>(received) != record.size() ||
      (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return Invalid("a record of ", received, " bytes in place of ",
                   record.size());
  }
  if (fds.size() > 1) {
    return Invalid("a record with ", fds.size(), " descriptors");
  }
  if (fds.empty()) {
    return FileDescriptor();
  }
  return std::move(fds[0]);
}

bool UnixSocket::WaitReadable(std::chrono::milliseconds timeout) const {
  pollfd entry = {fd_.get(), POLLIN, 0};
  return poll(&entry, 1, static_cast<int>(timeout.count())) > 0;
}

void UnixSocket::Shutdown() { shutdown(fd_.get(), SHUT_RDWR); }

void UnixSocket::ShutdownSend() { shutdown(fd_.get(), SHUT_WR); }

}  // namespace weir
