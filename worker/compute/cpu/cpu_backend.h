// The backend that every machine has: oneDNN for products and convolutions,
// plain loops for the rest.
//
// Place: worker/compute/factory makes it where a job asks for "cpu". Its memory
// is the host's, so mirrors and copies cost nothing. Every operation has run
// when its call returns. Only oneDNN uses `threads`; the loops run on the
// caller's thread.
//
// Threads: compatible.
#ifndef WORKER_COMPUTE_CPU_CPU_BACKEND_H_
#define WORKER_COMPUTE_CPU_CPU_BACKEND_H_

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/compute/backend.h"
#include "worker/compute/cpu/dnnl_ops.h"

namespace weir {

class CpuBackend : public Backend {
 public:
  // REQUIRES: threads >= 1.
  static absl::StatusOr<std::unique_ptr<CpuBackend>> Create(int threads);
  ~CpuBackend() override;

  std::string name() const override { return "cpu"; }
  bool shares_host_memory() const override { return true; }
  absl::StatusOr<float*> Allocate(int64_t elements) override;
  void Release(float* device) override;
  absl::StatusOr<float*> MirrorHost(float* host, int64_t elements) override;
  void Upload(float* device, const float* host, int64_t elements) override;
  absl::Status UploadNow(float* device, HostPieces values) override;
  void Download(float* host, const float* device, int64_t elements) override;
  void ReduceFromPeers(int64_t count, float own_weight, float* y,
                       std::span<const PeerTerm> terms) override;
  uint64_t Mark() override { return 0; }
  bool Reached(uint64_t) override { return true; }
  void Wait(uint64_t) override {}
  absl::Status TakeStatus() override {
    return std::exchange(status_, absl::OkStatus());
  }

  void Run(const Operation& operation) override;
  void SetKeys(std::span<const uint64_t> keys) override {
    keys_.assign(keys.begin(), keys.end());
  }

 protected:
  // Protected for tests, which derive a backend with a broken operation.
  explicit CpuBackend(std::unique_ptr<DnnlOps> dnnl);

 private:
  const std::unique_ptr<DnnlOps> dnnl_;
  std::set<float*> allocated_;
  absl::Status status_;
  std::vector<uint64_t> keys_;
};

}  // namespace weir

#endif  // WORKER_COMPUTE_CPU_CPU_BACKEND_H_
