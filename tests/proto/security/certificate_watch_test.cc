// Connections that begin at the moment in which others end. Such moments are
// rare; here locks wait now and then, so that one comes within seconds.
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "proto/security/security.h"
#include "tests/proto/security/echo_server.h"

namespace weir {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

std::atomic<bool> wait_at_locks = false;

// Waits up to two milliseconds, at one lock in twenty.
void WaitSometimes() {
  thread_local std::minstd_rand random(
      std::hash<std::thread::id>()(std::this_thread::get_id()));
  if (wait_at_locks && random() % 20 == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
  }
}

}  // namespace
}  // namespace weir

// Takes the place of the library's, for gRPC, too.
void absl::Mutex::Lock() {
  static const auto real = [] {
    Dl_info self = {};
    void (absl::Mutex::*const method)() = &absl::Mutex::Lock;
    void* address = nullptr;
    std::memcpy(&address, &method, sizeof(address));
    dladdr(address, &self);
    return reinterpret_cast<void (*)(absl::Mutex*)>(
        dlsym(RTLD_NEXT, self.dli_sname));
  }();
  weir::WaitSometimes();
  real(this);
}

namespace weir {
namespace {

TEST(CertificateWatchTest, EveryConnectionGetsACertificate) {
  Security::Options options;
  options.secret = std::string(32, 'a');
  const auto ps = Security::Create(options, PeerRole::kPs, 0);
  const auto worker = Security::Create(options, PeerRole::kWorker, 0);
  ASSERT_TRUE(ps.ok() && worker.ok());
  const EchoServer server(*ps);
  std::atomic<int> calls = 0;
  std::atomic<bool> refused = false;
  std::vector<std::thread> threads;
  wait_at_locks = true;
  const auto end = steady_clock::now() + std::chrono::seconds(12);
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!refused && steady_clock::now() < end) {
        const auto answer = server.Call((*worker)->ToPs());
        EXPECT_TRUE(answer.ok()) << answer.status();
        refused = refused || !answer.ok();
        ++calls;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  wait_at_locks = false;
  EXPECT_GT(calls, 20);
}

}  // namespace
}  // namespace weir
