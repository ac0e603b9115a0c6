#include "worker/compute/cpu/cpu_backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <variant>

#include "common/base/check.h"
#include "common/base/status.h"
#include "worker/compute/cpu/operations.h"

namespace weir {
namespace {

// 256 GiB. A larger tensor is a mistake in the job, and allocators differ in
// how they refuse it: some give address space that no memory stands behind.
constexpr int64_t kElementsMax = int64_t{1} << 36;

template <class Op>
concept ByOneDnn = requires(DnnlOps* dnnl, const Op& o) {
  dnnl->Run(o);
};

}  // namespace

CpuBackend::CpuBackend(std::unique_ptr<DnnlOps> dnnl)
    : dnnl_(std::move(dnnl)) {}

CpuBackend::~CpuBackend() {
  for (float* p : allocated_) {
    std::free(p);
  }
}

absl::StatusOr<std::unique_ptr<CpuBackend>> CpuBackend::Create(int threads) {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<DnnlOps> dnnl,
                        DnnlOps::Create(threads));
  return std::unique_ptr<CpuBackend>(new CpuBackend(std::move(dnnl)));
}

absl::StatusOr<float*> CpuBackend::Allocate(int64_t elements) {
  WEIR_CHECK(elements >= 0);
  // aligned_alloc wants a multiple of the alignment. The "+ 1" gives a tensor
  // of no elements an address of its own, which Release can find.
  const size_t bytes =
      (static_cast<size_t>(elements) * sizeof(float) / 64 + 1) * 64;
  float* p = nullptr;
  if (elements <= kElementsMax) {
    p = static_cast<float*>(std::aligned_alloc(64, bytes));
  }
  if (p == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", bytes, " bytes of tensors"));
  }
  std::memset(p, 0, bytes);  // take the page faults here, not in a step
  allocated_.insert(p);
  return p;
}

void CpuBackend::Release(float* device) {
  // The mirror of host memory is that memory: it is not ours to free.
  if (allocated_.erase(device) > 0) {
    std::free(device);
  }
}

absl::StatusOr<float*> CpuBackend::MirrorHost(float* host, int64_t) {
  return host;
}

void CpuBackend::Upload(float* device, const float* host, int64_t elements) {
  // A mirror is already there. Where there is nothing to copy, either pointer
  // may be null, which memcpy forbids.
  if (device != host && elements > 0) {
    std::memcpy(device, host, elements * sizeof(float));
  }
}

absl::Status CpuBackend::UploadNow(float* device, HostPieces values) {
  auto* to = reinterpret_cast<char*>(device);
  for (const std::span<const char> piece : values) {
    to = std::copy(piece.begin(), piece.end(), to);
  }
  return absl::OkStatus();
}

void CpuBackend::Download(float* host, const float* device, int64_t elements) {
  if (device != host && elements > 0) {
    std::memcpy(host, device, elements * sizeof(float));
  }
}

void CpuBackend::ReduceFromPeers(int64_t count, float own_weight, float* y,
                                 std::span<const PeerTerm> terms) {
  // Every operation has run when its call returns, so all peers' x are
  // complete.
  for (const PeerTerm& term : terms) {
    cpu::ScaleAdd(count, term.weight, term.x, own_weight, y);
    own_weight = 1.0f;  // y has been weighed with the first term
  }
}

void CpuBackend::Run(const Operation& operation) {
  std::visit(
      [this](const auto& o) {
        using Op = std::decay_t<decltype(o)>;
        if constexpr (ByOneDnn<Op>) {
          // Update() keeps the first failure, which is the one that
          // TakeStatus() owes; the later ones mostly follow from it.
          status_.Update(dnnl_->Run(o));
        } else if constexpr (std::is_same_v<Op, op::Dropout>) {
          cpu::Compute(o, keys_[o.key_index]);
        } else {
          cpu::Compute(o);
        }
      },
      operation);
}

}  // namespace weir
