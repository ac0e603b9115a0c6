// Sums over the rows of columns, and norms over columns and over rows.
#include <cmath>

#include "worker/compute/cuda/device.h"

namespace weir::cuda {
namespace {

// ------------------------------------------- sums of columns, over the rows
//
// There are two kernels. A block sums kRowThreads * kRowsPerThread rows or more
// of 32 columns in float; then a thread for each column adds the blocks' parts
// in double. How rows are cut depends on their number alone: I1 of kernels.h.

constexpr int kRowThreads = 8;
constexpr int64_t kRowsPerThread = 32;
// The second kernel walks over so many parts at most.
constexpr int64_t kSplitsMax = 256;
constexpr int kSumsMax = 2;

int64_t SplitsOf(int64_t rows) {
  return std::clamp<int64_t>(CeilDiv(rows, kRowThreads * kRowsPerThread), 1,
                             kSplitsMax);
}

// partials [kSums, splits, width]; terms(row, column, sums) adds to sums.
template <int kSums, class Terms>
__global__ void PartialColumnSums(int64_t rows, int64_t width,
                                  int64_t rows_per_split, Terms terms,
                                  float* partials) {
  // A warp is a row of the block: its lanes read 32 columns side by side.
  __shared__ float shared[kSums][kRowThreads][kWarp + 1];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  const int64_t begin = blockIdx.y * rows_per_split;
  const int64_t limit = begin + rows_per_split;
  const int64_t end = limit < rows ? limit : rows;
  // No thread leaves early: all have to come to the barrier.
  float sums[kSums] = {};
  if (column < width) {
    for (int64_t r = begin + threadIdx.y; r < end; r += kRowThreads) {
      terms(r, column, sums);
    }
  }
  for (int k = 0; k < kSums; ++k) {
    shared[k][threadIdx.y][threadIdx.x] = sums[k];
  }
  __syncthreads();
  if (threadIdx.y == 0 && column < width) {
    for (int k = 0; k < kSums; ++k) {
      float sum = 0.0f;
      for (int y = 0; y < kRowThreads; ++y) {
        sum += shared[k][y][threadIdx.x];
      }
      partials[(k * gridDim.y + blockIdx.y) * width + column] = sum;
    }
  }
}

// finish(column, totals) for every column.
template <int kSums, class Finish>
__global__ void FinishColumnSums(int64_t splits, int64_t width,
                                 const float* partials, Finish finish) {
  const auto column = ThreadIndex<int64_t>();
  if (column >= width) {
    return;
  }
  double totals[kSums];
  for (int k = 0; k < kSums; ++k) {
    double total = 0.0;
    for (int64_t s = 0; s < splits; ++s) {
      total += static_cast<double>(partials[(k * splits + s) * width + column]);
    }
    totals[k] = total;
  }
  finish(column, totals);
}

template <int kSums, class Terms, class Finish>
void SumColumns(cudaStream_t stream, int64_t rows, int64_t width, Terms terms,
                Finish finish, float* partials) {
  static_assert(kSums <= kSumsMax);
  const int64_t splits = SplitsOf(rows);
  Launch(stream,
         dim3(static_cast<unsigned>(CeilDiv(width, kWarp)),
              static_cast<unsigned>(splits)),
         dim3(kWarp, kRowThreads), PartialColumnSums<kSums, Terms>, rows, width,
         CeilDiv(rows, splits), terms, partials);
  Launch(stream, dim3(static_cast<unsigned>(CeilDiv(width, kThreads))),
         dim3(kThreads), FinishColumnSums<kSums, Finish>, splits, width,
         static_cast<const float*>(partials), finish);
}

struct Elements {
  const float* x;
  int64_t width;
  __device__ void operator()(int64_t r, int64_t c, float* sums) const {
    sums[0] += x[r * width + c];
  }
};

// A second pass with the mean known: the mean of squares less the square of the
// mean would cancel where the mean is far from zero.
struct SquaredDistances {
  const float* x;
  const float* mean;  // [width]
  int64_t width;
  __device__ void operator()(int64_t r, int64_t c, float* sums) const {
    const float d = x[r * width + c] - mean[c];
    sums[0] += d * d;
  }
};

// The terms of doffset (dy) and of dscale (dy times the normalised x). Mean and
// rstd are by row or by column.
template <bool kByRow>
struct GradientTerms {
  const float* x;
  const float* dy;
  const float* mean;
  const float* rstd;
  int64_t width;
  __device__ void operator()(int64_t r, int64_t c, float* sums) const {
    const int64_t i = r * width + c;
    const int64_t group = kByRow ? r : c;
    sums[0] += dy[i];
    sums[1] += dy[i] * ((x[i] - mean[group]) * rstd[group]);
  }
};

struct StoreSum {
  float* sums;
  __device__ void operator()(int64_t c, const double* totals) const {
    sums[c] = static_cast<float>(totals[0]);
  }
};

struct StoreGradients {
  float* doffset;
  float* dscale;
  __device__ void operator()(int64_t c, const double* totals) const {
    doffset[c] = static_cast<float>(totals[0]);
    dscale[c] = static_cast<float>(totals[1]);
  }
};

struct StoreMean {
  float* mean;
  double count;
  __device__ void operator()(int64_t c, const double* totals) const {
    mean[c] = static_cast<float>(totals[0] / count);
  }
};

struct StoreVariance {
  float* rstd;
  float* variance;
  double count;
  float epsilon;
  __device__ void operator()(int64_t c, const double* totals) const {
    rstd[c] = static_cast<float>(
        1.0 / sqrt(totals[0] / count + static_cast<double>(epsilon)));
    // The unbiased variance; a single row has none, and totals[0] is 0 there.
    variance[c] =
        static_cast<float>(totals[0] / (count > 1.5 ? count - 1.0 : 1.0));
  }
};

// ------------------------------------------------------ every row of columns

// apply(element, constants) for every row of a column, with constants =
// apply.Prepare(column): what a column has in common is computed once by a
// thread.
template <class Apply>
__global__ void ColumnsKernel(int64_t rows, int64_t width, Apply apply) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  if (column >= width) {
    return;
  }
  const auto constants = apply.Prepare(column);
  const int64_t stride = static_cast<int64_t>(gridDim.y) * kRowThreads;
  for (int64_t r = static_cast<int64_t>(blockIdx.y) * kRowThreads + threadIdx.y;
       r < rows; r += stride) {
    apply(r * width + column, constants);
  }
}

template <class Apply>
void ForEachColumn(cudaStream_t stream, int64_t rows, int64_t width,
                   Apply apply) {
  const int64_t row_blocks = CeilDiv(rows, kRowThreads);
  Launch(stream,
         dim3(static_cast<unsigned>(CeilDiv(width, kWarp)),
              static_cast<unsigned>(std::min<int64_t>(row_blocks, 1024))),
         dim3(kWarp, kRowThreads), ColumnsKernel<Apply>, rows, width, apply);
}

// y = (x - mean) * factor + offset.
struct Normalise {
  struct Constants {
    float mean, factor, offset;
  };
  const float* x;
  const float* scale;
  const float* offset;
  const float* mean;
  const float* rstd;      // null: from variance
  const float* variance;  // with epsilon
  float epsilon;
  float* y;
  __device__ Constants Prepare(int64_t c) const {
    const float factor =
        rstd != nullptr
            ? rstd[c] * scale[c]
            : static_cast<float>(static_cast<double>(scale[c]) /
                                 sqrt(static_cast<double>(variance[c]) +
                                      static_cast<double>(epsilon)));
    return {mean[c], factor, offset[c]};
  }
  __device__ void operator()(int64_t i, const Constants& k) const {
    y[i] = (x[i] - k.mean) * k.factor + k.offset;
  }
};

struct PlusBias {
  const float* bias;
  float* y;
  __device__ float Prepare(int64_t c) const { return bias[c]; }
  __device__ void operator()(int64_t i, float b) const { y[i] += b; }
};

// dx = scale * rstd * (dy - mean(dy) - xhat * mean(dy * xhat)), means over the
// rows: they are the gradients of offset and scale, divided by the row count.
struct NormaliseBackward {
  struct Constants {
    float mean, factor, g_mean, x_factor;
  };
  const float* x;
  const float* dy;
  const float* scale;
  const float* mean;
  const float* rstd;
  const float* dscale;
  const float* doffset;
  double count;
  float* dx;
  __device__ Constants Prepare(int64_t c) const {
    return {mean[c], scale[c] * rstd[c],
            static_cast<float>(static_cast<double>(doffset[c]) / count),
            static_cast<float>(static_cast<double>(dscale[c]) / count *
                               static_cast<double>(rstd[c]))};
  }
  __device__ void operator()(int64_t i, const Constants& k) const {
    dx[i] = k.factor * (dy[i] - k.g_mean - (x[i] - k.mean) * k.x_factor);
  }
};

// ------------------------------------------------------------ a warp per row

// A lane takes every 32nd element; WarpSum adds the lanes in one order. Every
// lane gets the sum, so none has to wait for another one to share it.
__global__ void NormaliseRowsKernel(op::NormForward o) {
  const int64_t width = o.width;
  const int64_t row = WarpRow();
  if (row >= o.rows) {
    return;
  }
  const int lane = threadIdx.x % kWarp;
  const float* in = o.x + row * width;
  const auto n = static_cast<double>(width);
  float sum = 0.0f;
  for (int64_t i = lane; i < width; i += kWarp) {
    sum += in[i];
  }
  const auto m = static_cast<float>(WarpSum(static_cast<double>(sum)) / n);
  float squares = 0.0f;
  for (int64_t i = lane; i < width; i += kWarp) {
    const float d = in[i] - m;
    squares += d * d;
  }
  const double variance = WarpSum(static_cast<double>(squares)) / n;
  const auto s =
      static_cast<float>(1.0 / sqrt(variance + static_cast<double>(o.epsilon)));
  for (int64_t i = lane; i < width; i += kWarp) {
    o.y[row * width + i] = (in[i] - m) * s * o.scale[i] + o.offset[i];
  }
  if (lane == 0) {
    o.mean[row] = m;
    o.rstd[row] = s;
  }
}

// With g = dy * scale: dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), means
// over the row.
__global__ void RowGradientsKernel(op::NormBackward o) {
  const int64_t width = o.width;
  const int64_t row = WarpRow();
  if (row >= o.rows) {
    return;
  }
  const int lane = threadIdx.x % kWarp;
  const float* in = o.x + row * width;
  const float* g = o.dy + row * width;
  const float m = o.mean[row];
  const float s = o.rstd[row];
  float g_sum = 0.0f;
  float gx_sum = 0.0f;
  for (int64_t i = lane; i < width; i += kWarp) {
    const float scaled = g[i] * o.scale[i];
    g_sum += scaled;
    gx_sum += scaled * ((in[i] - m) * s);
  }
  const auto n = static_cast<double>(width);
  const auto g_mean =
      static_cast<float>(WarpSum(static_cast<double>(g_sum)) / n);
  const auto gx_mean =
      static_cast<float>(WarpSum(static_cast<double>(gx_sum)) / n);
  for (int64_t i = lane; i < width; i += kWarp) {
    o.dx[row * width + i] =
        s * (g[i] * o.scale[i] - g_mean - (in[i] - m) * s * gx_mean);
  }
}

}  // namespace

int64_t PartialElements(int64_t rows, int64_t width) {
  return kSumsMax * SplitsOf(rows) * width;
}

void Enqueue(cudaStream_t stream, const op::SumRows& o, float* partials) {
  SumColumns<1>(stream, o.rows, o.width, Elements{o.x, o.width},
                StoreSum{o.sums}, partials);
}

void AddBias(cudaStream_t stream, int64_t rows, int64_t width,
             const float* bias, float* y) {
  ForEachColumn(stream, rows, width, PlusBias{bias, y});
}

void Enqueue(cudaStream_t stream, const op::NormForward& o, float* partials) {
  if (o.over == NormOver::kRow) {
    return Launch(stream, BlocksForRows(o.rows), dim3(kWarpsPerBlock * kWarp),
                  NormaliseRowsKernel, o);
  }
  const auto count = static_cast<double>(o.rows);
  SumColumns<1>(stream, o.rows, o.width, Elements{o.x, o.width},
                StoreMean{o.mean, count}, partials);
  SumColumns<1>(stream, o.rows, o.width, SquaredDistances{o.x, o.mean, o.width},
                StoreVariance{o.rstd, o.variance, count, o.epsilon}, partials);
  ForEachColumn(stream, o.rows, o.width,
                Normalise{o.x, o.scale, o.offset, o.mean, o.rstd, nullptr,
                          o.epsilon, o.y});
}

void Enqueue(cudaStream_t stream, const op::NormBackward& o, float* partials) {
  const StoreGradients store{o.doffset, o.dscale};
  if (o.over == NormOver::kRow) {
    SumColumns<2>(stream, o.rows, o.width,
                  GradientTerms<true>{o.x, o.dy, o.mean, o.rstd, o.width},
                  store, partials);
    if (o.dx != nullptr) {
      Launch(stream, BlocksForRows(o.rows), dim3(kWarpsPerBlock * kWarp),
             RowGradientsKernel, o);
    }
    return;
  }
  SumColumns<2>(stream, o.rows, o.width,
                GradientTerms<false>{o.x, o.dy, o.mean, o.rstd, o.width}, store,
                partials);
  if (o.dx != nullptr) {
    ForEachColumn(
        stream, o.rows, o.width,
        NormaliseBackward{o.x, o.dy, o.scale, o.mean, o.rstd, o.dscale,
                          o.doffset, static_cast<double>(o.rows), o.dx});
  }
}

void Enqueue(cudaStream_t stream, const op::NormInference& o) {
  ForEachColumn(stream, o.rows, o.width,
                Normalise{o.x, o.scale, o.offset, o.mean, nullptr, o.variance,
                          o.epsilon, o.y});
}

}  // namespace weir::cuda
