// Holds what the service owes to clients that come and go. What is said in a
// session is in tests/client/cc/transport/shm_transport_test.cc.
#include "server/ps/service/shm_service.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>

#include "common/base/limits.h"
#include "tests/support/no_threads.h"
#include "tests/support/shm_stranger.h"
#include "tests/support/wait_until.h"

namespace weir {
namespace {

// A service of an empty store.
struct Ps {
  explicit Ps(std::chrono::milliseconds opening_wait = std::chrono::hours(1))
      : service(*ShmService::Create(store.get(), arena.get(), {opening_wait})) {
  }
  const std::string& name() const { return service->name(); }
  std::string Ticket() const { return service->tickets()->Give(); }

  std::unique_ptr<SharedArena> arena = *SharedArena::Create();
  std::unique_ptr<Store> store = *Store::Create({.arena = arena.get()});
  std::unique_ptr<ShmService> service;
};

size_t EntriesOf(const char* directory) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    count += entry.path().empty() ? 0 : 1;
  }
  return count;
}

// Open descriptors of this process, which is client and ps in one.
size_t Descriptors() { return EntriesOf("/proc/self/fd"); }
size_t Threads() { return EntriesOf("/proc/self/task"); }

// Whether the ps has closed its end without a word.
bool TurnedAway(UnixSocket* socket) {
  ShmOpening answer;
  return absl::IsUnavailable(socket->Receive(RecordBytes(&answer)).status());
}
bool NextIsTurnedAway(const Ps& ps) {
  UnixSocket socket = *UnixSocket::Connect(ps.name());
  return TurnedAway(&socket);
}

TEST(ShmServiceTest, ASessionThatIsOverLeavesNothing) {
  Ps ps;
  const size_t descriptors = Descriptors();
  const size_t threads = Threads();
  {
    ShmStranger stranger(ps.name());
    ASSERT_TRUE(stranger.Open(ps.Ticket()).ok());
    const auto memory = *SharedMemory::Create(4096);
    ASSERT_TRUE(stranger.SendRegion(1, 4096, memory->fd()).ok());
  }
  EXPECT_TRUE(WaitUntil([&] { return Descriptors() == descriptors; }))
      << Descriptors() << " descriptors, before " << descriptors;
  EXPECT_TRUE(WaitUntil([&] { return Threads() == threads; }));
}

TEST(ShmServiceTest, AClientThatSaysNothingIsClosed) {
  Ps ps(std::chrono::milliseconds(10));
  const size_t descriptors = Descriptors();
  {
    ShmStranger silent(ps.name());
    EXPECT_TRUE(TurnedAway(&silent.socket));
    // The ring's memory and the socket are the client's.
    EXPECT_TRUE(WaitUntil([&] { return Descriptors() == descriptors + 2; }))
        << Descriptors() << " descriptors, before " << descriptors;
  }
}

TEST(ShmServiceTest, OneClientTooManyIsTurnedAway) {
  Ps ps;
  std::deque<UnixSocket> silent;
  for (size_t i = 0; i < kShmSessionsMax; ++i) {
    silent.push_back(*UnixSocket::Connect(ps.name()));
  }
  EXPECT_TRUE(NextIsTurnedAway(ps));
  // The place of a client that leaves is free again.
  silent.pop_front();
  EXPECT_TRUE(
      WaitUntil([&] { return ShmStranger(ps.name()).Open(ps.Ticket()).ok(); }));
}

TEST(ShmServiceTest, WithoutAThreadAClientIsTurnedAway) {
  Ps ps;
  {
    const NoThreads none;
    EXPECT_TRUE(NextIsTurnedAway(ps));
  }
  ShmStranger later(ps.name());
  EXPECT_TRUE(later.Open(ps.Ticket()).ok());
}

// A session has a thread that hears of regions from the opening on.
TEST(ShmServiceTest, WithoutASecondThreadAClientIsTurnedAway) {
  Ps ps;
  const size_t threads = Threads();
  ShmStranger stranger(ps.name());
  ASSERT_TRUE(WaitUntil([&] { return Threads() == threads + 1; }));
  {
    const NoThreads none;
    EXPECT_FALSE(stranger.Open(ps.Ticket()).ok());
  }
  ShmStranger later(ps.name());
  EXPECT_TRUE(later.Open(ps.Ticket()).ok());
}

TEST(ShmServiceTest, TheServiceEndsItsSessions) {
  Ps ps;
  ShmStranger silent(ps.name());
  ShmStranger open(ps.name());
  ASSERT_TRUE(open.Open(ps.Ticket()).ok());
  ps.service = nullptr;
  EXPECT_TRUE(TurnedAway(&silent.socket));
  EXPECT_TRUE(TurnedAway(&open.socket));
}

// Connects as another user as often as it can, until it is killed.
[[noreturn]] void FloodAsAnotherUser(const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (setuid(65534) != 0) {
    _exit(1);
  }
  for (;;) {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
    connect(fd, reinterpret_cast<sockaddr*>(&address), length);
    close(fd);
  }
}

TEST(ShmServiceTest, AnotherUserKeepsNobodyOut) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can be another user";
  }
  Ps ps;
  const pid_t other = fork();
  if (other == 0) {
    FloodAsAnotherUser(ps.name());
  }
  // As long as a client of Weir waits before it takes gRPC.
  const auto patience = std::chrono::seconds(2);
  const auto opens = [&] {
    ShmStranger stranger(ps.name());
    ShmOpening opening;
    opening.bytes = stranger.memory->bytes();
    const std::string ticket = ps.Ticket();
    std::copy(ticket.begin(), ticket.end(), opening.ticket.begin());
    return stranger.socket.Send(RecordOf(opening), stranger.memory->fd())
               .ok() &&
           stranger.socket.WaitReadable(patience) &&
           !TurnedAway(&stranger.socket);
  };
  int opened = 0;
  for (int i = 0; i < 5; ++i) {
    opened += opens() ? 1 : 0;
  }
  kill(other, SIGKILL);
  int status = 0;
  waitpid(other, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "it could not become another user";
  EXPECT_EQ(opened, 5);
}

}  // namespace
}  // namespace weir
