// The sums of CudaBackend over several devices.
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "worker/compute/cuda/cuda_backend.h"
#include "worker/compute/cuda/kernels.h"

namespace weir::cuda {

void CudaBackend::OpenPeer(int device) {
  // Asks CUDA once for each peer.
  if (device == options_.device || !peers_.insert(device).second) {
    return;
  }
  int can = 0;
  Keep(cudaDeviceCanAccessPeer(&can, options_.device, device),
       "cudaDeviceCanAccessPeer");
  // cudaMemcpyPeerAsync works in any case; without access it goes through the
  // host, which is slower and worth a line in the log.
  if (can == 0) {
    LOG_INFO("{}: gradients of cuda:{} come through the host", name_, device);
    return;
  }
  const cudaError_t error = cudaDeviceEnablePeerAccess(device, 0);
  if (error == cudaSuccess) {
    return;
  }
  cudaGetLastError();  // must not be taken for the next kernel's
  // Another backend of this device may have enabled the access.
  if (error != cudaErrorPeerAccessAlreadyEnabled) {
    LOG_INFO("{}: gradients of cuda:{} come through the host: {}", name_,
             device, cudaGetErrorString(error));
  }
}

absl::StatusOr<std::unique_ptr<NcclGroup>> CudaBackend::OpenNccl(
    const std::vector<int>& devices) {
  // NCCL refuses to have two ranks on one device.
  if (std::set<int>(devices.begin(), devices.end()).size() < devices.size()) {
    return absl::InvalidArgumentError("a device occurs twice");
  }
  // I1 of nccl_group.h: its sums have no order.
  if (options_.deterministic) {
    return absl::FailedPreconditionError(
        "it promises no order of additions, and this job wants the same bits "
        "always");
  }
  if (options_.nccl_library == kNoNccl) {
    return absl::FailedPreconditionError("it is switched off");
  }
  NcclApi api;
  if (options_.nccl != nullptr) {
    api = *options_.nccl;
  } else {
    const std::string& library = options_.nccl_library;
    WEIR_ASSIGN_OR_RETURN(api,
                          LoadNccl(library.empty() ? kNcclLibrary : library));
  }
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<NcclGroup> group,
                        NcclGroup::Create(api, devices));
  int version = 0;
  api.get_version(&version);
  LOG_INFO("{}: gradients of cuda:{} are summed by NCCL {}", name_,
           absl::StrJoin(devices, ","), NcclVersionText(version));
  return group;
}

NcclGroup* CudaBackend::FindGroup(const std::vector<int>& devices) {
  const auto it = groups_.find(devices);
  if (it != groups_.end()) {
    return it->second.get();
  }
  absl::StatusOr<std::unique_ptr<NcclGroup>> group = OpenNccl(devices);
  UseDevice();  // NCCL may have selected another one
  if (!group.ok()) {
    // Drops an error that NCCL left, if any; a broken device gives its own
    // again. The null that is kept says not to try again for these devices.
    cudaGetLastError();
    LOG_INFO("{}: gradients of cuda:{} are summed by copies, without NCCL: {}",
             name_, absl::StrJoin(devices, ","),
             std::string(group.status().message()));
    return groups_.emplace(devices, nullptr).first->second.get();
  }
  return groups_.emplace(devices, *std::move(group)).first->second.get();
}

// Sums run on download, so that the backward pass goes on beside them. A sum
// waits for the operations of all devices, and the download of y for the sum.
void CudaBackend::ReduceFromPeers(int64_t count, float own_weight, float* y,
                                  std::span<const PeerTerm> terms) {
  WEIR_CHECK(!capturing_ && !terms.empty());
  std::vector<int> devices = {options_.device};
  for (const PeerTerm& term : terms) {
    auto* const peer = static_cast<CudaBackend*>(term.peer);
    // The contract says that a peer is of the same kind, so the cast above
    // holds.
    WEIR_CHECK(!peer->capturing_);
    devices.push_back(peer->options_.device);
  }
  if (NcclGroup* const group = FindGroup(devices)) {
    Keep(ReduceByNccl(count, own_weight, y, terms, group));
  } else {
    for (const PeerTerm& term : terms) {
      AddFromPeer(count, own_weight, y, static_cast<CudaBackend*>(term.peer),
                  term.x, term.weight);
      own_weight = 1.0f;  // y has been weighed with the first term
    }
  }
  operations_->OnWrite(y, count);
}

// Each device weighs its own part where it lies, since NCCL adds without
// weights. Then NCCL's kernels, on the download streams, wait for each other.
absl::Status CudaBackend::ReduceByNccl(int64_t count, float own_weight,
                                       float* y,
                                       std::span<const PeerTerm> terms,
                                       NcclGroup* group) {
  std::vector<NcclGroup::Part> parts;
  const auto weigh = [&](CudaBackend* backend, float weight, float* x) {
    backend->UseDevice();
    backend->JoinCompute();
    Scale(backend->download_, count, weight, x);
    parts.push_back({.x = x, .stream = backend->download_});
    return ToStatus(cudaGetLastError(), "weight of a gradient");
  };
  WEIR_RETURN_IF_ERROR(weigh(this, own_weight, y));
  for (const PeerTerm& term : terms) {
    auto* const peer = static_cast<CudaBackend*>(term.peer);
    WEIR_RETURN_IF_ERROR(weigh(peer, term.weight, term.x));
    peer->operations_->OnWrite(term.x, count);  // it was weighed in place
  }
  UseDevice();
  return group->Reduce(count, parts);
}

void CudaBackend::AddFromPeer(int64_t count, float own_weight, float* y,
                              CudaBackend* peer, const float* x, float weight) {
  // The peer records `computed_` behind its gradient; our download waits for
  // that event before it copies. A selected device is needed for each.
  peer->UseDevice();
  peer->JoinCompute();
  UseDevice();
  OpenPeer(peer->options_.device);
  JoinCompute();
  Keep(cudaStreamWaitEvent(download_, peer->computed_, 0),
       "cudaStreamWaitEvent");
  // One scratch for all terms: copy and sum of a term follow each other on
  // download, and the next term comes behind.
  const absl::StatusOr<float*> copy = peer_copy_.ReserveFloats(count);
  if (!copy.ok()) {
    return Keep(copy.status());
  }
  Keep(cudaMemcpyPeerAsync(*copy, options_.device, x, peer->options_.device,
                           static_cast<size_t>(count) * sizeof(float),
                           download_),
       "copy from a peer");
  ScaleAdd(download_, count, weight, *copy, own_weight, y);
  Keep(cudaGetLastError(), "add from a peer");
}

}  // namespace weir::cuda
