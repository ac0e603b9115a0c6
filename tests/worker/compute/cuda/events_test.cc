#include "worker/compute/cuda/events.h"

#include "gtest/gtest.h"
#include "weir_cuda_emulator.h"

namespace weir::cuda {
namespace {

using weir_emulator::Counts;

cudaStream_t MakeStream() {
  weir_emulator::Configure({});
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
            cudaSuccess);
  return stream;
}

// The emulator's clock goes on when an operation runs.
void Work(cudaStream_t stream) {
  static float host = 1.0f;
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, sizeof(host)), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(memory, &host, sizeof(host), cudaMemcpyHostToDevice,
                            stream),
            cudaSuccess);
}

TEST(EventPoolTest, GivesOutWhatCameBackBeforeItMakesMore) {
  MakeStream();
  {
    EventPool pool(cudaEventDisableTiming);
    cudaEvent_t first = nullptr;
    cudaEvent_t second = nullptr;
    ASSERT_TRUE(pool.Take(&first).ok());
    ASSERT_TRUE(pool.Take(&second).ok());
    EXPECT_NE(first, second);
    pool.Give(first);
    pool.Give(nullptr);
    cudaEvent_t third = nullptr;
    ASSERT_TRUE(pool.Take(&third).ok());
    EXPECT_EQ(third, first);
    EXPECT_EQ(Counts().events, 2);
    pool.Give(second);
    pool.Give(third);
  }
  EXPECT_EQ(Counts().events, 0);
}

TEST(EventPoolTest, GivesNullWithAnError) {
  MakeStream();
  EventPool pool(cudaEventDefault);
  weir_emulator::FailNext(cudaErrorInvalidValue, "cudaEventCreateWithFlags");
  int placeholder = 0;
  auto* event = reinterpret_cast<cudaEvent_t>(&placeholder);
  EXPECT_EQ(pool.Take(&event).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(event, nullptr);
}

TEST(BusySpansTest, CountsAClosedSpanOnce) {
  cudaStream_t const stream = MakeStream();
  BusySpans busy;
  ASSERT_TRUE(busy.Open(stream).ok());
  Work(stream);
  ASSERT_TRUE(busy.Close(stream).ok());
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(busy.busy_ns(), 0);
  ASSERT_TRUE(busy.Collect().ok());
  const int64_t once = busy.busy_ns();
  EXPECT_GT(once, 0);
  ASSERT_TRUE(busy.Collect().ok());
  EXPECT_EQ(busy.busy_ns(), once);
}

TEST(BusySpansTest, HasOneOpenSpanAtMost) {
  cudaStream_t const stream = MakeStream();
  BusySpans busy;
  ASSERT_TRUE(busy.Close(stream).ok());  // nothing to close
  EXPECT_EQ(Counts().events, 0);
  ASSERT_TRUE(busy.Open(stream).ok());
  ASSERT_TRUE(busy.Open(stream).ok());
  EXPECT_EQ(Counts().events, 1);
  ASSERT_TRUE(busy.Close(stream).ok());
  ASSERT_TRUE(busy.Close(stream).ok());
  EXPECT_EQ(Counts().events, 2);
}

TEST(BusySpansTest, UsesTheEventsOfCollectedSpansAgain) {
  cudaStream_t const stream = MakeStream();
  {
    BusySpans busy;
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(busy.Open(stream).ok());
      Work(stream);
      ASSERT_TRUE(busy.Close(stream).ok());
      ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      ASSERT_TRUE(busy.Collect().ok());
    }
    EXPECT_EQ(Counts().events, 2);
    ASSERT_TRUE(busy.Open(stream).ok());
  }
  EXPECT_EQ(Counts().events, 0);  // the open one, too
}

TEST(BusySpansTest, LeavesWhatTheDeviceHasNotPassed) {
  cudaStream_t const stream = MakeStream();
  BusySpans busy;
  ASSERT_TRUE(busy.Open(stream).ok());
  Work(stream);
  ASSERT_TRUE(busy.Close(stream).ok());
  weir_emulator::FailNext(cudaErrorNotReady, "cudaEventQuery");
  ASSERT_TRUE(busy.Collect().ok());
  EXPECT_EQ(busy.busy_ns(), 0);
  // The look is no error that the next kernel would be blamed for.
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  ASSERT_TRUE(busy.Collect().ok());
  EXPECT_GT(busy.busy_ns(), 0);
}

TEST(BusySpansTest, SaysThatAnOperationFailed) {
  cudaStream_t const stream = MakeStream();
  BusySpans busy;
  ASSERT_TRUE(busy.Open(stream).ok());
  ASSERT_TRUE(busy.Close(stream).ok());
  weir_emulator::FailNext(cudaErrorInvalidValue, "cudaEventQuery");
  EXPECT_EQ(busy.Collect().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(busy.Collect().ok());  // the span is not looked at again
}

}  // namespace
}  // namespace weir::cuda
