#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/compute/cuda/emulator/weir_cuda_emulator.h"

namespace weir_emulator {
namespace {

#define OK(call) ASSERT_EQ(call, cudaSuccess)

// ---------------------------------------------------------------- kernels

__global__ void Iota(int64_t count, float* y) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) {
    y[i] = static_cast<float>(i);
  }
}

// sums[block] = sum of x[block * n .. + n), by a tree in shared memory.
__global__ void TreeSums(int n, const float* __restrict__ x, float* sums) {
  __shared__ float part[256];
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    sum += x[blockIdx.x * n + i];
  }
  part[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      part[threadIdx.x] += part[threadIdx.x + half];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = part[0];
  }
}

__global__ void Reverse(float* y) {
  __shared__ float all[64];
  all[threadIdx.x] = y[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = all[blockDim.x - 1 - threadIdx.x];
}

__global__ void ReverseUnsynchronised(float* y) {
  __shared__ float all[64];
  all[threadIdx.x] = y[threadIdx.x];
  y[threadIdx.x] = all[blockDim.x - 1 - threadIdx.x];
}

struct LaneResults {
  double xor_sum;
  int down_sum;
  unsigned ballot;
  int any;
  int64_t from_five;
  int in_segment;
};

__global__ void Lanes(LaneResults* results) {
  const int lane = static_cast<int>(threadIdx.x);
  LaneResults r = {};
  r.xor_sum = lane;
  r.down_sum = lane;
  for (int step = warpSize / 2; step > 0; step /= 2) {
    r.xor_sum += __shfl_xor_sync(0xffffffffu, r.xor_sum, step);
    r.down_sum +=
        __shfl_down_sync(0xffffffffu, r.down_sum, static_cast<unsigned>(step));
  }
  r.ballot = __ballot_sync(0xffffffffu, lane % 3 == 0);
  r.any = __any_sync(0xffffffffu, lane == 7);
  r.from_five = __shfl_sync(0xffffffffu, int64_t{lane} << 40, 5);
  r.in_segment = __shfl_sync(0xffffffffu, lane, 1, 8);
  __syncwarp();
  results[lane] = r;
}

__global__ void HalfBlockSynchronises() {
  if (threadIdx.x < 32) {
    __syncthreads();
  }
}

__global__ void TwoPlacesSynchronise() {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void HalfWarpShuffles(int* out) {
  if (threadIdx.x < 16) {
    out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0);
  } else {
    __syncthreads();
  }
}

__global__ void ReadOne(const float* x, float* y, int64_t at) { *y = x[at]; }

__global__ void AddOne(int n, float* y) {
  for (int i = 0; i < n; ++i) {
    y[i] += 1;
  }
}

// ---------------------------------------------------------------- helpers

float* Device(size_t count) {
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, count * sizeof(float)), cudaSuccess);
  return static_cast<float*>(memory);
}

float* Pinned(size_t count) {
  void* memory = nullptr;
  EXPECT_EQ(cudaMallocHost(&memory, count * sizeof(float)), cudaSuccess);
  return static_cast<float*>(memory);
}

float* Upload(const std::vector<float>& host) {
  float* const device = Device(host.size());
  EXPECT_EQ(cudaMemcpy(device, host.data(), host.size() * sizeof(float),
                       cudaMemcpyHostToDevice),
            cudaSuccess);
  // From pageable memory the copy may still be under way.
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return device;
}

std::vector<float> Download(const float* device, size_t count) {
  std::vector<float> host(count);
  EXPECT_EQ(cudaMemcpy(host.data(), device, count * sizeof(float),
                       cudaMemcpyDeviceToHost),
            cudaSuccess);
  return host;
}

cudaStream_t NewStream() {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
            cudaSuccess);
  return stream;
}

cudaEvent_t NewEvent() {
  cudaEvent_t event = nullptr;
  EXPECT_EQ(cudaEventCreate(&event), cudaSuccess);
  return event;
}

class EmulatorTest : public testing::Test {
 protected:
  EmulatorTest() { Configure({}); }
  ~EmulatorTest() override { Configure({}); }
};

// ----------------------------------------------------------------- kernels

TEST_F(EmulatorTest, RunsEveryThreadOfEveryBlock) {
  float* const y = Device(1000);
  Launch(nullptr, 4, 256, Iota, 1000, y);
  const auto host = Download(y, 1000);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(host[static_cast<size_t>(i)], static_cast<float>(i));
  }
}

TEST_F(EmulatorTest, ReducesThroughSharedMemory) {
  std::vector<float> x(3 * 1000);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i % 1000);
  }
  float* const device = Upload(x);
  float* const sums = Device(3);
  Launch(nullptr, 3, 256, TreeSums, 1000, device, sums);
  EXPECT_EQ(Download(sums, 3), std::vector<float>(3, 999 * 1000 / 2));
}

TEST_F(EmulatorTest, AMissingBarrierShows) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Configure({.seed = seed});
    float* const y = Device(64);
    Launch(nullptr, 1, 64, Iota, 64, y);
    Launch(nullptr, 1, 64, Reverse, y);
    EXPECT_EQ(Download(y, 64)[0], 63);
    EXPECT_EQ(Download(y, 64)[63], 0);
    // Other values for each seed: what an earlier block left does not fit.
    for (uint64_t i = 0; i <= seed; ++i) {
      Launch(nullptr, 1, 1, AddOne, 64, y);
    }
    std::vector<float> want = Download(y, 64);
    std::reverse(want.begin(), want.end());
    Launch(nullptr, 1, 64, ReverseUnsynchronised, y);
    EXPECT_NE(Download(y, 64), want) << seed;
  }
}

TEST_F(EmulatorTest, LanesExchangeValues) {
  void* memory = nullptr;
  OK(cudaMalloc(&memory, 32 * sizeof(LaneResults)));
  Launch(nullptr, 1, 32, Lanes, static_cast<LaneResults*>(memory));
  std::vector<LaneResults> results(32);
  OK(cudaMemcpy(results.data(), memory, 32 * sizeof(LaneResults),
                cudaMemcpyDefault));
  for (int lane = 0; lane < 32; ++lane) {
    const LaneResults& r = results[static_cast<size_t>(lane)];
    EXPECT_EQ(r.xor_sum, 496);
    EXPECT_EQ(r.ballot, 0x49249249u);
    EXPECT_EQ(r.any, 1);
    EXPECT_EQ(r.from_five, int64_t{5} << 40);
    EXPECT_EQ(r.in_segment, lane / 8 * 8 + 1);
  }
  EXPECT_EQ(results[0].down_sum, 496);
}

TEST_F(EmulatorTest, DivergenceEndsTheProcess) {
  const auto run = [](void (*kernel)()) {
    Launch(nullptr, 1, 64, kernel);
    cudaDeviceSynchronize();
  };
  EXPECT_DEATH(run(HalfBlockSynchronises), "32 ended, 32 wait at __syncthr");
  EXPECT_DEATH(run(TwoPlacesSynchronise), "divergent __syncthreads");
  void* out = nullptr;
  OK(cudaMalloc(&out, 64));
  EXPECT_DEATH(
      {
        Launch(nullptr, 1, 32, HalfWarpShuffles, static_cast<int*>(out));
        cudaDeviceSynchronize();
      },
      "16 wait at a warp primitive");
}

TEST_F(EmulatorTest, RefusesLaunchesThatADeviceRefuses) {
  const auto launch = [](dim3 grid, dim3 block) {
    Launch(nullptr, grid, block, Iota, 0, nullptr);
    return cudaGetLastError();
  };
  EXPECT_EQ(launch(1, 1024), cudaSuccess);
  EXPECT_EQ(launch(1, 1025), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(0, 32), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch({1, 65536}, 32), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, {1, 1, 65}), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  float host = 0;
  EXPECT_DEATH(Launch(nullptr, 1, 1, Iota, 1, &host), "a kernel's argument");
}

#ifdef __has_feature
#if __has_feature(address_sanitizer)
TEST_F(EmulatorTest, AddressSanitizerSeesBehindABlock) {
  float* const x = Device(5);
  EXPECT_DEATH(
      {
        Launch(nullptr, 1, 1, ReadOne, x, x, 5);
        cudaDeviceSynchronize();
      },
      "heap-buffer-overflow");
}
#endif
#endif

// ------------------------------------------------------------------ memory

TEST_F(EmulatorTest, FreshMemoryIsGarbageAndBounded) {
  Configure({.bytes_per_device = 1000});
  float* const x = Device(100);
  EXPECT_TRUE(std::isnan(Download(x, 100)[99]));
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, 601), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  OK(cudaMalloc(&more, 600));
  EXPECT_EQ(Counts().device_bytes, 1000);
  EXPECT_EQ(Counts().malloc_calls, 2);
  OK(cudaFree(more));
  OK(cudaFree(nullptr));
  EXPECT_EQ(cudaFree(more), cudaErrorInvalidValue);
  size_t free = 0;
  size_t total = 0;
  OK(cudaMemGetInfo(&free, &total));
  EXPECT_EQ(free, 600u);
  EXPECT_EQ(total, 1000u);
  float host[200] = {};
  EXPECT_EQ(cudaMemcpy(x, host, 404, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host, x, 4, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
}

TEST_F(EmulatorTest, EarlyReuseOfAPinnedBufferShows) {
  cudaStream_t const stream = NewStream();
  float* const device = Device(1);
  float* const pinned = Pinned(1);
  float pageable = 1;
  *pinned = 1;
  OK(cudaMemcpyAsync(device, pinned, 4, cudaMemcpyHostToDevice, stream));
  *pinned = 2;  // too early
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(Download(device, 1)[0], 2);

  OK(cudaMemcpyAsync(device, &pageable, 4, cudaMemcpyHostToDevice, stream));
  pageable = 3;  // staged by then
  OK(cudaMemcpyAsync(pinned, device, 4, cudaMemcpyDeviceToHost, stream));
  EXPECT_EQ(*pinned, 2);  // not yet
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(*pinned, 1);

  OK(cudaHostRegister(&pageable, 4, cudaHostRegisterDefault));
  OK(cudaMemcpyAsync(device, &pageable, 4, cudaMemcpyHostToDevice, stream));
  pageable = 4;
  OK(cudaHostUnregister(&pageable));
  OK(cudaMemcpyAsync(&pageable, device, 4, cudaMemcpyDeviceToHost, stream));
  EXPECT_EQ(pageable, 4);  // pageable again: waited for
}

TEST_F(EmulatorTest, CopiesWindows) {
  float* const x = Upload({0, 1, 2, 3, 4, 5});
  float* const y = Upload({9, 9, 9, 9});
  OK(cudaMemcpy2DAsync(y, 8, x + 1, 12, 4, 2, cudaMemcpyDeviceToDevice,
                       nullptr));
  EXPECT_EQ(Download(y, 4), (std::vector<float>{1, 9, 4, 9}));
  OK(cudaMemsetAsync(y, 0, 8, nullptr));
  EXPECT_EQ(Download(y, 4), (std::vector<float>{0, 0, 4, 9}));
  EXPECT_EQ(cudaMemcpy2DAsync(y, 8, x, 12, 4, 3, cudaMemcpyDefault, nullptr),
            cudaErrorInvalidValue);
}

// ----------------------------------------------------------------- streams

// What stream b reads of what stream a writes.
float ReadAcross(uint64_t seed, bool wait) {
  Configure({.seed = seed});
  cudaStream_t const a = NewStream();
  cudaStream_t const b = NewStream();
  cudaEvent_t const written = NewEvent();
  float* const x = Upload({1});
  float* const y = Device(1);
  float* const host = Pinned(1);
  Launch(a, 1, 1, AddOne, 1, x);
  EXPECT_EQ(cudaEventRecord(written, a), cudaSuccess);
  if (wait) {
    EXPECT_EQ(cudaStreamWaitEvent(b, written, 0), cudaSuccess);
  }
  Launch(b, 1, 1, ReadOne, x, y, 0);
  EXPECT_EQ(cudaMemcpyAsync(host, y, 4, cudaMemcpyDeviceToHost, b),
            cudaSuccess);
  // A later write, that an order too strict would hide.
  Launch(a, 1, 1, AddOne, 1, x);
  EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  return *host;
}

TEST_F(EmulatorTest, AMissingEventWaitShows) {
  int early = 0;
  int late = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    early += ReadAcross(seed, false) == 1 ? 1 : 0;
    late += ReadAcross(seed, true) == 3 ? 1 : 0;  // the second write raced
    EXPECT_GE(ReadAcross(seed, true), 2);
  }
  EXPECT_GT(early, 0);
  EXPECT_GT(late, 0);
  EXPECT_LT(late, 20);
}

TEST_F(EmulatorTest, AWaitMeansTheMostRecentRecord) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Configure({.seed = seed});
    cudaStream_t const a = NewStream();
    cudaStream_t const b = NewStream();
    cudaEvent_t const event = NewEvent();
    float* const x = Upload({0});
    float* const host = Pinned(1);
    OK(cudaStreamWaitEvent(b, event, 0));  // never recorded: nothing
    OK(cudaStreamSynchronize(b));
    Launch(a, 1, 1, AddOne, 1, x);
    OK(cudaEventRecord(event, a));
    Launch(a, 1, 1, AddOne, 1, x);
    OK(cudaEventRecord(event, a));
    OK(cudaStreamWaitEvent(b, event, 0));
    OK(cudaEventDestroy(event));  // the wait stands
    OK(cudaMemcpyAsync(host, x, 4, cudaMemcpyDeviceToHost, b));
    OK(cudaStreamDestroy(a));  // what is queued still runs
    OK(cudaStreamSynchronize(b));
    EXPECT_EQ(*host, 2);
    EXPECT_EQ(Counts().pending, 0);
    EXPECT_EQ(Counts().streams, 1);
  }
}

TEST_F(EmulatorTest, PollsMakeProgressAndEventsTellTime) {
  cudaStream_t const stream = NewStream();
  cudaEvent_t const first = NewEvent();
  cudaEvent_t const last = NewEvent();
  EXPECT_EQ(cudaEventQuery(first), cudaSuccess);
  float* const x = Upload({0});
  OK(cudaEventRecord(first, stream));
  for (int i = 0; i < 50; ++i) {
    Launch(stream, 1, 1, AddOne, 1, x);
  }
  OK(cudaEventRecord(last, stream));
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  float ms = 0;
  EXPECT_EQ(cudaEventElapsedTime(&ms, first, last), cudaErrorNotReady);
  int polls = 1;
  while (cudaEventQuery(last) == cudaErrorNotReady) {
    ASSERT_LT(++polls, 1000);
  }
  EXPECT_GT(polls, 10);
  OK(cudaEventElapsedTime(&ms, first, last));
  EXPECT_GT(ms, 0);
  EXPECT_EQ(Download(x, 1)[0], 50);
}

TEST_F(EmulatorTest, TheDefaultStreamOrdersBlockingStreams) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Configure({.seed = seed});
    cudaStream_t blocking = nullptr;
    OK(cudaStreamCreate(&blocking));
    float* const x = Upload({0});
    float* const y = Device(1);
    float* const z = Device(1);
    Launch(blocking, 1, 1, AddOne, 1, x);
    Launch(nullptr, 1, 1, ReadOne, x, y, 0);
    Launch(blocking, 1, 1, ReadOne, y, z, 0);
    OK(cudaStreamSynchronize(blocking));
    EXPECT_EQ(Download(z, 1)[0], 1);
  }
}

TEST_F(EmulatorTest, HostFunctionsRunInOrderAndMayNotCall) {
  cudaStream_t const stream = NewStream();
  float* const x = Upload({0});
  float* const host = Pinned(2);
  Launch(stream, 1, 1, AddOne, 1, x);
  OK(cudaMemcpyAsync(host, x, 4, cudaMemcpyDeviceToHost, stream));
  OK(cudaLaunchHostFunc(
      stream,
      [](void* data) {
        auto* const values = static_cast<float*>(data);
        values[1] = values[0] + 1;
        EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorNotPermitted);
        // Another thread's calls go through meanwhile.
        std::thread([] { EXPECT_EQ(Counts().pending, 1); }).join();
      },
      host));
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(host[1], 2);
}

TEST_F(EmulatorTest, DevicesAreSeparate) {
  Configure({.devices = 2});
  int can = 0;
  OK(cudaDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(can, 1);
  float* const on_first = Upload({5});
  OK(cudaSetDevice(1));
  float* const on_second = Device(1);
  cudaStream_t const stream = NewStream();
  OK(cudaMemcpyPeerAsync(on_second, 1, on_first, 0, 4, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(Download(on_second, 1)[0], 5);
  EXPECT_DEATH(Launch(stream, 1, 1, ReadOne, on_first, on_second, 0),
               "device 1 can reach");
  OK(cudaDeviceEnablePeerAccess(0, 0));
  Launch(stream, 1, 1, ReadOne, on_first, on_second, 0);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0),
            cudaErrorPeerAccessAlreadyEnabled);
  OK(cudaSetDevice(0));
  (void)cudaGetLastError();
  Launch(stream, 1, 1, AddOne, 1, on_second);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
}

TEST_F(EmulatorTest, InjectedFailuresAndAMissingDriver) {
  FailNext(cudaErrorMemoryAllocation, "cudaMalloc");
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorMemoryAllocation);
  OK(cudaMalloc(&memory, 4));
  FailNext(cudaErrorLaunchFailure, "cudaStreamSynchronize");
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaFree(memory), cudaErrorLaunchFailure);  // the device is gone
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  Configure({.driver_missing = true});
  int count = 7;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  EXPECT_EQ(count, 0);
  OK(cudaDriverGetVersion(&count));
  EXPECT_EQ(count, 0);
  Configure({.devices = 0});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorNoDevice);
}

// ----------------------------------------------------------------- capture

TEST_F(EmulatorTest, GraphsReplayForkedWork) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Configure({.seed = seed});
    cudaStream_t const a = NewStream();
    cudaStream_t const b = NewStream();
    cudaEvent_t const fork = NewEvent();
    cudaEvent_t const join = NewEvent();
    float* const x = Upload({0});
    float* const y = Device(1);
    float* const host = Pinned(1);
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    Launch(a, 1, 1, AddOne, 1, x);
    OK(cudaEventRecord(fork, a));
    OK(cudaStreamWaitEvent(b, fork, 0));
    Launch(b, 1, 1, ReadOne, x, y, 0);
    Launch(b, 1, 1, AddOne, 1, y);
    OK(cudaEventRecord(join, b));
    OK(cudaStreamWaitEvent(a, join, 0));
    OK(cudaMemcpyAsync(host, y, 4, cudaMemcpyDeviceToHost, a));
    cudaGraph_t graph = nullptr;
    OK(cudaStreamEndCapture(a, &graph));
    EXPECT_EQ(Counts().pending, 0);
    cudaGraphExec_t exec = nullptr;
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    for (int replay = 1; replay <= 3; ++replay) {
      OK(cudaGraphLaunch(exec, b));
      OK(cudaStreamSynchronize(b));
      EXPECT_EQ(*host, static_cast<float>(replay + 1));
    }
    OK(cudaGraphExecDestroy(exec));
    EXPECT_EQ(Counts().graphs, 0);
  }
}

TEST_F(EmulatorTest, CaptureRefusesWhatCudaRefuses) {
  cudaStream_t const a = NewStream();
  cudaStream_t const b = NewStream();
  cudaEvent_t const event = NewEvent();
  float* const x = Device(1);
  cudaGraph_t graph = nullptr;
  void* memory = nullptr;
  const auto begin = [a](cudaStreamCaptureMode mode) {
    EXPECT_EQ(cudaStreamBeginCapture(a, mode), cudaSuccess);
  };
  begin(cudaStreamCaptureModeGlobal);
  OK(cudaEventRecord(event, a));
  OK(cudaStreamWaitEvent(b, event, 0));
  Launch(b, 1, 1, AddOne, 1, x);
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureUnjoined);

  begin(cudaStreamCaptureModeGlobal);
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorStreamCaptureUnsupported);
  Launch(a, 1, 1, AddOne, 1, x);
  EXPECT_EQ(cudaGetLastError(), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);

  begin(cudaStreamCaptureModeRelaxed);
  OK(cudaMalloc(&memory, 4));
  OK(cudaEventRecord(event, a));
  EXPECT_EQ(cudaEventSynchronize(event), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);

  begin(cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);

  OK(cudaEventRecord(event, b));
  begin(cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(cudaStreamWaitEvent(a, event, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorIllegalState);
}

// ---------------------------------------------------------------- cuBLASLt

struct MatMulCase {
  bool trans_a = false;
  bool trans_b = false;
  cudaDataType in = CUDA_R_32F;
  cudaDataType out = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  bool bias = false;
  float beta = 0;
  int m = 7, n = 5, k = 9;
  int64_t ld_excess = 3;
  size_t misplaced_bytes = 0;  // of A, against the promise
  size_t workspace_bytes = 1 << 16;
};

float Bf16(float x) {  // by the definition: 8 bits of significand, ties even
  int exponent = 0;
  const double significand = std::frexp(static_cast<double>(x), &exponent);
  return static_cast<float>(
      std::ldexp(std::nearbyint(std::ldexp(significand, 8)), exponent - 8));
}
float Tf32(float x) {
  int exponent = 0;
  const double significand = std::frexp(static_cast<double>(x), &exponent);
  return static_cast<float>(
      std::ldexp(std::nearbyint(std::ldexp(significand, 11)), exponent - 11));
}

// Column-major matrices on the device, and what cuBLASLt reads of them.
struct Matrix {
  int64_t ld = 0;
  std::vector<float> values;  // [ld * columns]
  void* device = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;

  Matrix(cudaDataType type, int rows, int columns, int64_t excess, int salt,
         size_t misplaced_bytes = 0)
      : ld(rows + excess), values(static_cast<size_t>(ld * columns)) {
    std::vector<uint16_t> narrow(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = std::sin(static_cast<float>(static_cast<int>(i) + salt));
      if (type == CUDA_R_16BF) {
        values[i] = Bf16(values[i]);
        narrow[i] =
            static_cast<uint16_t>(std::bit_cast<uint32_t>(values[i]) >> 16);
      }
    }
    const bool wide = type == CUDA_R_32F;
    const size_t bytes = values.size() * (wide ? 4 : 2);
    EXPECT_EQ(cudaMalloc(&device, bytes + misplaced_bytes), cudaSuccess);
    device = static_cast<char*>(device) + misplaced_bytes;
    EXPECT_EQ(cudaMemcpy(device,
                         wide ? static_cast<const void*>(values.data())
                              : static_cast<const void*>(narrow.data()),
                         bytes, cudaMemcpyHostToDevice),
              cudaSuccess);
    cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows),
                               static_cast<uint64_t>(columns), ld);
  }
  ~Matrix() { cublasLtMatrixLayoutDestroy(layout); }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;

  float At(int row, int column) const {
    return values[static_cast<size_t>(column * ld + row)];
  }
};

// Compares what is in `c` with naive loops.
void ExpectNaiveProduct(const MatMulCase& t, const Matrix& a, const Matrix& b,
                        const Matrix& c, const Matrix& bias) {
  std::vector<uint16_t> narrow(c.values.size());
  std::vector<float> got(c.values.size());
  const bool wide = t.out == CUDA_R_32F;
  if (wide) {
    EXPECT_EQ(cudaMemcpy(got.data(), c.device, got.size() * 4,
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
  } else {
    EXPECT_EQ(cudaMemcpy(narrow.data(), c.device, narrow.size() * 2,
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
  }
  const bool tf32 = t.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  for (int i = 0; i < t.m; ++i) {
    for (int j = 0; j < t.n; ++j) {
      double sum = 0;
      for (int p = 0; p < t.k; ++p) {
        const float x = t.trans_a ? a.At(p, i) : a.At(i, p);
        const float y = t.trans_b ? b.At(j, p) : b.At(p, j);
        sum += static_cast<double>(tf32 ? Tf32(x) : x) * (tf32 ? Tf32(y) : y);
      }
      double want = 1.5 * sum + static_cast<double>(t.beta) * c.At(i, j);
      want += t.bias ? bias.At(i, 0) : 0;
      const auto at = static_cast<size_t>(j * c.ld + i);
      const float value =
          wide ? got[at] : std::bit_cast<float>(uint32_t{narrow[at]} << 16);
      const auto rounded = static_cast<float>(want);
      EXPECT_EQ(value, wide ? rounded : Bf16(rounded)) << i << " " << j;
    }
  }
}

// Runs the case; where `check`, compares with naive loops.
cublasStatus_t RunMatMul(const MatMulCase& t, bool check) {
  const int m = t.m;
  const int n = t.n;
  const int k = t.k;
  Matrix a(t.in, t.trans_a ? k : m, t.trans_a ? m : k, t.ld_excess, 1,
           t.misplaced_bytes);
  Matrix b(t.in, t.trans_b ? n : k, t.trans_b ? k : n, 1, 2);
  Matrix c(t.out, m, n, 0, 3);
  Matrix bias(CUDA_R_32F, m, 1, 0, 4);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtCreate(&handle);
  cublasLtMatmulDescCreate(&desc, t.compute, CUDA_R_32F);
  cublasLtMatmulPreferenceCreate(&preference);
  const auto set = [desc](cublasLtMatmulDescAttributes_t name, auto value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(desc, name, &value, sizeof(value)),
              CUBLAS_STATUS_SUCCESS);
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, t.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, t.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (t.bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.device);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
  }
  const uint64_t workspace_max = 1 << 16;
  cublasLtMatmulPreferenceSetAttribute(preference,
                                       CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                       &workspace_max, sizeof(workspace_max));
  cublasLtMatmulHeuristicResult_t result = {};
  int found = 0;
  cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, desc, a.layout, b.layout, c.layout,
                                     c.layout, preference, 1, &result, &found);
  void* workspace = nullptr;
  EXPECT_EQ(cudaMalloc(&workspace, 1 << 16), cudaSuccess);
  if (status == CUBLAS_STATUS_SUCCESS) {
    EXPECT_EQ(found, 1);
    float alpha = 1.5f;
    float beta = t.beta;
    status =
        cublasLtMatmul(handle, desc, &alpha, a.device, a.layout, b.device,
                       b.layout, &beta, c.device, c.layout, c.device, c.layout,
                       &result.algo, workspace, t.workspace_bytes, nullptr);
    alpha = beta = 1e9f;  // read by then
  }
  // Copies wait for the product, whatever became of it.
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  if (check) {
    ExpectNaiveProduct(t, a, b, c, bias);
  }
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatmulDescDestroy(desc);
  cublasLtDestroy(handle);
  return status;
}

TEST_F(EmulatorTest, MatMulIsTheNaiveProduct) {
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      for (const bool bias : {false, true}) {
        MatMulCase t{.trans_a = trans_a, .trans_b = trans_b, .bias = bias};
        EXPECT_EQ(RunMatMul(t, true), CUBLAS_STATUS_SUCCESS);
        t.beta = 0.5f;
        t.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
        EXPECT_EQ(RunMatMul(t, true), CUBLAS_STATUS_SUCCESS);
        t.compute = CUBLAS_COMPUTE_32F;
        t.in = CUDA_R_16BF;
        EXPECT_EQ(RunMatMul(t, true), CUBLAS_STATUS_SUCCESS);
        t.out = CUDA_R_16BF;
        EXPECT_EQ(RunMatMul(t, true), CUBLAS_STATUS_SUCCESS);
      }
    }
  }
}

TEST_F(EmulatorTest, MatMulRefusesWhatCublasRefuses) {
  EXPECT_EQ(RunMatMul({.ld_excess = -1}, false), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(RunMatMul({.misplaced_bytes = 16}, false),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(RunMatMul({.workspace_bytes = 16}, false),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(
      RunMatMul({.in = CUDA_R_16BF, .compute = CUBLAS_COMPUTE_32F_FAST_TF32},
                false),
      CUBLAS_STATUS_NOT_SUPPORTED);
  FailNext(cudaErrorUnknown, "cublasLtMatmul");
  EXPECT_EQ(RunMatMul({}, false), CUBLAS_STATUS_EXECUTION_FAILED);
}

}  // namespace
}  // namespace weir_emulator
