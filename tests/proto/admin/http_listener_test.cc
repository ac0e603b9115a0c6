#include "proto/admin/http_listener.h"

#include <dirent.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "gtest/gtest.h"
#include "tests/proto/admin/http_client.h"

namespace weir {
namespace {

using std::chrono::steady_clock;

constexpr char kAnswer[] = "HTTP/1.1 200 OK\r\n\r\nbody";

std::unique_ptr<HttpListener> Open(
    std::function<std::string(absl::string_view)> answer = {}) {
  HttpListener::Options options;
  options.answer =
      answer ? std::move(answer) : [](absl::string_view) { return kAnswer; };
  auto listener = HttpListener::Open(std::move(options));
  EXPECT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE((*listener)->Start().ok());
  return *std::move(listener);
}

double SecondsSince(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

// Takes so much processor time of its thread, however busy the machine is.
void Work(std::chrono::nanoseconds time) {
  const auto used = [] {
    timespec now = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) +
           std::chrono::nanoseconds(now.tv_nsec);
  };
  const auto end = used() + time;
  while (used() < end) {
  }
}

// What the thread of that name has used of the processors, by the kernel.
double ListenerCpuSeconds() {
  DIR* const tasks = opendir("/proc/self/task");
  double seconds = -1;
  while (const dirent* task = readdir(tasks)) {
    const std::string folder = absl::StrCat("/proc/self/task/", task->d_name);
    std::string name;
    std::ifstream(folder + "/comm") >> name;
    if (name == "weir_admin") {
      double nanoseconds = 0;
      std::ifstream(folder + "/schedstat") >> nanoseconds;
      seconds = nanoseconds / 1e9;
    }
  }
  closedir(tasks);
  return seconds;
}

TEST(HttpListenerTest, HandsOverTheHeadAndSendsTheAnswer) {
  std::string seen;
  const auto listener = Open([&seen](absl::string_view head) {
    seen = std::string(head);
    return kAnswer;
  });
  EXPECT_TRUE(listener->is_loopback());
  EXPECT_EQ(HttpGet(listener->port(), "/x"), kAnswer);
  EXPECT_EQ(seen, absl::StrCat("GET /x HTTP/1.1\r\nHost: localhost:",
                               listener->port(), "\r\n\r\n"));
}

// Its owner uses it in `answer`, so it must have got it before.
TEST(HttpListenerTest, WhoComesEarlyIsAnsweredOnceItIsStarted) {
  HttpListener::Options options;
  options.answer = [](absl::string_view) { return std::string(kAnswer); };
  const auto listener = HttpListener::Open(options);
  ASSERT_TRUE(listener.ok()) << listener.status();
  RawClient early((*listener)->port());
  early.Send("GET / HTTP/1.1\r\n\r\n");
  pollfd answer = {.fd = early.descriptor(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&answer, 1, 200), 0);
  ASSERT_TRUE((*listener)->Start().ok());
  EXPECT_EQ(early.ReadAll(), kAnswer);
}

TEST(HttpListenerTest, SaysThatThePortIsInUse) {
  const auto first = Open();
  HttpListener::Options options;
  options.port = first->port();
  options.answer = [](absl::string_view) { return kAnswer; };
  const auto second = HttpListener::Open(options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(
      second.status().message(),
      absl::StrCat("127.0.0.1:", first->port(), " is in use")))
      << second.status();
}

TEST(HttpListenerTest, SaysThatAnAddressIsNotOfThisHost) {
  for (const char* address : {"192.0.2.1", "no-such-host.invalid"}) {
    HttpListener::Options options;
    options.address = address;
    const auto listener = HttpListener::Open(options);
    EXPECT_EQ(listener.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(listener.status().message(), address))
        << listener.status();
  }
}

TEST(HttpListenerTest, TakesItsPortAgainAtOnce) {
  auto listener = Open();
  const int port = listener->port();
  EXPECT_EQ(HttpGet(port, "/"), kAnswer);
  listener.reset();
  HttpListener::Options options;
  options.port = port;
  options.answer = [](absl::string_view) { return kAnswer; };
  EXPECT_TRUE(HttpListener::Open(options).ok());
}

TEST(HttpListenerTest, CutsOffAClientThatIsSilent) {
  const auto listener = Open();
  const auto begin = steady_clock::now();
  RawClient silent(listener->port());
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_GE(SecondsSince(begin), 0.9);
  EXPECT_LT(SecondsSince(begin), 4);
}

// Each byte comes in time, and the whole does not.
TEST(HttpListenerTest, CutsOffAClientThatSendsByteByByte) {
  const auto listener = Open();
  const auto begin = steady_clock::now();
  RawClient slow(listener->port());
  while (slow.Send("G") && SecondsSince(begin) < 4) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_LT(SecondsSince(begin), 4);
}

TEST(HttpListenerTest, AnswersOthersWhileSomeAreSilent) {
  const auto listener = Open();
  std::vector<std::unique_ptr<RawClient>> silent;
  for (size_t i = 0; i + 1 < kAdminConnectionsMax; ++i) {
    silent.push_back(std::make_unique<RawClient>(listener->port()));
  }
  const auto begin = steady_clock::now();
  EXPECT_EQ(HttpGet(listener->port(), "/"), kAnswer);
  EXPECT_LT(SecondsSince(begin), 0.9);
}

// Those beyond the bound wait, and have their answer when others are cut off.
TEST(HttpListenerTest, TakesNoMoreConnectionsThanItMay) {
  const auto listener = Open();
  std::vector<std::unique_ptr<RawClient>> silent;
  for (size_t i = 0; i < kAdminConnectionsMax; ++i) {
    silent.push_back(std::make_unique<RawClient>(listener->port()));
  }
  const auto begin = steady_clock::now();
  EXPECT_EQ(HttpGet(listener->port(), "/"), kAnswer);
  EXPECT_GT(SecondsSince(begin), 0.4);
  EXPECT_LT(SecondsSince(begin), 4);
}

TEST(HttpListenerTest, RefusesAHeadThatIsTooLarge) {
  std::atomic<int> asked{0};
  const auto listener = Open([&asked](absl::string_view) {
    ++asked;
    return kAnswer;
  });
  EXPECT_TRUE(absl::StartsWith(
      HttpGet(listener->port(), "/",
              absl::StrCat("Cookie: ", std::string(2 * kAdminHeadBytesMax, 'a'),
                           "\r\n")),
      "HTTP/1.1 431 "));
  EXPECT_EQ(asked, 0);
}

TEST(HttpListenerTest, TakesTheLargestHead) {
  const auto listener = Open();
  std::string head = "GET / HTTP/1.1\r\nCookie: ";
  head.append(kAdminHeadBytesMax - head.size() - 4, 'a');
  RawClient client(listener->port());
  client.Send(head + "\r\n\r\n");
  EXPECT_EQ(client.ReadAll(), kAnswer);
}

TEST(HttpListenerTest, CutsOffAClientThatTakesNoAnswer) {
  // More than the kernel takes for a client that does not read, but so little
  // that sending it does not use up the listener's burst (I1), also in a slow
  // build: it would pause then.
  size_t least = 0;
  size_t usual = 0;
  size_t most = 4 << 20;
  std::ifstream("/proc/sys/net/ipv4/tcp_wmem") >> least >> usual >> most;
  const std::string large(most + (4 << 20), 'a');
  const auto listener = Open([&large](absl::string_view head) {
    return absl::StrContains(head, "/large") ? large : kAnswer;
  });
  RawClient hangs(listener->port());
  const int window = 64 << 10;
  ASSERT_EQ(setsockopt(hangs.descriptor(), SOL_SOCKET, SO_RCVBUF, &window,
                       sizeof(window)),
            0);
  hangs.Send("GET /large HTTP/1.1\r\n\r\n");
  const auto begin = steady_clock::now();
  // Nobody waits until it is cut off.
  EXPECT_EQ(HttpGet(listener->port(), "/"), kAnswer);
  EXPECT_LT(SecondsSince(begin),
            std::chrono::duration<double>(kAdminWriteWait).count());
  std::this_thread::sleep_for(kAdminWriteWait);
  EXPECT_LT(hangs.ReadAll().size(), large.size());
}

TEST(HttpListenerTest, SendsAnAnswerOfManyPieces) {
  std::string large;
  for (int i = 0; i < 1'000'000; ++i) {
    absl::StrAppend(&large, i, ",");
  }
  const auto listener = Open([&large](absl::string_view) { return large; });
  EXPECT_TRUE(HttpGet(listener->port(), "/") == large);
}

// I1, by a clock that stands still: what is used comes back with time alone.
TEST(HttpListenerTest, PausesWhenItHasUsedItsBurst) {
  FakeClock clock;
  HttpListener::Options options;
  options.clock = &clock;
  options.answer = [](absl::string_view) {
    Work(std::chrono::milliseconds(40));
    return std::string(kAnswer);
  };
  const auto listener = HttpListener::Open(options);
  ASSERT_TRUE(listener.ok()) << listener.status();
  ASSERT_TRUE((*listener)->Start().ok());
  const int port = (*listener)->port();
  for (int i = 0; i < 3; ++i) {  // 120 ms, of 100
    EXPECT_EQ(HttpGet(port, "/"), kAnswer);
  }
  RawClient waits(port);
  waits.Send("GET / HTTP/1.1\r\n\r\n");
  pollfd answer = {.fd = waits.descriptor(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&answer, 1, 1000), 0);
  clock.Advance(std::chrono::seconds(10));
  EXPECT_EQ(waits.ReadAll(), kAnswer);
}

// I1: with a flood from many threads the listener takes its share and what it
// had saved, and goes on to answer.
TEST(HttpListenerTest, TakesLittleOfACoreInAFlood) {
  const auto listener = Open([](absl::string_view) {
    Work(std::chrono::milliseconds(1));  // as a page
    return std::string(kAnswer);
  });
  std::atomic<bool> over{false};
  std::atomic<int> answered{0};
  std::vector<std::thread> flood;
  const auto begin = steady_clock::now();
  for (int i = 0; i < 8; ++i) {
    flood.emplace_back([&] {
      while (!over) {
        answered += HttpGet(listener->port(), "/") == kAnswer ? 1 : 0;
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const double used = ListenerCpuSeconds();
  const double wall = SecondsSince(begin);
  over = true;
  for (std::thread& thread : flood) {
    thread.join();
  }
  ASSERT_GT(used, 0);
  // The burst, the share, and the round that went over it: at most one answer
  // of each connection.
  EXPECT_LT(used, 0.1 + 0.04 * wall + 0.04);
  EXPECT_GT(answered, 10);
}

TEST(HttpListenerTest, EndsWhileItPauses) {
  FakeClock clock;  // by which the pause never ends
  HttpListener::Options options;
  options.clock = &clock;
  options.answer = [](absl::string_view) {
    Work(std::chrono::milliseconds(110));
    return std::string(kAnswer);
  };
  auto listener = HttpListener::Open(options);
  ASSERT_TRUE(listener.ok()) << listener.status();
  ASSERT_TRUE((*listener)->Start().ok());
  EXPECT_EQ(HttpGet((*listener)->port(), "/"), kAnswer);
  const auto begin = steady_clock::now();
  listener->reset();
  EXPECT_LT(SecondsSince(begin), 2);
}

}  // namespace
}  // namespace weir
