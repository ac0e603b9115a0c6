// CUDA's runtime functions for devices, memory and kernels over the emulated
// machine (scheduler.h); streams.cc has the rest. Their prototypes are the real
// header's, so the compiler checks them.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/worker/compute/cuda/emulator/scheduler.h"

namespace weir_emulator {
namespace {

// The answers of cudaGetDeviceProperties. The limits are those of real devices.
constexpr unsigned kThreadsMax = 1024;
constexpr unsigned kBlockDepthMax = 64;
constexpr unsigned kGridWidthMax = 0x7fffffff;
constexpr unsigned kGridMax = 65535;
constexpr int kVersion = 13000;
constexpr int kMultiprocessors = 4;
constexpr int kSharedBytes = 48 << 10;
constexpr int kMajor = 8;

struct Window {
  void* dst;
  size_t dst_pitch;
  const void* src;
  size_t src_pitch;
  size_t width;
  size_t height;

  void Copy() const {
    for (size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<char*>(dst) + row * dst_pitch,
                  static_cast<const char*>(src) + row * src_pitch, width);
    }
  }
  static int64_t Span(size_t pitch, size_t width, size_t height) {
    return static_cast<int64_t>(pitch * (height - 1) + width);
  }
};

bool Fits(cudaMemcpyKind kind, bool to_device, bool from_device) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
      return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

// `synchronous`: as cudaMemcpy, which still does not wait for a copy within
// the device, nor for the end of one from pageable memory.
cudaError_t CopyWindow(Machine& machine, Window window, cudaMemcpyKind kind,
                       cudaStream_t handle, bool synchronous) {
  CUstream_st* const stream = machine.Find(handle, CurrentDevice());
  if (stream == nullptr) {
    return cudaErrorInvalidResourceHandle;
  }
  if (window.width == 0 || window.height == 0) {
    return cudaSuccess;
  }
  if (window.dst == nullptr || window.src == nullptr) {
    return cudaErrorInvalidValue;
  }
  if (window.dst_pitch < window.width || window.src_pitch < window.width) {
    return cudaErrorInvalidPitchValue;
  }
  const Place to = machine.PlaceOf(
      window.dst, Window::Span(window.dst_pitch, window.width, window.height));
  const Place from = machine.PlaceOf(
      window.src, Window::Span(window.src_pitch, window.width, window.height));
  const bool to_device = to == Place::kDevice;
  const bool from_device = from == Place::kDevice;
  if (to == Place::kInvalid || from == Place::kInvalid ||
      !Fits(kind, to_device, from_device)) {
    return cudaErrorInvalidValue;
  }
  const bool pageable = to == Place::kPageable || from == Place::kPageable;
  if (stream->capture != nullptr && pageable) {
    stream->capture->valid = false;
    return cudaErrorStreamCaptureUnsupported;
  }
  if (from == Place::kPageable && to_device) {
    if (synchronous) {
      machine.RunStream(stream);
    }
    const char* const first = static_cast<const char*>(window.src);
    std::vector<char> staged;
    for (size_t row = 0; row < window.height; ++row) {
      const char* const begin = first + row * window.src_pitch;
      staged.insert(staged.end(), begin, begin + window.width);
    }
    return machine.Enqueue(stream, [window, staged]() mutable {
      window.src = staged.data();
      window.src_pitch = window.width;
      window.Copy();
    });
  }
  const cudaError_t error =
      machine.Enqueue(stream, [window] { window.Copy(); });
  const bool waits = to == Place::kPageable || from == Place::kPageable ||
                     (synchronous && !(to_device && from_device));
  if (error == cudaSuccess && waits) {
    machine.RunUntil({stream->last});
  }
  return error;
}

cudaError_t Fill(Machine& machine, void* memory, int value, size_t bytes,
                 cudaStream_t handle) {
  CUstream_st* const stream = machine.Find(handle, CurrentDevice());
  if (stream == nullptr) {
    return cudaErrorInvalidResourceHandle;
  }
  const Place place = machine.PlaceOf(memory, static_cast<int64_t>(bytes));
  if (bytes != 0 && place != Place::kDevice && place != Place::kPinned) {
    return cudaErrorInvalidValue;
  }
  return machine.Enqueue(
      stream, [memory, value, bytes] { std::memset(memory, value, bytes); });
}

cudaError_t RefuseDeviceCapture(Machine& machine, int device) {
  const cudaError_t error = machine.CheckUnsafeCall();
  return error == cudaSuccess && machine.Capturing(device)
             ? cudaErrorStreamCaptureUnsupported
             : error;
}

bool IsDevice(const Machine& machine, int device) {
  return device >= 0 && device < machine.config.devices;
}

}  // namespace

void EnqueueKernel(cudaStream_t handle, dim3 grid, dim3 block,
                   std::function<void()> thread,
                   const std::vector<const volatile void*>& pointers) {
  Call("Launch", [&](Machine& machine) {
    CUstream_st* const stream = machine.Find(handle, CurrentDevice());
    if (stream == nullptr || stream->device != CurrentDevice()) {
      return cudaErrorInvalidResourceHandle;
    }
    const uint64_t threads = uint64_t{block.x} * block.y * block.z;
    const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
    if (threads == 0 || threads > kThreadsMax || block.x > kThreadsMax ||
        block.y > kThreadsMax || block.z > kBlockDepthMax || blocks == 0 ||
        grid.x > kGridWidthMax || grid.y > kGridMax || grid.z > kGridMax) {
      return cudaErrorInvalidConfiguration;
    }
    for (const volatile void* pointer : pointers) {
      if (pointer != nullptr) {
        machine.CheckReach("a kernel's argument", pointer, 0, stream->device);
      }
    }
    return machine.Enqueue(stream,
                           [&machine, grid, block, thread = std::move(thread)] {
                             ++machine.launches;
                             RunGrid(grid, block, thread, machine.random);
                           });
  });
}

}  // namespace weir_emulator

using weir_emulator::Call;
using weir_emulator::CurrentDevice;
using weir_emulator::Machine;

// NOLINTBEGIN(readability-identifier-naming): CUDA's names.
extern "C" {

// ------------------------------------------------------------------ errors

cudaError_t cudaGetLastError() {
  const cudaError_t now = Call(__func__, [](Machine&) { return cudaSuccess; });
  const cudaError_t last = weir_emulator::LastError();
  weir_emulator::LastError() = cudaSuccess;
  return now != cudaSuccess ? now : last;
}

cudaError_t cudaPeekAtLastError() {
  const cudaError_t now = Call(__func__, [](Machine&) { return cudaSuccess; });
  return now != cudaSuccess ? now : weir_emulator::LastError();
}

const char* cudaGetErrorName(cudaError_t error) {
#define WEIR_NAME(name) \
  case name:            \
    return #name;
  switch (error) {
    WEIR_NAME(cudaSuccess)
    WEIR_NAME(cudaErrorInvalidValue)
    WEIR_NAME(cudaErrorMemoryAllocation)
    WEIR_NAME(cudaErrorInvalidConfiguration)
    WEIR_NAME(cudaErrorInvalidPitchValue)
    WEIR_NAME(cudaErrorInsufficientDriver)
    WEIR_NAME(cudaErrorNoDevice)
    WEIR_NAME(cudaErrorInvalidDevice)
    WEIR_NAME(cudaErrorECCUncorrectable)
    WEIR_NAME(cudaErrorInvalidResourceHandle)
    WEIR_NAME(cudaErrorIllegalState)
    WEIR_NAME(cudaErrorNotReady)
    WEIR_NAME(cudaErrorIllegalAddress)
    WEIR_NAME(cudaErrorLaunchOutOfResources)
    WEIR_NAME(cudaErrorLaunchTimeout)
    WEIR_NAME(cudaErrorPeerAccessAlreadyEnabled)
    WEIR_NAME(cudaErrorHostMemoryAlreadyRegistered)
    WEIR_NAME(cudaErrorHostMemoryNotRegistered)
    WEIR_NAME(cudaErrorLaunchFailure)
    WEIR_NAME(cudaErrorNotPermitted)
    WEIR_NAME(cudaErrorNotSupported)
    WEIR_NAME(cudaErrorStreamCaptureUnsupported)
    WEIR_NAME(cudaErrorStreamCaptureInvalidated)
    WEIR_NAME(cudaErrorStreamCaptureMerge)
    WEIR_NAME(cudaErrorStreamCaptureUnmatched)
    WEIR_NAME(cudaErrorStreamCaptureUnjoined)
    WEIR_NAME(cudaErrorStreamCaptureIsolation)
    WEIR_NAME(cudaErrorStreamCaptureImplicit)
    WEIR_NAME(cudaErrorCapturedEvent)
    WEIR_NAME(cudaErrorStreamCaptureWrongThread)
    default:
      return "unrecognized error code";
  }
#undef WEIR_NAME
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    default:
      return cudaGetErrorName(error);
  }
}

// ----------------------------------------------------------------- devices

// These two work without a driver, as those of CUDA do.
cudaError_t cudaDriverGetVersion(int* version) {
  const cudaError_t error =
      Call(__func__, [](Machine&) { return cudaSuccess; });
  *version = error == cudaErrorInsufficientDriver ? 0 : weir_emulator::kVersion;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = weir_emulator::kVersion;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return Call(__func__, [count](Machine& machine) {
    *count = machine.config.devices;
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return Call(__func__, [device](Machine& machine) {
    if (!weir_emulator::IsDevice(machine, device)) {
      return machine.config.devices == 0 ? cudaErrorNoDevice
                                         : cudaErrorInvalidDevice;
    }
    CurrentDevice() = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return Call(__func__, [device](Machine&) {
    *device = CurrentDevice();
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return Call(__func__, [=](Machine& machine) {
    if (!weir_emulator::IsDevice(machine, device)) {
      return cudaErrorInvalidDevice;
    }
    cudaDeviceProp p = {};
    std::snprintf(p.name, sizeof(p.name), "Weir emulator");
    std::memset(p.uuid.bytes, device, sizeof(p.uuid.bytes));
    p.totalGlobalMem = static_cast<size_t>(machine.config.bytes_per_device);
    p.sharedMemPerBlock = weir_emulator::kSharedBytes;
    p.warpSize = warpSize;
    p.memPitch = static_cast<size_t>(machine.config.pitch_max);
    p.maxThreadsPerBlock = weir_emulator::kThreadsMax;
    p.maxThreadsDim[0] = p.maxThreadsDim[1] = weir_emulator::kThreadsMax;
    p.maxThreadsDim[2] = weir_emulator::kBlockDepthMax;
    p.maxGridSize[0] = weir_emulator::kGridWidthMax;
    p.maxGridSize[1] = p.maxGridSize[2] = weir_emulator::kGridMax;
    p.major = weir_emulator::kMajor;
    p.multiProcessorCount = weir_emulator::kMultiprocessors;
    p.maxThreadsPerMultiProcessor = 2 * weir_emulator::kThreadsMax;
    p.regsPerBlock = p.regsPerMultiprocessor = 64 << 10;
    p.asyncEngineCount = 2;
    p.concurrentKernels = p.unifiedAddressing = p.canMapHostMemory = 1;
    p.pciBusID = device + 1;
    *properties = p;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute,
                                   int device) {
  cudaDeviceProp p;
  const cudaError_t error = cudaGetDeviceProperties(&p, device);
  if (error != cudaSuccess) {
    return error;
  }
  return Call(__func__, [&](Machine&) {
    switch (attribute) {
      case cudaDevAttrMaxThreadsPerBlock:
      case cudaDevAttrMaxBlockDimX:
        *value = p.maxThreadsPerBlock;
        return cudaSuccess;
      case cudaDevAttrMaxGridDimX:
        *value = p.maxGridSize[0];
        return cudaSuccess;
      case cudaDevAttrMaxGridDimY:
      case cudaDevAttrMaxGridDimZ:
        *value = p.maxGridSize[1];
        return cudaSuccess;
      case cudaDevAttrWarpSize:
        *value = p.warpSize;
        return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = weir_emulator::kSharedBytes;
        return cudaSuccess;
      case cudaDevAttrMultiProcessorCount:
        *value = p.multiProcessorCount;
        return cudaSuccess;
      case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = p.maxThreadsPerMultiProcessor;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMajor:
        *value = p.major;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMinor:
      case cudaDevAttrIntegrated:
      case cudaDevAttrMemoryPoolsSupported:
        *value = 0;
        return cudaSuccess;
      case cudaDevAttrAsyncEngineCount:
        *value = p.asyncEngineCount;
        return cudaSuccess;
      case cudaDevAttrConcurrentKernels:
      case cudaDevAttrUnifiedAddressing:
      case cudaDevAttrCanMapHostMemory:
      case cudaDevAttrHostRegisterSupported:
        *value = 1;
        return cudaSuccess;
      default:
        return cudaErrorInvalidValue;
    }
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return Call(__func__, [=](Machine&) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return Call(__func__, [=](Machine& machine) {
    if (!weir_emulator::IsDevice(machine, device) ||
        !weir_emulator::IsDevice(machine, peer)) {
      return cudaErrorInvalidDevice;
    }
    *can = device != peer ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return Call(__func__, [=](Machine& machine) {
    if (!weir_emulator::IsDevice(machine, peer) || peer == CurrentDevice()) {
      return cudaErrorInvalidDevice;
    }
    if (flags != 0) {
      return cudaErrorInvalidValue;
    }
    return machine.peers.insert({CurrentDevice(), peer}).second
               ? cudaSuccess
               : cudaErrorPeerAccessAlreadyEnabled;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return Call(__func__, [](Machine& machine) {
    const cudaError_t error =
        weir_emulator::RefuseDeviceCapture(machine, CurrentDevice());
    if (error == cudaSuccess) {
      machine.RunDevice(CurrentDevice());
    }
    return error;
  });
}

// ------------------------------------------------------------------ memory

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return Call(__func__, [=](Machine& machine) {
    const int64_t all = machine.config.bytes_per_device;
    *total = static_cast<size_t>(all);
    *free = static_cast<size_t>(all - machine.BytesUsed(CurrentDevice()));
    return cudaSuccess;
  });
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return Call(__func__, [=](Machine& machine) {
    const cudaError_t error = machine.CheckUnsafeCall();
    if (error != cudaSuccess) {
      return error;
    }
    *memory = nullptr;
    if (CurrentDevice() >= machine.config.devices) {
      return cudaErrorNoDevice;
    }
    if (bytes > static_cast<size_t>(machine.config.bytes_per_device)) {
      return cudaErrorMemoryAllocation;
    }
    if (bytes != 0) {
      *memory = machine.Allocate(static_cast<int64_t>(bytes), CurrentDevice());
      if (*memory == nullptr) {
        return cudaErrorMemoryAllocation;
      }
    }
    ++machine.malloc_calls;
    return cudaSuccess;
  });
}

// Both kinds wait for all devices, as the memory could be in use on any.
static cudaError_t FreeMemory(const char* function, void* memory,
                              bool on_device, bool owned, cudaError_t unknown) {
  return Call(function, [=](Machine& machine) {
    cudaError_t error = machine.CheckUnsafeCall();
    if (error != cudaSuccess || memory == nullptr) {
      return error;
    }
    // Freeing waits for the devices. Nothing says that unlocking does.
    for (int device = 0; owned && device < machine.config.devices; ++device) {
      machine.RunDevice(device);
    }
    return machine.Free(memory, on_device, owned) ? cudaSuccess : unknown;
  });
}

cudaError_t cudaFree(void* memory) {
  return FreeMemory(__func__, memory, /*on_device=*/true, /*owned=*/true,
                    cudaErrorInvalidValue);
}

cudaError_t cudaFreeHost(void* memory) {
  return FreeMemory(__func__, memory, /*on_device=*/false, /*owned=*/true,
                    cudaErrorInvalidValue);
}

cudaError_t cudaHostUnregister(void* memory) {
  return FreeMemory(__func__, memory, /*on_device=*/false, /*owned=*/false,
                    cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  return Call(__func__, [=](Machine& machine) {
    const cudaError_t error = machine.CheckUnsafeCall();
    if (error != cudaSuccess) {
      return error;
    }
    *memory = nullptr;
    if (bytes != 0) {
      *memory = machine.Allocate(static_cast<int64_t>(bytes), -1);
    }
    return bytes != 0 && *memory == nullptr ? cudaErrorMemoryAllocation
                                            : cudaSuccess;
  });
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  const cudaError_t error =
      Call(__func__, [](Machine&) { return cudaSuccess; });
  return error != cudaSuccess ? error : cudaHostAlloc(memory, bytes, 0);
}

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  return Call(__func__, [=](Machine& machine) {
    const cudaError_t error = machine.CheckUnsafeCall();
    if (error != cudaSuccess) {
      return error;
    }
    if (memory == nullptr || bytes == 0) {
      return cudaErrorInvalidValue;
    }
    return machine.Register(memory, static_cast<int64_t>(bytes))
               ? cudaSuccess
               : cudaErrorHostMemoryAlreadyRegistered;
  });
}

cudaError_t cudaMemcpy(void* dst, const void* src, size_t bytes,
                       cudaMemcpyKind kind) {
  return Call(__func__, [=](Machine& machine) {
    const cudaError_t error = machine.CheckUnsafeCall();
    return error != cudaSuccess
               ? error
               : weir_emulator::CopyWindow(machine,
                                           {dst, bytes, src, bytes, bytes, 1},
                                           kind, nullptr, true);
  });
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  return Call(__func__, [=](Machine& machine) {
    return weir_emulator::CopyWindow(
        machine, {dst, bytes, src, bytes, bytes, 1}, kind, stream, false);
  });
}

cudaError_t cudaMemcpy2DAsync(void* dst, size_t dst_pitch, const void* src,
                              size_t src_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  return Call(__func__, [=](Machine& machine) {
    if (std::max(dst_pitch, src_pitch) >
        static_cast<size_t>(machine.config.pitch_max)) {
      return cudaErrorInvalidPitchValue;
    }
    return weir_emulator::CopyWindow(
        machine, {dst, dst_pitch, src, src_pitch, width, height}, kind, stream,
        false);
  });
}

cudaError_t cudaMemcpyPeerAsync(void* dst, int dst_device, const void* src,
                                int src_device, size_t bytes,
                                cudaStream_t stream) {
  return Call(__func__, [=](Machine& machine) {
    if (!weir_emulator::IsDevice(machine, dst_device) ||
        !weir_emulator::IsDevice(machine, src_device)) {
      return cudaErrorInvalidDevice;
    }
    machine.CheckReach("a peer copy's target", dst, bytes, dst_device);
    machine.CheckReach("a peer copy's source", src, bytes, src_device);
    return weir_emulator::CopyWindow(machine,
                                     {dst, bytes, src, bytes, bytes, 1},
                                     cudaMemcpyDeviceToDevice, stream, false);
  });
}

cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  return Call(__func__, [=](Machine& machine) {
    const cudaError_t error = machine.CheckUnsafeCall();
    return error != cudaSuccess
               ? error
               : weir_emulator::Fill(machine, memory, value, bytes, nullptr);
  });
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes,
                            cudaStream_t stream) {
  return Call(__func__, [=](Machine& machine) {
    return weir_emulator::Fill(machine, memory, value, bytes, stream);
  });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
