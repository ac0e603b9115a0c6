#include "worker/model/input_stage.h"

#include <utility>

#include "common/base/status.h"

namespace weir {

InputStage::~InputStage() {
  backend_->Release(ahead_);
  backend_->Release(value_of_byte_);
}

int64_t InputStage::CopiedElements(const Batch& batch) const {
  const int64_t count = batch.rows * width_;
  return batch.features.bytes != nullptr ? (count + 3) / 4 : count;
}

void InputStage::WaitForAhead() {
  backend_->JoinUploadsAside();
  backend_->Wait(backend_->Mark());
}

void InputStage::DropAhead() {
  WaitForAhead();  // I2: the next batch may go to ahead_, too
  sent_ = std::nullopt;
}

absl::Status InputStage::Reserve(const Batch& batch) {
  const int64_t elements = CopiedElements(batch);
  if (elements > ahead_elements_) {
    WaitForAhead();
    backend_->Release(std::exchange(ahead_, nullptr));
    ahead_elements_ = 0;
    WEIR_ASSIGN_OR_RETURN(ahead_, backend_->Allocate(elements));
    ahead_elements_ = elements;
  }
  if (batch.features.bytes != nullptr && value_of_byte_ == nullptr) {
    WEIR_ASSIGN_OR_RETURN(value_of_byte_, backend_->Allocate(256));
  }
  return absl::OkStatus();
}

void InputStage::Copy(const Batch& batch, bool aside) {
  // Whole floats: up to three bytes behind the last one go along, which are
  // there (Features).
  const float* const host =
      batch.features.bytes != nullptr
          ? reinterpret_cast<const float*>(batch.features.bytes)
          : batch.features.floats;
  if (aside) {
    backend_->UploadAside(ahead_, host, CopiedElements(batch));
  } else {
    backend_->Upload(ahead_, host, CopiedElements(batch));
  }
}

absl::Status InputStage::SendAhead(const Features& features, int64_t rows) {
  if (backend_->shares_host_memory() || !transfers_ || width_ == 0) {
    return absl::OkStatus();
  }
  const Batch batch = {features, rows};
  WEIR_RETURN_IF_ERROR(Reserve(batch));
  Copy(batch, /*aside=*/true);  // I1
  sent_ = batch;
  return backend_->TakeStatus();
}

absl::StatusOr<const float*> InputStage::Stage(const Features& features,
                                               int64_t rows, float* device) {
  if (width_ == 0) {  // features where all of them are categorical
    return device;
  }
  if (features.bytes != nullptr && backend_->shares_host_memory()) {
    return Invalid("features are bytes, and ", backend_->name(),
                   " takes floats alone");
  }
  const Batch batch = {features, rows};
  const bool is_sent = sent_ == batch;
  if (is_sent) {
    backend_->JoinUploadsAside();
  } else if (sent_.has_value()) {
    WaitForAhead();  // I2: what comes instead may go to ahead_, too
  }
  sent_ = std::nullopt;
  const int64_t count = rows * width_;
  if (features.bytes == nullptr && !is_sent) {
    if (!transfers_ && !backend_->shares_host_memory()) {
      if (staged_ == batch) {
        return device;
      }
      staged_ = batch;
    }
    return backend_->Stage(device, features.floats, count);
  }
  if (!is_sent) {
    WEIR_RETURN_IF_ERROR(Reserve(batch));
    Copy(batch, /*aside=*/false);
  }
  if (features.bytes == nullptr) {
    backend_->Run(op::CopyColumns{1, count, ahead_, count, device, count});
    return device;
  }
  if (host_value_of_byte_ != features.value_of_byte) {
    backend_->Upload(value_of_byte_, features.value_of_byte, 256);
    host_value_of_byte_ = features.value_of_byte;
  }
  backend_->Run(op::BytesToFloats{
      count, reinterpret_cast<const uint8_t*>(ahead_), value_of_byte_, device});
  return device;
}

}  // namespace weir
