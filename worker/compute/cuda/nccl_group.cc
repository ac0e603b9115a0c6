#include "worker/compute/cuda/nccl_group.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace weir::cuda {
namespace {

// The first device of the list, whose backend owns the group.
constexpr int kRoot = 0;

}  // namespace

NcclGroup::NcclGroup(const NcclApi& api, std::vector<int> devices)
    : api_(api), devices_(std::move(devices)) {}

absl::StatusOr<std::unique_ptr<NcclGroup>> NcclGroup::Create(
    const NcclApi& api, std::vector<int> devices) {
  std::unique_ptr<NcclGroup> group(new NcclGroup(api, std::move(devices)));
  std::vector<NcclComm*> comms(group->devices_.size());
  WEIR_RETURN_IF_ERROR(
      group->Check(api.init_all(comms.data(), static_cast<int>(comms.size()),
                                group->devices_.data()),
                   "ncclCommInitAll"));
  // Only now: after an error there is nothing to destroy.
  group->comms_ = std::move(comms);
  return group;
}

NcclGroup::~NcclGroup() {
  if (comms_.empty()) {
    return;
  }
  // The caller's device stays selected. The streams may have been destroyed, so
  // the devices are waited for.
  int current = 0;
  cudaGetDevice(&current);
  for (const int device : devices_) {
    cudaSetDevice(device);
    cudaDeviceSynchronize();
  }
  cudaSetDevice(current);
  for (NcclComm* const comm : comms_) {
    api_.destroy(comm);
  }
}

absl::Status NcclGroup::Check(int result, const char* function) const {
  if (result == kNcclSuccess) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat(function, ": ", api_.get_error_string(result)));
}

absl::Status NcclGroup::Enqueue(int64_t count, std::span<const Part> parts) {
  WEIR_RETURN_IF_ERROR(Check(api_.group_start(), "ncclGroupStart"));
  absl::Status status;
  for (size_t rank = 0; rank < parts.size() && status.ok(); ++rank) {
    float* const x = parts[rank].x;
    // The root's x becomes the sum; the others' are only read. I1: the order in
    // which NCCL adds depends on its version and on the machine.
    float* const y = rank == kRoot ? x : nullptr;
    status =
        Check(api_.reduce(x, y, static_cast<size_t>(count), kNcclFloat,
                          kNcclSum, kRoot, comms_[rank], parts[rank].stream),
              "ncclReduce");
  }
  // Also after an error: an open group would swallow all later calls.
  status.Update(Check(api_.group_end(), "ncclGroupEnd"));
  return status;
}

absl::Status NcclGroup::Reduce(int64_t count, std::span<const Part> parts) {
  WEIR_CHECK(parts.size() == devices_.size());
  if (status_.ok()) {
    status_ = Enqueue(count, parts);
    if (!status_.ok()) {
      // I2: devices whose part was enqueued wait for the others for ever.
      for (NcclComm* const comm : std::exchange(comms_, {})) {
        api_.abort(comm);
      }
    }
  }
  return status_;
}

}  // namespace weir::cuda
