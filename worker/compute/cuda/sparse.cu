// Gathers over lists of rows, interactions of vectors.
#include "worker/compute/cuda/device.h"

namespace weir::cuda {
namespace {

// ------------------------------------------------------------------ gathers
//
// A group of lanes, each with kCount columns at a time, takes a list. A list of
// more than kLongList entries gets a whole block, whose G groups take every
// G-th entry each. The order of a sum depends on the length and the width of
// the list alone: I1 of kernels.h.

constexpr int64_t kLongList = 128;

// How rows of `width` are cut into units of columns, and those among lanes.
struct Grouping {
  int64_t units;  // of a row
  int lanes;      // of a group; a power of two, at most a warp
};

Grouping GroupingOf(int64_t width, int vector) {
  Grouping grouping{width / vector, 1};
  while (grouping.lanes < kWarp && grouping.lanes < grouping.units) {
    grouping.lanes *= 2;
  }
  return grouping;
}

template <int kCount>
__device__ inline void AddTo(const Vector<kCount>& value, Vector<kCount>* sum) {
  for (int j = 0; j < kCount; ++j) {
    sum->v[j] += value.v[j];
  }
}

struct WeightedRows {
  const int32_t* index;
  const float* weights;  // may be null
  int64_t width;
  const float* x;
  template <int kCount>
  __device__ Vector<kCount> Term(int64_t, int64_t e, int64_t column) const {
    Vector<kCount> row = Load<kCount>(x + index[e] * width + column);
    if (weights != nullptr) {
      for (int j = 0; j < kCount; ++j) {
        row.v[j] *= weights[e];
      }
    }
    return row;
  }
};

struct ChosenRows {
  const int32_t* index;
  const int32_t* chosen;
  int64_t width;
  const float* x;
  template <int kCount>
  __device__ Vector<kCount> Term(int64_t l, int64_t e, int64_t column) const {
    const int64_t i = index[e] * width + column;
    Vector<kCount> row = Load<kCount>(x + i);
    for (int j = 0; j < kCount; ++j) {
      row.v[j] = chosen[i + j] == l ? row.v[j] : 0.0f;
    }
    return row;
  }
};

template <int kCount, class Rows>
__device__ inline Vector<kCount> SumEntries(int64_t l, int64_t begin,
                                            int64_t end, int64_t step,
                                            int64_t column, const Rows& rows) {
  Vector<kCount> sum = {};
  for (int64_t e = begin; e < end; e += step) {
    AddTo(rows.template Term<kCount>(l, e, column), &sum);
  }
  return sum;
}

template <int kCount>
__device__ inline void StoreSum(Vector<kCount> sum, bool add, float* y) {
  if (add) {
    AddTo(Load<kCount>(y), &sum);
  }
  Store(sum, y);
}

template <int kCount, class Rows>
__global__ void SumShortLists(int64_t lists, const int32_t* offsets,
                              Grouping grouping, Rows rows, bool add,
                              float* y) {
  const int64_t groups = ThreadCount<int64_t>() / grouping.lanes;
  for (int64_t l = ThreadIndex<int64_t>() / grouping.lanes; l < lists;
       l += groups) {
    const int64_t begin = offsets[l];
    const int64_t end = offsets[l + 1];
    if (end - begin > kLongList) {
      continue;  // SumLongLists takes it
    }
    for (int64_t unit = threadIdx.x % grouping.lanes; unit < grouping.units;
         unit += grouping.lanes) {
      const int64_t column = unit * kCount;
      StoreSum(SumEntries<kCount>(l, begin, end, 1, column, rows), add,
               y + l * rows.width + column);
    }
  }
}

// One long list by a whole block.
template <int kCount, class Rows>
__device__ inline void SumByBlock(int64_t l, const int32_t* offsets,
                                  Grouping grouping, const Rows& rows, bool add,
                                  Vector<kCount>* parts, float* y) {
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % grouping.lanes;
  const int groups = kThreads / grouping.lanes;
  for (int64_t first = 0; first < grouping.units; first += grouping.lanes) {
    const bool inside = first + lane < grouping.units;
    const int64_t column = (first + lane) * kCount;
    parts[thread] = {};
    if (inside) {
      parts[thread] =
          SumEntries<kCount>(l, offsets[l] + thread / grouping.lanes,
                             offsets[l + 1], groups, column, rows);
    }
    __syncthreads();
    // A tree over the groups, in one order; lane l of group g is thread g *
    // lanes + l, so halves of the block hold the same columns.
    for (int half = kThreads / 2; half >= grouping.lanes; half /= 2) {
      if (thread < half) {
        AddTo(parts[thread + half], &parts[thread]);
      }
      __syncthreads();
    }
    if (thread < grouping.lanes && inside) {
      StoreSum(parts[thread], add, y + l * rows.width + column);
    }
    // The next columns must not overwrite parts that are still read.
    __syncthreads();
  }
}

// Block b takes lists b, b + grid, ...: long ones may lie side by side, and
// should not all be one block's. Its threads first find out together which are
// long.
template <int kCount, class Rows>
__global__ void SumLongLists(int64_t lists, const int32_t* offsets,
                             Grouping grouping, Rows rows, bool add, float* y) {
  __shared__ bool is_long[kThreads];
  __shared__ Vector<kCount> parts[kThreads];
  const int64_t stride = gridDim.x;
  for (int64_t base = blockIdx.x; base < lists; base += stride * kThreads) {
    const int64_t own = base + threadIdx.x * stride;
    is_long[threadIdx.x] =
        own < lists && offsets[own + 1] - offsets[own] > kLongList;
    __syncthreads();
    for (int t = 0; t < kThreads && base + t * stride < lists; ++t) {
      if (is_long[t]) {
        SumByBlock<kCount>(base + t * stride, offsets, grouping, rows, add,
                           parts, y);
      }
    }
    __syncthreads();
  }
}

template <int kCount, class Rows>
void SumListsBy(cudaStream_t stream, int64_t lists, const int32_t* offsets,
                const Rows& rows, bool add, float* y) {
  const Grouping grouping = GroupingOf(rows.width, kCount);
  // Both kernels see all lists, since only the device knows how long they are.
  Launch(stream, BlocksFor(lists * grouping.lanes), dim3(kThreads),
         SumShortLists<kCount, Rows>, lists, offsets, grouping, rows, add, y);
  Launch(stream,
         dim3(static_cast<unsigned>(std::min<int64_t>(lists, kBlocksMax))),
         dim3(kThreads), SumLongLists<kCount, Rows>, lists, offsets, grouping,
         rows, add, y);
}

template <class Rows>
void SumLists(cudaStream_t stream, const RowLists& lists, const Rows& rows,
              bool add, float* y) {
  if (lists.count == 0) {
    return;
  }
  // I2 of kernels.h: rows of 4 n floats from an aligned address are all
  // aligned.
  if (rows.width % 4 == 0 && Aligned16(rows.x) && Aligned16(y)) {
    SumListsBy<4>(stream, lists.count, lists.offsets, rows, add, y);
  } else {
    SumListsBy<1>(stream, lists.count, lists.offsets, rows, add, y);
  }
}

// A thread for each list and column.
__global__ void GatherMaxKernel(int64_t lists, int64_t width,
                                const int32_t* offsets, const int32_t* index,
                                const float* x, float* y, int32_t* chosen) {
  const int64_t count = lists * width;
  for (auto i = ThreadIndex<int64_t>(); i < count;
       i += ThreadCount<int64_t>()) {
    const int64_t l = i / width;
    const int64_t column = i % width;
    float best = 0.0f;
    int32_t which = -1;
    const int64_t end = offsets[l + 1];
    for (int64_t e = offsets[l]; e < end; ++e) {
      const float value = x[index[e] * width + column];
      if (which < 0 || value > best || value != value) {
        best = value;
        which = index[e];
      }
    }
    y[i] = best;
    chosen[i] = which;
  }
}

// ------------------------------------------------------------- interactions

// A warp for each sample. It adds the products of a vector with the sum of
// those before it. The square of the sum less the sum of squares would cancel.
__global__ void PairSumKernel(VectorsShape shape, const float* x, float* y) {
  const int64_t b = WarpRow();
  if (b >= shape.batch) {
    return;
  }
  const float* sample = x + b * shape.vectors * shape.dim;
  double sum = 0.0;
  for (int64_t c = threadIdx.x % kWarp; c < shape.dim; c += kWarp) {
    float before = 0.0f;
    float products = 0.0f;
    for (int64_t i = 0; i < shape.vectors; ++i) {
      const float v = sample[i * shape.dim + c];
      products += v * before;
      before += v;
    }
    sum += static_cast<double>(products);
  }
  sum = WarpSum(sum);
  if (threadIdx.x % kWarp == 0) {
    y[b] = static_cast<float>(sum);
  }
}

// A thread for each sample and column: dx_i = dy * (the sum of all - x_i).
__global__ void PairSumBackwardKernel(VectorsShape shape, const float* x,
                                      const float* dy, float* dx) {
  const int64_t count = shape.batch * shape.dim;
  for (auto t = ThreadIndex<int64_t>(); t < count;
       t += ThreadCount<int64_t>()) {
    const int64_t b = t / shape.dim;
    const int64_t begin = b * shape.vectors * shape.dim + t % shape.dim;
    float sum = 0.0f;
    for (int64_t i = 0; i < shape.vectors; ++i) {
      sum += x[begin + i * shape.dim];
    }
    for (int64_t i = 0; i < shape.vectors; ++i) {
      const int64_t at = begin + i * shape.dim;
      dx[at] = dy[b] * (sum - x[at]);
    }
  }
}

__device__ inline int64_t FirstPair(int64_t i) { return i * (i - 1) / 2; }

// The larger vector of pair p: the largest i with i (i - 1) / 2 <= p. The
// rounded root may be off by one, which the loops mend.
__device__ inline int64_t LargerOfPair(int64_t p) {
  auto i = static_cast<int64_t>(
      (1.0 + sqrt(1.0 + 8.0 * static_cast<double>(p))) / 2.0);
  while (FirstPair(i) > p) {
    --i;
  }
  while (FirstPair(i + 1) <= p) {
    ++i;
  }
  return i;
}

// A block for each sample, which stays in L1, and a thread for each pair.
template <int kCount>
__global__ void PairDotsKernel(VectorsShape shape, const float* x, float* y) {
  const int64_t pairs = shape.pairs();
  for (int64_t b = blockIdx.x; b < shape.batch; b += gridDim.x) {
    const float* sample = x + b * shape.vectors * shape.dim;
    for (int64_t p = threadIdx.x; p < pairs; p += kThreads) {
      const int64_t i = LargerOfPair(p);
      const float* v = sample + i * shape.dim;
      const float* w = sample + (p - FirstPair(i)) * shape.dim;
      float dot = 0.0f;
      for (int64_t k = 0; k < shape.dim; k += kCount) {
        const Vector<kCount> a = Load<kCount>(v + k);
        const Vector<kCount> c = Load<kCount>(w + k);
        for (int j = 0; j < kCount; ++j) {
          dot += a.v[j] * c.v[j];
        }
      }
      y[b * pairs + p] = dot;
    }
  }
}

// A thread for each kCount elements of dx gathers from all pairs of its vector,
// in the order of the others: no atomics (I1 of kernels.h).
template <int kCount>
__global__ void PairDotsBackwardKernel(VectorsShape shape, const float* x,
                                       const float* dy, float* dx) {
  const int64_t units = shape.dim / kCount;
  const int64_t count = shape.batch * shape.vectors * units;
  for (auto t = ThreadIndex<int64_t>(); t < count;
       t += ThreadCount<int64_t>()) {
    const int64_t column = t % units * kCount;
    const int64_t i = t / units % shape.vectors;
    const int64_t b = t / units / shape.vectors;
    const float* sample = x + b * shape.vectors * shape.dim + column;
    const float* g = dy + b * shape.pairs();
    Vector<kCount> sum = {};
    for (int64_t other = 0; other < shape.vectors; ++other) {
      if (other == i) {
        continue;
      }
      const float weight =
          other < i ? g[FirstPair(i) + other] : g[FirstPair(other) + i];
      const Vector<kCount> v = Load<kCount>(sample + other * shape.dim);
      for (int j = 0; j < kCount; ++j) {
        sum.v[j] += weight * v.v[j];
      }
    }
    Store(sum, dx + t * kCount);
  }
}

}  // namespace

void Enqueue(cudaStream_t stream, const op::GatherSum& o) {
  SumLists(stream, o.lists,
           WeightedRows{o.lists.index, o.lists.weights, o.width, o.x}, o.add,
           o.y);
}

void Enqueue(cudaStream_t stream, const op::GatherMax& o) {
  if (o.lists.count > 0) {
    Launch(stream, BlocksFor(o.lists.count * o.width), dim3(kThreads),
           GatherMaxKernel, o.lists.count, o.width, o.lists.offsets,
           o.lists.index, o.x, o.y, o.chosen);
  }
}

void Enqueue(cudaStream_t stream, const op::GatherChosen& o) {
  SumLists(stream, o.lists, ChosenRows{o.lists.index, o.chosen, o.width, o.x},
           o.add, o.y);
}

void Enqueue(cudaStream_t stream, const op::PairForward& o) {
  const VectorsShape& shape = o.shape;
  if (o.kind == PairKind::kSum) {
    return Launch(stream, BlocksForRows(shape.batch),
                  dim3(kWarpsPerBlock * kWarp), PairSumKernel, shape, o.x, o.y);
  }
  const bool wide = shape.dim % 4 == 0 && Aligned16(o.x);
  Launch(
      stream,
      dim3(static_cast<unsigned>(std::min<int64_t>(shape.batch, kBlocksMax))),
      dim3(kThreads), wide ? PairDotsKernel<4> : PairDotsKernel<1>, shape, o.x,
      o.y);
}

void Enqueue(cudaStream_t stream, const op::PairBackward& o) {
  const VectorsShape& shape = o.shape;
  if (o.kind == PairKind::kSum) {
    return Launch(stream, BlocksFor(shape.batch * shape.dim), dim3(kThreads),
                  PairSumBackwardKernel, shape, o.x, o.dy, o.dx);
  }
  const bool wide = shape.dim % 4 == 0 && Aligned16(o.x) && Aligned16(o.dx);
  Launch(stream, BlocksFor(shape.elements()), dim3(kThreads),
         wide ? PairDotsBackwardKernel<4> : PairDotsBackwardKernel<1>, shape,
         o.x, o.dy, o.dx);
}

}  // namespace weir::cuda
