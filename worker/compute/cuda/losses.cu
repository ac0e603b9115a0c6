// Losses of rows and their gradients, a warp or a thread for each row.
#include <cmath>
#include <cstdint>

#include "worker/compute/cuda/device.h"

namespace weir::cuda {
namespace {

// The largest element of a row, and of equals the first; the same in every
// lane.
struct Largest {
  float value;
  int64_t index;
};

__device__ inline Largest WarpLargest(const float* row, int64_t width,
                                      int lane) {
  // INT64_MAX says "none yet": a lane beyond the row has none, and a row may be
  // all -INFINITY.
  Largest best = {-INFINITY, INT64_MAX};
  for (int64_t i = lane; i < width; i += kWarp) {
    if (row[i] > best.value || best.index == INT64_MAX) {
      best = {row[i], i};
    }
  }
  // Lanes exchange in pairs; equal values leave the smaller index.
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const float value = __shfl_xor_sync(kAllLanes, best.value, offset);
    const auto index = static_cast<int64_t>(
        __shfl_xor_sync(kAllLanes, static_cast<long long>(best.index), offset));
    if (index != INT64_MAX && (value > best.value || best.index == INT64_MAX ||
                               (value == best.value && index < best.index))) {
      best = {value, index};
    }
  }
  return best;
}

__global__ void SoftmaxCrossEntropyKernel(op::Loss o) {
  const int64_t width = o.width;
  const int64_t row = WarpRow();
  if (row >= o.rows) {
    return;
  }
  const int lane = threadIdx.x % kWarp;
  const float* in = o.x + row * width;
  const auto label = static_cast<int64_t>(o.labels[row]);
  const Largest best = WarpLargest(in, width, lane);
  // log(sum exp(x)) = max + log(sum exp(x - max)): nothing overflows. Every
  // lane sums its elements in their order, then WarpSum in one order (I1 of
  // kernels.h).
  double lane_sum = 0.0;
  for (int64_t i = lane; i < width; i += kWarp) {
    lane_sum += static_cast<double>(expf(in[i] - best.value));
  }
  const double sum = WarpSum(lane_sum);
  if (lane == 0) {
    o.row_loss[row] = static_cast<float>(
        log(sum) - (static_cast<double>(in[label]) - best.value));
    o.row_correct[row] = best.index == label ? 1.0f : 0.0f;
  }
  if (o.dx == nullptr) {
    return;
  }
  // d loss / d x[i] = (softmax(x)[i] - (i is the label)) / rows.
  const double scale = 1.0 / static_cast<double>(o.rows);
  const auto factor = static_cast<float>(scale / sum);
  for (int64_t i = lane; i < width; i += kWarp) {
    const float p = expf(in[i] - best.value) * factor;
    o.dx[row * width + i] = i == label ? p - static_cast<float>(scale) : p;
  }
}

__global__ void SigmoidCrossEntropyKernel(op::Loss o) {
  const auto r = ThreadIndex<int64_t>();
  if (r >= o.rows) {
    return;
  }
  const float v = o.x[r];
  const float z = o.labels[r];
  // -z log(s(v)) - (1 - z) log(1 - s(v)), in a form that never overflows.
  o.row_loss[r] = fmaxf(v, 0.0f) - v * z + log1pf(expf(-fabsf(v)));
  o.row_correct[r] = (v > 0.0f) == (z > 0.5f) ? 1.0f : 0.0f;
  if (o.dx != nullptr) {
    // s(v) - z without the difference: where z is 1 it is -s(-v), which keeps
    // its digits when s(v) is nearly 1.
    o.dx[r] = (z * -Sigmoid(-v) + (1.0f - z) * Sigmoid(v)) /
              static_cast<float>(o.rows);
  }
}

__global__ void MeanSquaredErrorKernel(op::Loss o) {
  const int64_t width = o.width;
  const int64_t row = WarpRow();
  if (row >= o.rows) {
    return;
  }
  const int lane = threadIdx.x % kWarp;
  const auto factor =
      static_cast<float>(2.0 / static_cast<double>(o.rows * width));
  double lane_sum = 0.0;
  for (int64_t i = row * width + lane; i < (row + 1) * width; i += kWarp) {
    const float d = o.x[i] - o.labels[i];
    lane_sum += static_cast<double>(d) * d;
    if (o.dx != nullptr) {
      o.dx[i] = factor * d;
    }
  }
  const double sum = WarpSum(lane_sum);
  if (lane == 0) {
    o.row_loss[row] = static_cast<float>(sum / static_cast<double>(width));
    o.row_correct[row] = 0.0f;
  }
}

}  // namespace

void Enqueue(cudaStream_t stream, const op::Loss& o) {
  const dim3 block(kWarpsPerBlock * kWarp);
  switch (o.kind) {
    case LossKind::kSoftmaxCrossEntropy:
      return Launch(stream, BlocksForRows(o.rows), block,
                    SoftmaxCrossEntropyKernel, o);
    case LossKind::kSigmoidCrossEntropy:
      return Launch(stream,
                    dim3(static_cast<unsigned>(CeilDiv(o.rows, kThreads))),
                    dim3(kThreads), SigmoidCrossEntropyKernel, o);
    case LossKind::kMeanSquaredError:
      return Launch(stream, BlocksForRows(o.rows), block,
                    MeanSquaredErrorKernel, o);
  }
}

}  // namespace weir::cuda
