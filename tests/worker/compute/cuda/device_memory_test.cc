// Device memory on the emulator, which stands for other processes, too: what
// the test takes with cudaMalloc is not ours.
#include "worker/compute/cuda/device_memory.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weir_cuda_emulator.h"

namespace weir::cuda {
namespace {

using ::testing::HasSubstr;
using weir_emulator::Counts;

constexpr int64_t kDeviceBytes = int64_t{1} << 20;

void UseSmallDevices() {
  weir_emulator::Configure({.devices = 2, .bytes_per_device = kDeviceBytes});
}

TEST(DeviceMemoryTest, NamesTheCallThatFailed) {
  EXPECT_TRUE(ToStatus(cudaSuccess, "cudaMalloc").ok());
  const absl::Status status = ToStatus(cudaErrorInvalidValue, "cudaMalloc");
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("CUDA cudaMalloc: cudaErrorInvalidValue: "));
}

TEST(DeviceMemoryTest, GivesAnAddressForNoBytes) {
  UseSmallDevices();
  void* const memory = AllocateDevice(0).value();
  EXPECT_NE(memory, nullptr);
  EXPECT_EQ(FreeDevice(memory), cudaSuccess);
  EXPECT_EQ(FreeDevice(nullptr), cudaSuccess);
  EXPECT_EQ(Counts().device_blocks, 0);
}

TEST(DeviceMemoryTest, SaysExhaustedWhereOthersHoldWhatIsMissing) {
  UseSmallDevices();
  void* others = nullptr;
  ASSERT_EQ(cudaMalloc(&others, kDeviceBytes * 3 / 4), cudaSuccess);
  const absl::Status status = AllocateDevice(kDeviceBytes / 2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("on cuda:0: 524288 bytes asked, 0 held, "));
  // The next kernel must not be blamed for it.
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  ASSERT_EQ(cudaFree(others), cudaSuccess);
  void* const memory = AllocateDevice(kDeviceBytes / 2).value();
  FreeDevice(memory);
}

TEST(DeviceMemoryTest, SaysOutOfRangeForMoreThanTheDeviceHas) {
  UseSmallDevices();
  EXPECT_EQ(AllocateDevice(2 * kDeviceBytes).status().code(),
            absl::StatusCode::kOutOfRange);
  // Also together with what this process holds, but on this device only.
  void* const held = AllocateDevice(kDeviceBytes / 2).value();
  const absl::Status status = AllocateDevice(kDeviceBytes * 3 / 4).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("524288 held"));
  cudaSetDevice(1);
  void* const other = AllocateDevice(kDeviceBytes * 3 / 4).value();
  FreeDevice(other);
  FreeDevice(held);
}

TEST(DeviceScratchTest, GrowsToTheLargestRequestAndStays) {
  UseSmallDevices();
  {
    DeviceScratch scratch;
    EXPECT_EQ(scratch.bytes(), 0);
    ASSERT_TRUE(scratch.Reserve(1000).ok());
    void* const memory = scratch.Reserve(4000).value();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0u);
    const int64_t calls = Counts().malloc_calls;
    EXPECT_EQ(scratch.Reserve(1).value(), memory);
    EXPECT_EQ(scratch.Reserve(4000).value(), memory);
    EXPECT_EQ(Counts().malloc_calls, calls);
    EXPECT_EQ(scratch.bytes(), 4000);
    EXPECT_EQ(Counts().device_blocks, 1);
  }
  EXPECT_EQ(Counts().device_blocks, 0);
}

TEST(DeviceScratchTest, HasItsSizeOfBeforeWhereItCouldNotGrow) {
  UseSmallDevices();
  DeviceScratch scratch;
  EXPECT_EQ(scratch.Reserve(2 * kDeviceBytes).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(scratch.bytes(), 0);
  EXPECT_EQ(Counts().device_blocks, 0);
  ASSERT_TRUE(scratch.Reserve(kDeviceBytes / 2).ok());
  EXPECT_THAT(std::string(scratch.Reserve(2 * kDeviceBytes).status().message()),
              HasSubstr("2097152 bytes asked, 0 held"));
  EXPECT_EQ(scratch.bytes(), kDeviceBytes / 2);
  EXPECT_EQ(Counts().device_bytes, kDeviceBytes / 2);
  // It frees before it allocates: both would not fit.
  EXPECT_TRUE(scratch.Reserve(kDeviceBytes * 3 / 4).ok());
}

TEST(PinnedWordsTest, GrowsOnBothSidesAndFreesBoth) {
  UseSmallDevices();
  {
    PinnedWords words;
    EXPECT_EQ(words.capacity(), 0u);
    ASSERT_TRUE(words.Reserve(3).ok());
    uint64_t* const host = words.host();
    ASSERT_TRUE(words.Reserve(2).ok());
    EXPECT_EQ(words.host(), host);
    EXPECT_EQ(words.capacity(), 3u);
    ASSERT_TRUE(words.Reserve(100).ok());
    EXPECT_EQ(words.capacity(), 100u);
    EXPECT_EQ(Counts().device_blocks, 1);
    words.host()[99] = 7;
    EXPECT_EQ(cudaMemcpy(words.device() + 99, words.host() + 99,
                         sizeof(uint64_t), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  EXPECT_EQ(Counts().device_blocks, 0);
  EXPECT_EQ(Counts().pinned_bytes, 0);
}

TEST(PinnedWordsTest, HasNoCapacityAfterItCouldNotGrow) {
  UseSmallDevices();
  PinnedWords words;
  ASSERT_TRUE(words.Reserve(1).ok());
  EXPECT_EQ(words.Reserve(kDeviceBytes).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(words.capacity(), 0u);
  EXPECT_TRUE(words.Reserve(1).ok());
}

}  // namespace
}  // namespace weir::cuda
