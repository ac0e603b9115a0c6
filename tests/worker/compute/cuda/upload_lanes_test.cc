#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weir_cuda_emulator.h"
#include "worker/compute/cuda/device_memory.h"

namespace weir::cuda {
namespace {

using weir_emulator::Counts;

std::string Text(size_t bytes) {
  std::string text(bytes, '\0');
  std::iota(text.begin(), text.end(), '\1');
  return text;
}

char* Allocate(size_t bytes) {
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, bytes), cudaSuccess);
  return static_cast<char*>(memory);
}

std::string Read(const char* device, size_t bytes) {
  std::string text(bytes, '\0');
  EXPECT_EQ(cudaMemcpy(text.data(), device, bytes, cudaMemcpyDeviceToHost),
            cudaSuccess);
  return text;
}

std::vector<std::span<const char>> Cut(const std::string& text,
                                       const std::vector<size_t>& sizes) {
  std::vector<std::span<const char>> pieces;
  std::span<const char> rest = text;
  for (const size_t size : sizes) {
    pieces.push_back(rest.first(size));
    rest = rest.subspan(size);
  }
  pieces.push_back(rest);
  return pieces;
}

// Pieces of any size, shorter and longer than a lane's memory, in it and over
// its end; the bytes are there when the call returns, though nobody waits.
TEST(UploadLanesTest, BringsPiecesOneBehindTheOther) {
  constexpr size_t kLane = UploadLanes::kLaneBytes;
  weir_emulator::Configure({});
  UploadLanes lanes(0);
  for (const size_t bytes :
       {size_t{3}, kLane - 1, kLane, kLane + 5, 3 * kLane + 100}) {
    SCOPED_TRACE(bytes);
    const std::string text = Text(bytes);
    char* const device = Allocate(bytes);
    for (const std::vector<size_t>& sizes :
         {std::vector<size_t>{}, {1, 0, 1}, {bytes / 2, bytes / 3}}) {
      ASSERT_EQ(cudaMemset(device, 0, bytes), cudaSuccess);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      const auto pieces = Cut(text, sizes);
      ASSERT_TRUE(lanes.Upload(device, pieces).ok());
      EXPECT_EQ(Counts().pending, 0);
      EXPECT_TRUE(Read(device, bytes) == text);  // too long to be shown
    }
    cudaFree(device);
  }
  EXPECT_TRUE(lanes.Upload(nullptr, {}).ok());
  EXPECT_EQ(Counts().pinned_bytes, static_cast<int64_t>(kLane));
}

TEST(UploadLanesTest, ServesManyThreadsAndGivesEverythingBack) {
  constexpr int kThreads = 4;
  constexpr size_t kBytes = 100'000;
  weir_emulator::Configure({.devices = 2});
  const int64_t streams = Counts().streams;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  char* const device = Allocate(kThreads * kBytes);
  const std::string text = Text(kBytes);
  {
    UploadLanes lanes(1);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      // The current device of a new thread is device 0.
      threads.emplace_back([&, t] {
        for (int i = 0; i < 20; ++i) {
          EXPECT_TRUE(
              lanes.Upload(device + t * kBytes, Cut(text, {kBytes / 2})).ok());
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_LE(Counts().streams, streams + kThreads);
    for (int t = 0; t < kThreads; ++t) {
      EXPECT_TRUE(Read(device + t * kBytes, kBytes) == text);
    }
  }
  EXPECT_EQ(Counts().streams, streams);
  EXPECT_EQ(Counts().pinned_bytes, 0);
  cudaFree(device);
}

TEST(UploadLanesTest, SaysWhatFailedAndGoesOn) {
  weir_emulator::Configure({});
  const std::string text = Text(8);
  char* const device = Allocate(8);
  for (const char* function :
       {"cudaSetDevice", "cudaHostAlloc", "cudaStreamCreateWithFlags",
        "cudaMemcpyAsync", "cudaStreamSynchronize"}) {
    SCOPED_TRACE(function);
    {
      UploadLanes lanes(0);
      weir_emulator::FailNext(cudaErrorInvalidValue, function);
      const absl::Status status = lanes.Upload(device, Cut(text, {}));
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
      EXPECT_THAT(std::string(status.message()),
                  testing::HasSubstr("cudaErrorInvalidValue"));
      EXPECT_TRUE(lanes.Upload(device, Cut(text, {})).ok());
      EXPECT_EQ(Read(device, 8), text);
    }
    EXPECT_EQ(Counts().pinned_bytes, 0);
  }
  cudaFree(device);
}

}  // namespace
}  // namespace weir::cuda
