// A library that answers as NVML does, for tests: one H100 at index 0.
//
// With FAKE_NVML_POOR most functions are missing and memory is refused; with
// FAKE_NVML_NO_DRIVER it does not start.
#include <cstdio>
#include <cstring>

// UBSan compares C++ types across the call; a C library's have no such mark.
#define EXPORT \
  extern "C" __attribute__((visibility("default"), no_sanitize("undefined")))

namespace {

int running = 0;

struct Utilization {
  unsigned int gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};

enum : int { kInvalidArgument = 2, kNotSupported = 3, kDriverNotLoaded = 9 };
char device;

}  // namespace

EXPORT int nvmlInit_v2() {
#ifdef FAKE_NVML_NO_DRIVER
  return kDriverNotLoaded;
#else
  return ++running > 0 ? 0 : 1;
#endif
}
EXPORT int nvmlShutdown() { return --running; }
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** handle) {
  *handle = &device;
  return running == 1 && index == 0 ? 0 : kInvalidArgument;
}
EXPORT int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
#ifdef FAKE_NVML_POOR
  (void)memory;
  return kNotSupported;
#else
  *memory = {80ull << 30, 78ull << 30, 2ull << 30};
  return 0;
#endif
}
EXPORT int nvmlDeviceGetPowerUsage(void*, unsigned int* milliwatts) {
  *milliwatts = 412500;
  return 0;
}

#ifndef FAKE_NVML_POOR
EXPORT const char* nvmlErrorString(int code) {
  return code == kInvalidArgument ? "Invalid Argument" : "Driver Not Loaded";
}
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** handle) {
  *handle = &device;
  return std::strcmp(id, "0000:3b:00.0") == 0 ? 0 : kInvalidArgument;
}
EXPORT int nvmlDeviceGetName(void* handle, char* name, unsigned int bytes) {
  std::snprintf(name, bytes, "NVIDIA H100");
  return handle == &device ? 0 : kInvalidArgument;
}
EXPORT int nvmlDeviceGetUtilizationRates(void*, Utilization* rates) {
  *rates = {93, 41};
  return 0;
}
EXPORT int nvmlDeviceGetTemperature(void*, int sensor, unsigned int* celsius) {
  *celsius = 54;
  return sensor == 0 ? 0 : kInvalidArgument;
}
EXPORT int nvmlDeviceGetClockInfo(void*, int type, unsigned int* mhz) {
  *mhz = 1980;
  return type == 1 ? 0 : kInvalidArgument;
}
EXPORT int nvmlSystemGetDriverVersion(char* version, unsigned int bytes) {
  std::snprintf(version, bytes, "550.54.15");
  return 0;
}
#endif
