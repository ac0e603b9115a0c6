#include "common/io/unix_socket.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace weir {
namespace {

std::string NewName() {
  static int count = 0;
  return "weir-test-" + std::to_string(getpid()) + "-" +
         std::to_string(++count);
}

struct Pair {
  Pair() {
    const std::string name = NewName();
    listener = *UnixSocket::Listen(name);
    near = *UnixSocket::Connect(name);
    far = *listener.Accept();
  }
  UnixSocket listener;
  UnixSocket near;
  UnixSocket far;
};

TEST(UnixSocketTest, RecordsArriveWithTheirDescriptors) {
  Pair pair;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  FileDescriptor read_end(ends[0]);
  {
    FileDescriptor write_end(ends[1]);
    ASSERT_TRUE(pair.near.Send(std::span("one", 4), write_end.get()).ok());
  }
  ASSERT_TRUE(pair.near.Send(std::span("two", 4), -1).ok());
  EXPECT_TRUE(pair.far.WaitReadable(std::chrono::milliseconds(1000)));
  char record[4] = {};
  auto fd = pair.far.Receive(record);
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_STREQ(record, "one");
  ASSERT_TRUE(fd->valid());
  ASSERT_EQ(write(fd->get(), "x", 1), 1);
  char byte = 0;
  ASSERT_EQ(read(read_end.get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  fd = pair.far.Receive(record);
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_FALSE(fd->valid());
  EXPECT_STREQ(record, "two");
}

TEST(UnixSocketTest, ANameThatIsTooLongIsRefusedAndNotCut) {
  const std::string longest(107, 'n');
  const auto listener = UnixSocket::Listen(longest);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(UnixSocket::Connect(longest).ok());
  EXPECT_EQ(UnixSocket::Connect(longest + "n").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(UnixSocket::Listen(longest + "n").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(UnixSocketTest, WithoutADescriptorThereIsNoSocket) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status status = UnixSocket::Connect(NewName()).status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

TEST(UnixSocketTest, ARecordOfAnotherLengthIsRefused) {
  Pair pair;
  ASSERT_TRUE(pair.near.Send(std::span("long one", 8), -1).ok());
  ASSERT_TRUE(pair.near.Send(std::span("s", 1), -1).ok());
  char record[4];
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(pair.far.Receive(record).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

// A record as only a stranger sends it.
void SendDescriptors(int socket, const std::vector<int>& fds) {
  char byte = 'x';
  iovec part = {&byte, 1};
  std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  ASSERT_EQ(sendmsg(socket, &message, 0), 1);
}

TEST(UnixSocketTest, DescriptorsBeyondTheFirstAreClosed) {
  const std::string name = NewName();
  UnixSocket listener = *UnixSocket::Listen(name);
  const FileDescriptor stranger(socket(AF_UNIX, SOCK_SEQPACKET, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  ASSERT_EQ(connect(stranger.get(), reinterpret_cast<sockaddr*>(&address),
                    static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                           name.size())),
            0);
  UnixSocket far = *listener.Accept();
  for (const size_t count : {2u, 3u, 50u}) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    FileDescriptor read_end(ends[0]);
    {
      const FileDescriptor write_end(ends[1]);
      SendDescriptors(stranger.get(), std::vector<int>(count, ends[1]));
    }
    char record[1];
    EXPECT_EQ(far.Receive(record).status().code(),
              absl::StatusCode::kInvalidArgument)
        << count;
    // Its end is seen: no descriptor of the other end is left.
    char byte = 0;
    EXPECT_EQ(read(read_end.get(), &byte, 1), 0);
  }
}

TEST(UnixSocketTest, TheEndIsSeen) {
  Pair pair;
  char record[4];
  EXPECT_FALSE(pair.near.WaitReadable(std::chrono::milliseconds(0)));
  pair.far.ShutdownSend();
  EXPECT_EQ(pair.near.Receive(record).status().code(),
            absl::StatusCode::kUnavailable);
  // The other direction is open until its own end.
  ASSERT_TRUE(pair.near.Send(std::span("last", 4), -1).ok());
  EXPECT_TRUE(pair.far.Receive(record).ok());
  pair.near = UnixSocket();
  EXPECT_EQ(pair.far.Receive(record).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(pair.far.Send(std::span("gone", 4), -1).code(),
            absl::StatusCode::kUnavailable);

  std::thread waiter(
      [&] { EXPECT_FALSE(pair.listener.Accept().status().ok()); });
  pair.listener.Shutdown();
  waiter.join();
}

TEST(UnixSocketTest, NobodyThereIsUnavailableAndANameIsTakenOnce) {
  const std::string name = NewName();
  EXPECT_EQ(UnixSocket::Connect(name).status().code(),
            absl::StatusCode::kUnavailable);
  const auto first = UnixSocket::Listen(name);
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(UnixSocket::Listen(name).ok());
}

TEST(UnixSocketTest, AnotherUserIsRefused) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can be another user";
  }
  const std::string name = NewName();
  auto listener = UnixSocket::Listen(name);
  ASSERT_TRUE(listener.ok());
  const pid_t other = fork();
  if (other == 0) {
    const bool refused =
        setuid(65534) == 0 && UnixSocket::Connect(name).status().code() ==
                                  absl::StatusCode::kPermissionDenied;
    _exit(refused ? 0 : 1);
  }
  EXPECT_EQ(listener->Accept().status().code(),
            absl::StatusCode::kPermissionDenied);
  int status = 0;
  waitpid(other, &status, 0);
  EXPECT_EQ(status, 0) << "the client does not refuse the ps";
}

}  // namespace
}  // namespace weir
