#include "worker/compute/cuda/operations.h"

#include <algorithm>
#include <variant>

#include "common/base/check.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "worker/compute/cuda/kernels.h"

namespace weir::cuda {
namespace {

template <class Op>
concept Convolves = requires(Convolutions* convolver, cudaStream_t stream,
                             const Op& o) {
  convolver->Run(stream, o);
};

// Sums over rows, for which a kernel needs partials.
template <class Op>
concept SumsRows = requires(cudaStream_t stream, const Op& o, float* partials) {
  cuda::Enqueue(stream, o, partials);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Operations>> Operations::Create(
    const CudaOptions& options, const std::string& device) {
  std::unique_ptr<Operations> made(new Operations(options, device));
  WEIR_ASSIGN_OR_RETURN(
      made->matmul_, LtMatMul::Create(options.precision == Precision::kTf32));
  made->own_convolution_ = std::make_unique<Convolution>(
      Convolution::Options{.matmul = made->matmul_.get(),
                           .copies = made->bf16() ? &made->copies_ : nullptr,
                           .column_bytes_max = options.column_bytes_max});
  return made;
}

absl::Status Operations::Run(cudaStream_t stream, const Operation& operation) {
  return std::visit(
      [&](const auto& o) {
        absl::Status status = Enqueue(stream, o);
        status.Update(ToStatus(cudaGetLastError(), o.kName));
        // The copies of an output are stale from its write on, so what
        // multiplies it next rounds it again (I1 of bf16_copies.h).
        for (const op::Written& written : o.outputs().all) {
          OnWrite(written.begin, written.count);
        }
        return status;
      },
      operation);
}

void Operations::OnWrite(const float* x, int64_t count) {
  // Only bf16 has copies. Some outputs may be null: nothing was written then.
  if (bf16() && x != nullptr) {
    copies_.OnWrite(x, count);
  }
}

int64_t Operations::scratch_bytes() const {
  int64_t bytes = partials_.bytes() + places_.bytes() + copies_.bytes() +
                  LtMatMul::kWorkspaceBytes;
  if (convolution_ != nullptr) {
    bytes += convolution_->scratch_bytes();
  }
  return bytes;
}

template <class Op>
absl::Status Operations::Enqueue(cudaStream_t stream, const Op& o) {
  if constexpr (Convolves<Op>) {
    return Convolver()->Run(stream, o);
  } else if constexpr (SumsRows<Op>) {
    WEIR_ASSIGN_OR_RETURN(
        float* const partials,
        partials_.ReserveFloats(PartialElements(o.rows, o.width)));
    cuda::Enqueue(stream, o, partials);
  } else {
    cuda::Enqueue(stream, o);
  }
  return absl::OkStatus();
}

absl::Status Operations::Enqueue(cudaStream_t stream, const op::MatMul& o) {
  LtMatMul::Inputs inputs = {o.a, o.b, false};
  if (bf16()) {
    const MatMulShape& s = o.shape;
    WEIR_ASSIGN_OR_RETURN(inputs.a, copies_.Of(stream, o.a, s.m * s.k));
    WEIR_ASSIGN_OR_RETURN(inputs.b, copies_.Of(stream, o.b, s.k * s.n));
    inputs.bf16 = true;
  }
  return matmul_->Run(stream, o.shape, inputs, o.bias, o.c,
                      /*accumulate=*/false);
}

absl::Status Operations::Enqueue(cudaStream_t stream,
                                 const op::Conv2dBackwardKernel& o) {
  absl::Status status = Convolver()->Run(stream, o);
  // The bias is added to every pixel, so its gradient is the sum over them.
  if (o.dbias != nullptr) {
    const Conv2dShape& s = o.shape;
    status.Update(Enqueue(
        stream, op::SumRows{.rows = s.batch * s.out_height() * s.out_width(),
                            .width = s.filters,
                            .x = o.dy,
                            .sums = o.dbias}));
  }
  return status;
}

absl::Status Operations::Enqueue(cudaStream_t stream,
                                 const op::PoolBackward& o) {
  WEIR_ASSIGN_OR_RETURN(void* const places,
                        places_.Reserve(PoolPlacesBytes(o)));
  cuda::Enqueue(stream, o, static_cast<uint8_t*>(places));
  return absl::OkStatus();
}

absl::Status Operations::Enqueue(cudaStream_t stream, const op::Dropout& o) {
  WEIR_CHECK(static_cast<size_t>(o.key_index) < keys_.capacity());
  cuda::Enqueue(stream, o, keys_.device());
  return absl::OkStatus();
}

absl::Status Operations::Enqueue(cudaStream_t stream,
                                 const op::CopyColumns& o) {
  const auto bytes = [](int64_t floats) {
    return static_cast<size_t>(floats) * sizeof(float);
  };
  // Without gaps it is one copy, of any size. A row of cudaMemcpy2DAsync has at
  // most cudaDeviceProp::memPitch bytes, and a whole batch may have more.
  if (o.rows == 1 || (o.x_stride == o.width && o.y_stride == o.width)) {
    return ToStatus(cudaMemcpyAsync(o.y, o.x, bytes(o.rows * o.width),
                                    cudaMemcpyDeviceToDevice, stream),
                    o.kName);
  }
  return ToStatus(
      cudaMemcpy2DAsync(o.y, bytes(o.y_stride), o.x, bytes(o.x_stride),
                        bytes(o.width), static_cast<size_t>(o.rows),
                        cudaMemcpyDeviceToDevice, stream),
      o.kName);
}

absl::Status Operations::SetKeys(cudaStream_t stream,
                                 std::span<const uint64_t> keys) {
  if (keys.empty()) {
    return absl::OkStatus();
  }
  WEIR_RETURN_IF_ERROR(keys_.Reserve(keys.size()));
  std::copy(keys.begin(), keys.end(), keys_.host());
  return ToStatus(
      cudaMemcpyAsync(keys_.device(), keys_.host(), keys.size_bytes(),
                      cudaMemcpyHostToDevice, stream),
      "keys of dropout");
}

// A model without convolutions never pays for cuDNN, which takes long to load
// and needs device memory. I2 of cuda_backend.h: the first call is never in a
// capture, since what is captured has run before.
Convolutions* Operations::Convolver() {
  if (convolution_ != nullptr) {
    return convolution_;
  }
  convolution_ = own_convolution_.get();
  if (options_.cudnn_library != kNoCudnn) {
    absl::StatusOr<std::unique_ptr<CudnnConvolution>> cudnn = OpenCudnn();
    if (cudnn.ok()) {
      cudnn_ = *std::move(cudnn);
      convolution_ = cudnn_.get();
    } else {
      // Drops an error that cuDNN left, if any. A broken device gives its own
      // again with the next call.
      cudaGetLastError();
      LOG_INFO("{}: convolutions are Weir's own, without cuDNN: {}", device_,
               std::string(cudnn.status().message()));
    }
  }
  return convolution_;
}

absl::StatusOr<std::unique_ptr<CudnnConvolution>> Operations::OpenCudnn() {
  CudnnConvolution::Options options;
  options.own = own_convolution_.get();
  options.tf32 = options_.precision == Precision::kTf32;
  options.copies = bf16() ? &copies_ : nullptr;
  options.deterministic = options_.deterministic;
  options.choices_file = options_.choices_file;
  if (options_.cudnn != nullptr) {
    options.api = *options_.cudnn;
  } else {
    const std::string& library = options_.cudnn_library;
    WEIR_ASSIGN_OR_RETURN(options.api,
                          LoadCudnn(library.empty() ? kCudnnLibrary : library));
  }
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<CudnnConvolution> cudnn,
                        CudnnConvolution::Create(options));
  LOG_INFO("{}: convolutions are cuDNN {}'s", device_,
           options.api.get_version());
  return cudnn;
}

}  // namespace weir::cuda
