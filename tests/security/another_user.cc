#include "tests/security/another_user.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "common/base/check.h"
#include "common/io/shared_channel.h"
#include "common/io/shared_memory.h"
#include "proto/wire/shm_message.h"

namespace weir {
namespace {

constexpr uid_t kNobody = 65534;
constexpr size_t kRecordBytes = 4096;
// What a client of HTTP/2 begins with: the preface and empty SETTINGS.
constexpr std::string_view kHello(
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);

std::string TryPath(const std::string& path) {
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    return "";
  }
  char bytes[256];
  const ssize_t got = read(fd.get(), bytes, sizeof(bytes));
  return "opened " + std::string(bytes, got > 0 ? static_cast<size_t>(got) : 0);
}

FileDescriptor ConnectTo(const std::string& address) {
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // A server that is silent closes a handshake after this time.
  const timeval patience = {20, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(
      static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  WEIR_CHECK(connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) ==
             0);
  return fd;
}

std::string TryPlain(const std::string& address) {
  const FileDescriptor fd = ConnectTo(address);
  send(fd.get(), kHello.data(), kHello.size(), MSG_NOSIGNAL);
  char bytes[256];
  const ssize_t got = recv(fd.get(), bytes, sizeof(bytes), 0);
  return got > 0 ? std::string(bytes, static_cast<size_t>(got)) : "";
}

std::string TryTls(const std::string& address, const std::string& directory) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(
      SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  const unsigned char http2[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context.get(), http2, sizeof(http2));
  if (!directory.empty()) {
    WEIR_CHECK(SSL_CTX_use_certificate_chain_file(
                   context.get(), (directory + "/tls.crt").c_str()) == 1);
    WEIR_CHECK(SSL_CTX_use_PrivateKey_file(context.get(),
                                           (directory + "/tls.key").c_str(),
                                           SSL_FILETYPE_PEM) == 1);
  }
  const FileDescriptor fd = ConnectTo(address);
  const std::unique_ptr<SSL, decltype(&SSL_free)> tls(SSL_new(context.get()),
                                                      &SSL_free);
  SSL_set_fd(tls.get(), fd.get());
  char bytes[256];
  int got = 0;
  if (SSL_connect(tls.get()) == 1 &&
      SSL_write(tls.get(), kHello.data(), kHello.size()) > 0) {
    got = SSL_read(tls.get(), bytes, sizeof(bytes));
  }
  return got > 0 ? std::string(bytes, static_cast<size_t>(got)) : "";
}

// UnixSocket's client would look who is at the other end, and not go on.
std::string TryShm(const std::string& name, const std::string& ticket) {
  const FileDescriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un to = {};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path + 1, name.data(), name.size());
  const size_t length = offsetof(sockaddr_un, sun_path) + 1 + name.size();
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&to),
              static_cast<socklen_t>(length)) != 0) {
    return "";
  }
  const auto memory = *SharedMemory::Create(SharedChannel::kMemoryBytes);
  ShmOpening opening;
  opening.bytes = memory->bytes();
  std::copy_n(ticket.begin(), std::min(ticket.size(), opening.ticket.size()),
              opening.ticket.begin());
  iovec part = {&opening, sizeof(opening)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int memory_fd = memory->fd();
  std::memcpy(CMSG_DATA(header), &memory_fd, sizeof(memory_fd));
  sendmsg(fd.get(), &message, MSG_NOSIGNAL);
  char bytes[256];
  const ssize_t got = recv(fd.get(), bytes, sizeof(bytes), 0);
  return got > 0 ? std::string(bytes, static_cast<size_t>(got)) : "";
}

// For good, with all that comes from root.
bool BecomeNobody() {
  return setgroups(0, nullptr) == 0 &&
         setresgid(kNobody, kNobody, kNobody) == 0 &&
         setresuid(kNobody, kNobody, kNobody) == 0;
}

// Answers until the test has ended. A record is what Attempt has, a line each.
[[noreturn]] void Serve(int socket) {
  signal(SIGPIPE, SIG_IGN);
  const char ready = BecomeNobody() ? 'y' : 'n';
  send(socket, &ready, 1, MSG_NOSIGNAL);
  char record[kRecordBytes];
  for (;;) {
    const ssize_t got = recv(socket, record, sizeof(record), 0);
    if (got <= 0) {
      _exit(0);
    }
    const std::string text(record + 1, static_cast<size_t>(got) - 1);
    const size_t line = text.find('\n');
    const std::string answer =
        "=" + Try({static_cast<Attempt::Kind>(record[0]), text.substr(0, line),
                   text.substr(line + 1)});
    send(socket, answer.data(), answer.size(), MSG_NOSIGNAL);
  }
}

}  // namespace

std::string Try(const Attempt& attempt) {
  switch (attempt.kind) {
    case Attempt::kPath:
      return TryPath(attempt.target);
    case Attempt::kPlain:
      return TryPlain(attempt.target);
    case Attempt::kTls:
      return TryTls(attempt.target, attempt.proof);
    case Attempt::kShm:
      return TryShm(attempt.target, attempt.proof);
  }
  return "";
}

AnotherUser* AnotherUser::Get() {
  static const std::unique_ptr<AnotherUser> one = Create();
  return one.get();
}

std::unique_ptr<AnotherUser> AnotherUser::Create() {
  int ends[2];
  WEIR_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  const pid_t child = fork();
  WEIR_CHECK(child >= 0);
  if (child == 0) {
    close(ends[0]);
    Serve(ends[1]);
  }
  close(ends[1]);
  FileDescriptor socket(ends[0]);
  char ready = 'n';
  WEIR_CHECK(recv(socket.get(), &ready, 1, 0) == 1);
  if (ready != 'y') {
    return nullptr;
  }
  return std::unique_ptr<AnotherUser>(new AnotherUser(std::move(socket)));
}

std::string AnotherUser::Try(const Attempt& attempt) {
  const std::string record =
      static_cast<char>(attempt.kind) + attempt.target + "\n" + attempt.proof;
  WEIR_CHECK(record.size() <= kRecordBytes);
  WEIR_CHECK(send(socket_.get(), record.data(), record.size(), 0) > 0);
  char answer[kRecordBytes];
  const ssize_t got = recv(socket_.get(), answer, sizeof(answer), 0);
  WEIR_CHECK(got > 0);
  return std::string(answer + 1, static_cast<size_t>(got) - 1);
}

}  // namespace weir
