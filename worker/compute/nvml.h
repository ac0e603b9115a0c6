// What NVIDIA's driver reports about a GPU, where its library is installed.
//
// Place: the worker reads it beside training, for the log and the summary; no
// result depends on it. libnvidia-ml.so.1 comes with the driver and is opened
// at run time, so that one build serves machines with and without it.
//
// Threads: safe, as NVML is.
// Errors: NOT_FOUND     no such library, or not NVML.
//         UNAVAILABLE   the library has no driver to talk to.
//         Read has its own.
// Source: NVIDIA, "NVML API Reference Guide". We wrote the prototypes of the
//         functions that every driver since 2012 has.
#ifndef WORKER_COMPUTE_NVML_H_
#define WORKER_COMPUTE_NVML_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/compute/shared_library.h"

namespace weir {

class Nvml {
 public:
  // Figures that the library or the device does not have stay 0 or "".
  struct Figures {
    std::string name;
    std::string driver_version;
    // The share of the driver's last sample period (1/6 s to 1 s) in which some
    // kernel ran.
    double gpu_utilization_percent = 0.0;
    uint64_t bytes_used = 0;  // by any process
    uint64_t bytes_total = 0;
    double power_watts = 0.0;
    double temperature_celsius = 0.0;
    uint32_t sm_clock_mhz = 0;

    // One line: "NVIDIA H100, 93% busy, 1.2 of 80 GiB used, 412 W, ...".
    std::string Text() const;
  };

  static constexpr char kLibrary[] = "libnvidia-ml.so.1";

  static absl::StatusOr<std::unique_ptr<Nvml>> Open(
      const std::string& library = kLibrary);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // `device`: the driver's index ("0"; CUDA may count differently) or a PCI
  // bus id ("0000:3b:00.0").
  // Errors: NOT_FOUND  there is no such device; the message has NVML's reason.
  absl::StatusOr<Figures> Read(const std::string& device) const;

 private:
  struct Functions;

  Nvml(SharedLibrary library, std::unique_ptr<Functions> functions);
  // Returns NVML's words for one of its codes.
  std::string Reason(int code) const;

  const SharedLibrary library_;
  const std::unique_ptr<Functions> functions_;
};

}  // namespace weir

#endif  // WORKER_COMPUTE_NVML_H_
