#include "client/cc/transport/call_watch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

namespace weir {
namespace {

using std::chrono::milliseconds;

// Waits until `call` is lost, or for so long that it will not be.
bool BecomesLost(const CallWatch::Watched& call) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!call.lost()) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

// The contexts have no call: it is enough that they can be cancelled.
TEST(CallWatchTest, ACallThatHearsNothingIsLost) {
  CallWatch watch;
  grpc::ClientContext context;
  const auto begin = std::chrono::steady_clock::now();
  const CallWatch::Watched call(&watch, &context, milliseconds(100));
  EXPECT_FALSE(call.lost());
  EXPECT_TRUE(BecomesLost(call));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(100));
}

TEST(CallWatchTest, EachCallHasItsOwnTimeout) {
  CallWatch watch;
  grpc::ClientContext patient_context;
  grpc::ClientContext context;
  const CallWatch::Watched patient(&watch, &patient_context,
                                   std::chrono::hours(1));
  const CallWatch::Watched call(&watch, &context, milliseconds(50));
  EXPECT_TRUE(BecomesLost(call));
  EXPECT_FALSE(patient.lost());
}

TEST(CallWatchTest, ACallThatHasEndedIsNotTouchedAnyMore) {
  CallWatch watch;
  {
    auto context = std::make_unique<grpc::ClientContext>();
    const CallWatch::Watched call(&watch, context.get(), milliseconds(20));
  }
  // The watch goes on with others; a context that is gone would be a crash, or
  // an error of AddressSanitizer.
  grpc::ClientContext context;
  const CallWatch::Watched call(&watch, &context, milliseconds(50));
  EXPECT_TRUE(BecomesLost(call));
}

TEST(CallWatchTest, EndsWithoutACall) { CallWatch watch; }

}  // namespace
}  // namespace weir
