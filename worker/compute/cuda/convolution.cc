#include "worker/compute/cuda/convolution.h"

#include <algorithm>

#include "common/base/status.h"
#include "worker/compute/cuda/kernels.h"

namespace weir::cuda {
namespace {

// Floats of one image of x, pixels of one image of y, and floats that a pixel
// of y is computed from: the length of a row of the columns.
int64_t ImageElements(const Conv2dShape& s) {
  return s.channels * s.height * s.width;
}
int64_t OutPixels(const Conv2dShape& s) {
  return s.out_height() * s.out_width();
}
int64_t WindowElements(const Conv2dShape& s) {
  return s.kernel * s.kernel * s.channels;
}

// The columns of such a convolution are the image itself.
bool IsPointwise(const Conv2dShape& s) {
  return s.kernel == 1 && s.stride == 1 && s.padding == 0;
}

// Calls f(part, first image) for the batch in parts of `images`.
template <class F>
absl::Status ForEachPart(const Conv2dShape& shape, int64_t images, F f) {
  for (int64_t begin = 0; begin < shape.batch; begin += images) {
    Conv2dShape part = shape;
    part.batch = std::min(images, shape.batch - begin);
    WEIR_RETURN_IF_ERROR(f(part, begin));
  }
  return absl::OkStatus();
}

// `elements` into float32 or bfloat16 memory.
const void* Offset(const void* p, int64_t elements, bool bf16) {
  int64_t size = sizeof(float);
  if (bf16) {
    size = sizeof(Bf16);
  }
  return static_cast<const char*>(p) + elements * size;
}

}  // namespace

int64_t Convolution::PartImages(const Conv2dShape& s) const {
  if (IsPointwise(s)) {
    return s.batch;
  }
  // Columns in bf16 take half of this. One image may exceed the bound, since it
  // cannot be cut.
  const int64_t image_bytes =
      OutPixels(s) * WindowElements(s) * static_cast<int64_t>(sizeof(float));
  return std::clamp<int64_t>(options_.column_bytes_max / image_bytes, 1,
                             s.batch);
}

absl::StatusOr<const void*> Convolution::ChannelsLastKernel(
    cudaStream_t stream, const Conv2dShape& s, const float* kernel) {
  // Images are channels-last, so a row of the columns has its channels last,
  // too, and the kernel has to follow.
  const int64_t area = s.kernel * s.kernel;
  const int64_t count = s.kernel_elements();
  WEIR_ASSIGN_OR_RETURN(float* const memory, kernel_.ReserveFloats(count));
  if (bf16()) {
    TransposeToBf16(stream, s.filters, s.channels, area, kernel,
                    reinterpret_cast<Bf16*>(memory));
  } else {
    Enqueue(stream, op::Transpose{s.filters, s.channels, area, kernel, memory});
  }
  return memory;
}

absl::StatusOr<const void*> Convolution::Unfold(cudaStream_t stream,
                                                const Conv2dShape& part,
                                                const float* x) {
  if (IsPointwise(part)) {
    return Multiplied(stream, x, part.batch * ImageElements(part));
  }
  const int64_t count = part.batch * OutPixels(part) * WindowElements(part);
  WEIR_ASSIGN_OR_RETURN(float* const memory, columns_.ReserveFloats(count));
  if (bf16()) {
    ImageToColumnsBf16(stream, part, x, reinterpret_cast<Bf16*>(memory));
  } else {
    ImageToColumns(stream, part, x, memory);
  }
  return memory;
}

absl::StatusOr<const void*> Convolution::Multiplied(cudaStream_t stream,
                                                    const float* x,
                                                    int64_t count) {
  if (!bf16()) {
    return x;
  }
  WEIR_ASSIGN_OR_RETURN(const Bf16* const copy,
                        options_.copies->Of(stream, x, count));
  return copy;
}

absl::Status Convolution::Run(cudaStream_t stream, const op::Conv2dForward& o) {
  WEIR_ASSIGN_OR_RETURN(const void* const filters,
                        ChannelsLastKernel(stream, o.shape, o.kernel));
  // y [pixels, filters] = columns [pixels, window] * filters^T. All parts use
  // one memory for columns, as they follow each other on the stream.
  return ForEachPart(
      o.shape, PartImages(o.shape),
      [&](const Conv2dShape& part, int64_t begin) -> absl::Status {
        WEIR_ASSIGN_OR_RETURN(
            const void* const columns,
            Unfold(stream, part, o.x + begin * ImageElements(part)));
        return options_.matmul->Run(
            stream,
            {.m = part.batch * OutPixels(part),
             .n = part.filters,
             .k = WindowElements(part),
             .transpose_b = true},
            {columns, filters, bf16()}, o.bias,
            o.y + begin * OutPixels(part) * part.filters,
            /*accumulate=*/false);
      });
}

absl::Status Convolution::Run(cudaStream_t stream,
                              const op::Conv2dBackwardData& o) {
  WEIR_ASSIGN_OR_RETURN(const void* const filters,
                        ChannelsLastKernel(stream, o.shape, o.kernel));
  const int64_t out_image = OutPixels(o.shape) * o.shape.filters;
  WEIR_ASSIGN_OR_RETURN(const void* const gradients,
                        Multiplied(stream, o.dy, o.shape.y_elements()));
  // dcolumns [pixels, window] = dy * filters; then every pixel of dx gathers
  // its places in dcolumns, in one order (I1).
  return ForEachPart(
      o.shape, PartImages(o.shape),
      [&](const Conv2dShape& part, int64_t begin) -> absl::Status {
        float* const image = o.dx + begin * ImageElements(part);
        float* columns = image;
        const int64_t pixels = part.batch * OutPixels(part);
        if (!IsPointwise(part)) {
          WEIR_ASSIGN_OR_RETURN(
              columns, columns_.ReserveFloats(pixels * WindowElements(part)));
        }
        WEIR_RETURN_IF_ERROR(options_.matmul->Run(
            stream, {.m = pixels, .n = WindowElements(part), .k = part.filters},
            {Offset(gradients, begin * out_image, bf16()), filters, bf16()},
            nullptr, columns, /*accumulate=*/false));
        if (!IsPointwise(part)) {
          ColumnsToImage(stream, part, columns, image);
        }
        return absl::OkStatus();
      });
}

absl::Status Convolution::Run(cudaStream_t stream,
                              const op::Conv2dBackwardKernel& o) {
  const Conv2dShape& shape = o.shape;
  const int64_t out_image = OutPixels(shape) * shape.filters;
  WEIR_ASSIGN_OR_RETURN(const void* const gradients,
                        Multiplied(stream, o.dy, shape.y_elements()));
  WEIR_ASSIGN_OR_RETURN(float* const sum,
                        kernel_.ReserveFloats(shape.kernel_elements()));
  // dkernel [filters, window] = dy^T * columns, the sum over the parts. I1:
  // each part's product is added to it in the order of the stream. The first
  // one overwrites, as the scratch has an older sum.
  WEIR_RETURN_IF_ERROR(ForEachPart(
      o.shape, PartImages(o.shape),
      [&](const Conv2dShape& part, int64_t begin) -> absl::Status {
        WEIR_ASSIGN_OR_RETURN(
            const void* const columns,
            Unfold(stream, part, o.x + begin * ImageElements(part)));
        return options_.matmul->Run(
            stream,
            {.m = part.filters,
             .n = WindowElements(part),
             .k = part.batch * OutPixels(part),
             .transpose_a = true},
            {Offset(gradients, begin * out_image, bf16()), columns, bf16()},
            nullptr, sum, /*accumulate=*/begin > 0);
      }));
  Enqueue(stream, op::Transpose{shape.filters, shape.kernel * shape.kernel,
                                shape.channels, sum, o.dkernel});
  return absl::OkStatus();
}

}  // namespace weir::cuda
